"""Slurm's topology.conf, and `scontrol show topology`: trees of switches, blocks, rings.

What they mean is `switch_tree` and `slurm_topologies`.

The file is read as Slurm reads its files: `key=value` pairs, keys in any case, values in double quotes where they hold
blanks, a comment from `#` on, a line that ends with a backslash goes on in the next. Each switch, block or ring has a
line of its own.

`scontrol show topology` prints the same lines with more words, by the print functions of Slurm's plugins: a switch
has a `Level` (0 for a leaf) and lists all nodes below it, not only those right below; a block has a `BlockSize`, which
is the base size; runs of blocks are lines of their own, `AggregatedBlock`, with the size of the run.

topograph writes the real names of switches and blocks in comments (`# switch.1.1=leaf-1-1`), for it gives them made-up
ids. Domains get the real names where these are different names and may be names of domains.

A file may hold switches and blocks, of which Slurm's configuration then chooses one. Here the switches make the tree,
and blocks are put below them where each lies inside one leaf, else beside the tree.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gantree.model.errors import BadInput
from gantree.text.records import MAX_PROBLEMS, Report
from gantree.text.words import counted, did_you_mean, shortened
from gantree.topology.discovery.fabrics import FabricReading
from gantree.topology.discovery.listings.divisions import Layout, divided
from gantree.topology.discovery.listings.slurm_names import Names, is_name
from gantree.topology.discovery.listings.slurm_topologies import (
    BLOCK,
    Group,
    Part,
    part_of_blocks,
    part_of_rings,
)
from gantree.topology.discovery.listings.switch_tree import Switch, tree_of

_PAIR = re.compile(r'\s*([A-Za-z0-9_.]+)\s*=\s*("[^"]*"|[^\s"]\S*)(?=\s|$)', re.ASCII)
_REAL_NAME = re.compile(r"\s*#\s*([^\s=]+)=(.*\S)\s*")
_ESCAPED = re.compile(r"\\(.)")
_COMMENT = re.compile(r"(?<!\\)((?:\\\\)*)#.*")
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\$")
MAX_BACKSLASHES = 1000
MAX_LINE_CHARS = 4 << 20
SWITCH, BLOCK_NAME, RING_NAME, SIZES = "switchname", "blockname", "ringname", "blocksizes"
AGGREGATE, SIZE, LEVEL = "aggregatedblock", "blocksize", "level"
_WORDS = {
    SWITCH: ("Switches", "Nodes", "LinkSpeed", "Level"),
    BLOCK_NAME: ("Nodes", "BlockIndex", "BlockSize"),
    RING_NAME: ("Nodes", "RingSize"),
    SIZES: (),
    AGGREGATE: ("Nodes", "BlockIndex", "BlockSize"),
}
_FIRST_WORDS = ("SwitchName", "BlockName", "RingName", "BlockSizes")
_SHORT_LINE = 10_000
"""Lines that are no pairs are searched for a hint only up to this length."""


class Pair(NamedTuple):
    """One `key=value`: the key in lower case, and the value without quotes."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Statement:
    """One line with what goes on from it: its number and its pairs, the first of which is its kind."""

    line: int
    pairs: tuple[Pair, ...]

    def value(self, key: str) -> str | None:
        """Return the value of a key, None where it is not there."""
        return next((pair.value for pair in self.pairs if pair.key == key), None)


@dataclass(frozen=True, slots=True)
class _Lists:
    """Readers of the lists of a file: of switches, blocks and rings, and of nodes."""

    domains: Names
    nodes: Names
    report: Report


def parse(text: str, source: str) -> FabricReading:
    """Read a topology.conf.

    BadInput where it holds no switch, block or ring; BadFields, with lines, for what is no line of it and for what
    contradicts itself.
    """
    report = Report(source)
    statements = _statements(text, report)
    if not statements and len(report.problems) > 1:
        raise BadInput(
            f"{_what_instead(text, source)}; the first line of another kind: {report.problems[0]}"
        )
    names = _Lists(Names(report), Names(report), report)
    of_switches = [s for s in statements if s.pairs[0].key == SWITCH]
    switches = _right_below([_switch(s, names) for s in of_switches], _levels(of_switches, report))
    blocks = [_group(s, names) for s in statements if s.pairs[0].key == BLOCK_NAME]
    rings = [_group(s, names) for s in statements if s.pairs[0].key == RING_NAME]
    report.check()
    if not switches and not blocks and not rings:
        raise BadInput(_what_instead(text, source))
    if rings and (switches or blocks):
        report.add(rings[0].line, "RingName", "rings beside switches or blocks", "one topology")
    block_sizes = _sizes(statements, report)
    report.check()
    real = _real_names(text, [*(s.name for s in switches), *(b.name for b in blocks)])
    switches = [_renamed_switch(switch, real) for switch in switches]
    blocks = [replace(block, name=real.get(block.name, block.name)) for block in blocks]
    part = _part(switches, blocks, rings, block_sizes, report)
    return _reading(part, real, any(s.value("linkspeed") for s in statements))


def _part(
    switches: Sequence[Switch],
    blocks: Sequence[Group],
    rings: Sequence[Group],
    sizes: Sequence[int],
    report: Report,
) -> Part:
    if rings:
        return part_of_rings(rings, report)
    if not switches:
        return part_of_blocks(blocks, sizes, report)
    tree = tree_of(switches, (), report)
    if not blocks:
        return Part(tree.layout, warnings=tree.warnings)
    beside = part_of_blocks(blocks, sizes, report)
    block_of_node = {node: path[-1] for node, path in beside.layout.at.items()}
    layout = divided(tree.layout, BLOCK, block_of_node, "blocks")
    strangers = len(block_of_node.keys() - layout.at.keys())
    lost = (
        [f"{counted(strangers, 'node is', 'nodes are')} in blocks but on no switch: left out"]
        if strangers
        else []
    )
    said = "the file holds switches and blocks: switches make the tree"
    layout = replace(layout, inferred=(said, *layout.inferred))
    return Part(layout, warnings=(*tree.warnings, *beside.warnings, *lost))


def _reading(part: Part, real: Mapping[str, str], speeds: bool) -> FabricReading:
    layout: Layout = part.layout
    said = list(layout.inferred)
    if real:
        have = counted(len(real), "domain has the name", "domains have the names")
        said.append(f"{have} that comments give (`# id=name`)")
    if speeds:
        said.append("LinkSpeed is passed over: it has no unit, and Slurm does not use it")
    reading = replace(layout, inferred=tuple(said)).reading(part.warnings)
    return replace(reading, tori=part.tori)


def _statements(text: str, report: Report) -> list[Statement]:
    found = []
    for line, content in _lines(text):
        if len(report.problems) == MAX_PROBLEMS:
            break  # hints cost time
        if len(content) > MAX_LINE_CHARS:
            report.add(line, "line", "a longer line", f"at most {MAX_LINE_CHARS >> 20} MiB")
            break
        pairs = _pairs(content, line, report)
        if pairs and _is_known(pairs, line, report):
            found.append(Statement(line, tuple(pairs)))
    return found


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines that hold something, without comments, continued lines as one."""
    held: list[str] = []
    start = 0
    for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = _COMMENT.sub(r"\1", raw) if "#" in raw else raw
        line = line.rstrip()
        start = start or number
        if line.endswith("\\") and _CONTINUED.search(line[-MAX_BACKSLASHES:]):
            held.append(line[:-1])
            continue
        whole = "".join([*held, line])
        if whole.strip():
            yield start, _ESCAPED.sub(r"\1", whole) if "\\" in whole else whole
        held, start = [], 0
    if held:
        yield start, "".join(held)


def _pairs(content: str, line: int, report: Report) -> list[Pair]:
    pairs, at = [], 0
    end = len(content.rstrip())
    while at < end:
        match = _PAIR.match(content, at)
        if match is None:
            report.add(
                line, "line", f"`{shortened(content[at:].strip())}`", *_not_a_pair(content[at:])
            )
            return []
        pairs.append(Pair(match[1].lower(), match[2].strip('"')))
        at = match.end()
    return pairs


def _not_a_pair(rest: str) -> tuple[str, str]:
    words = rest[:_SHORT_LINE].split()
    if words and words[0].lower() == "include":
        return "pairs such as Nodes=n[0-3]", "Put the text of the included file in its place."
    return "pairs such as Nodes=n[0-3]", ""


def _is_known(pairs: Sequence[Pair], line: int, report: Report) -> bool:
    """Note a line that begins with another word, and words that do not belong to what it begins with."""
    first, *others = pairs
    if first.key not in _WORDS:
        hint = did_you_mean(first.key, _FIRST_WORDS)
        report.add(line, shortened(first.key), "a line of it", ", ".join(_FIRST_WORDS), hint)
        return False
    allowed = _WORDS[first.key]
    for number, pair in enumerate(others):
        if pair.key not in (word.lower() for word in allowed):
            words = ", ".join(allowed) or "nothing after it"
            hint = did_you_mean(pair.key, allowed)
            if pair.key in _WORDS:
                hint = "Each has a line of its own."
            report.add(line, shortened(pair.key), f"it after {first.key}", words, hint)
            return False
        if pair.key in (other.key for other in others[:number]):
            report.add(line, pair.key, "it twice", "it once in a line")
            return False
    return True


def _switch(statement: Statement, lists: _Lists) -> Switch:
    name = _name(statement, lists)
    children = statement.value("switches") or ""
    place = f"switch {name}: Switches"
    below = lists.domains.read(children, statement.line, place) if children else ()
    return Switch(name, statement.line, below, _nodes(statement, f"switch {name}", lists))


def _group(statement: Statement, lists: _Lists) -> Group:
    name = _name(statement, lists)
    return Group(name, statement.line, _nodes(statement, name, lists))


def _name(statement: Statement, lists: _Lists) -> str:
    """Return the name of one switch, block or ring: Slurm does not expand it."""
    key, value = statement.pairs[0]
    return lists.domains.one(value, statement.line, key)


def _nodes(statement: Statement, place: str, lists: _Lists) -> tuple[str, ...]:
    value = statement.value("nodes") or ""
    if value.upper() == "ALL":
        lists.report.add(statement.line, f"{place}: Nodes", "`ALL`", "names or hostlists")
    return lists.nodes.read(value, statement.line, f"{place}: Nodes") if value else ()


def _levels(of_switches: Sequence[Statement], report: Report) -> dict[str, int]:
    """Return the levels that are given, by the name of the switch as written."""
    levels = {}
    for statement in of_switches:
        given = statement.value(LEVEL)
        if given is not None:
            levels[statement.pairs[0].value] = _whole(statement, LEVEL, report)
    return levels


def _right_below(switches: Sequence[Switch], levels: Mapping[str, int]) -> list[Switch]:
    """Keep of the nodes of a switch whose level is given those that no switch of a lower level lists."""
    lowest: dict[str, int] = {}
    for switch in switches:
        level = levels.get(switch.name, 0)
        for node in switch.nodes:
            lowest[node] = min(lowest.get(node, level), level)
    return [
        replace(switch, nodes=tuple(n for n in switch.nodes if lowest[n] >= levels[switch.name]))
        if switch.name in levels
        else switch
        for switch in switches
    ]


def _sizes(statements: Sequence[Statement], report: Report) -> list[int]:
    """Return the sizes of blocks, the base first, as BlockSizes gives, or else the lines of blocks and runs."""
    given = [s for s in statements if s.pairs[0].key == SIZES]
    if len(given) > 1:
        report.add(given[1].line, "BlockSizes", "it again", "it once in a file")
    if not given:
        of_blocks = [s for s in statements if s.pairs[0].key == BLOCK_NAME]
        of_runs = [s for s in statements if s.pairs[0].key == AGGREGATE]
        sized = [s for s in (*of_blocks, *of_runs) if s.value(SIZE)]
        return list(dict.fromkeys(_whole(s, SIZE, report) for s in sized))
    words = given[0].pairs[0].value.split(",")
    if all(word.isascii() and word.isdecimal() and len(word) < 10 for word in words):
        return [int(word) for word in words]
    found = f"`{shortened(given[0].pairs[0].value)}`"
    report.add(given[0].line, "BlockSizes", found, "whole numbers such as 8,16,32")
    return []


def _whole(statement: Statement, key: str, report: Report) -> int:
    """Return a whole number, or note the problem and return 0."""
    word = statement.value(key) or ""
    if word.isascii() and word.isdecimal() and len(word) < 10:
        return int(word)
    report.add(statement.line, key, f"`{shortened(word)}`", "a whole number")
    return 0


def _real_names(text: str, ids: Sequence[str]) -> dict[str, str]:
    """Return the names that comments give to ids of the file; none where two would get the same."""
    known = set(ids)
    found: dict[str, str] = {}
    for line in text.split("\n"):
        match = _REAL_NAME.fullmatch(line) if "#" in line[:100] and "=" in line else None
        if match and match[1] in known and match[1] != match[2] and is_name(match[2]):
            found[match[1]] = match[2]
    names = [found.get(name, name) for name in dict.fromkeys(ids)]
    return found if len(set(names)) == len(names) else {}


def _renamed_switch(switch: Switch, real: Mapping[str, str]) -> Switch:
    children = tuple(real.get(child, child) for child in switch.children)
    return replace(switch, name=real.get(switch.name, switch.name), children=children)


def _what_instead(text: str, source: str) -> str:
    wanted = f"{source}: found no SwitchName, BlockName or RingName"
    if re.search(r"^ {0,8}(?:- {1,8})?(?:topology|cluster_default):", text, re.MULTILINE):
        return f"{wanted}; it looks like topology.yaml: import it as slurm-yaml"
    if not text.strip():
        return f"{wanted}: the text is empty"
    return f"{wanted}; give Slurm's topology.conf"
