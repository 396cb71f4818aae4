"""Hypothesis strategies for texts as they reach a reader in real life: cut, doubled, moved, overwritten.

`damaged` works on characters, for prints and XML; `damaged_lines` on lines and words, for files with indentation.
`told_machine` and `told_fabric` check what any reader of `topology.discovery` must hold to, whatever it was given.
"""

import json
from collections.abc import Callable, Sequence

from hypothesis import strategies as st

from gantree.model.errors import GantreeError
from gantree.topology.discovery.fabrics import FabricReading
from gantree.topology.discovery.gpus import GpuTopology, machine_from
from gantree.topology.hardware.catalog import SELF, is_link_class

MOST_WOUNDS = 4
LONGEST_PIECE = 200


@st.composite
def damaged(draw: st.DrawFn, texts: Sequence[str], words: st.SearchStrategy[str]) -> str:
    """One of the texts, with pieces cut, doubled, moved or overwritten by a word; sometimes its lines in any order."""
    text = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, MOST_WOUNDS))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + LONGEST_PIECE)))
        piece, rest = text[start:end], text[:start] + text[end:]
        to = draw(st.integers(0, len(rest)))
        word = draw(words)
        wounds = {
            "cut": rest,
            "doubled": text[:end] + piece + text[end:],
            "moved": rest[:to] + piece + rest[to:],
            "overwritten": text[:start] + word + text[end:],
        }
        text = wounds[draw(st.sampled_from(sorted(wounds)))]
    return "\n".join(draw(st.permutations(text.split("\n")))) if draw(st.booleans()) else text


@st.composite
def damaged_lines(draw: st.DrawFn, texts: Sequence[str], words: st.SearchStrategy[str]) -> str:
    """One of the texts, with lines cut, doubled, moved or indented less, or a word of one replaced."""
    lines = draw(st.sampled_from(texts)).split("\n")
    for _ in range(draw(st.integers(1, MOST_WOUNDS))):
        at, to = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
        wound = draw(st.sampled_from(["cut", "doubled", "moved", "indented", "replaced"]))
        if wound == "cut" and len(lines) > 1:
            del lines[at]
        elif wound == "doubled":
            lines.insert(to, lines[at])
        elif wound == "moved":
            lines.insert(to, lines.pop(at))
        elif wound == "indented":
            lines[at] = lines[at][2:]
        else:
            pieces = lines[at].split(" ")
            pieces[draw(st.integers(0, len(pieces) - 1))] = draw(words)
            lines[at] = " ".join(pieces)
    return "\n".join(lines)


def told_machine(parse: Callable[[str, str], GpuTopology], text: str) -> GpuTopology | None:
    """Read a text. AssertionError for a reading that contradicts itself, or an error that does not name its source.

    Returns None where the text was refused; any error but a GantreeError comes through.
    """
    try:
        found = parse(text, "fuzz")
    except GantreeError as error:
        assert "fuzz" in str(error), error
        return None
    json.dumps(found.as_json())
    assert machine_from(found, "m").gpus == found.gpus
    links = {link for row in found.links for link in row}
    assert all(link is None or link == SELF or is_link_class(link) for link in links)
    assert all(len(row) == len(found.nics) for row in found.nic_links)
    return found


def told_fabric(parse: Callable[[str, str], FabricReading], text: str) -> FabricReading | None:
    """Read a text, as `told_machine` does, for a fabric."""
    try:
        found = parse(text, "fuzz")
    except GantreeError as error:
        assert "fuzz" in str(error), error
        return None
    json.dumps(found.as_json())
    assert len({node.name for node in found.nodes}) == len(found.nodes)
    assert all(len(node.at) == len(found.tiers) for node in found.nodes)
    return found
