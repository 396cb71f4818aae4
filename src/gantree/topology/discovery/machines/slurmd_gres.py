"""GPUs of a node from slurmd: the lines of `slurmd -G` or of its log, as found by NVML.

Two forms exist: "Gres Name=gpu ... Cores=0-63 ... Links=-1,4,0,0" and "GRES[gpu] ... Cores(128):0-63  Links:...". In a
links vector each number counts the NVLinks that lead straight to a GPU; -1 is the GPU itself, and so its number:
NVML's, in the order of PCI addresses. The number in /dev/nvidiaN ("Index=") may differ.

0 is no proof that there is no NVLink: links that end in NVSwitches lead to no GPU and are not counted. So 0 is "not
given", and on an NVSwitch machine nothing is. Cores are numbered as Slurm numbers them, socket by socket, hyperthreads
not counted: they show which GPUs share a socket, but not its CPUs.

A GPU cut by MIG has a line for each instance, with vectors that count instances; only its cores are read.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gantree.model.errors import BadInput, Problem
from gantree.text.words import plural, shortened
from gantree.topology.discovery.gpus import CpuSet, GpuTopology
from gantree.topology.discovery.machines.devices.cpu_lists import ranges
from gantree.topology.discovery.machines.input_errors.refusal import refuse
from gantree.topology.discovery.machines.input_errors.wrong_format import named_instead
from gantree.topology.hardware.catalog import SELF

MAX_CHARS = 8 << 20
MAX_GPUS = 512
_SELF_LINK = -1
_WANTED = (
    "give what `slurmd -G` prints on a node with AutoDetect=nvml in gres.conf and DebugFlags=Gres"
)
_LINE = re.compile(r"Gres Name=gpu\b|GRES\[gpu\]")
_WORD = re.compile(r"\b(Type|Index|File|Cores|Links|Flags|UniqueId)(?:\([0-9]{1,9}\))?[=:](\S*)")
_MINOR = re.compile(r"/dev/nvidia([0-9]{1,4})(?:,|$)")
_LINKS = re.compile(r"-?[0-9]{1,3}(?:,-?[0-9]{1,3})*,?")
_COUNTED = re.compile(r"\b([0-9]{1,4}) GPU system device\(s\) detected")
_NONE = frozenset({"", "(null)", "N/A"})
_ALLOWED_LINKS = "-1 once, for the GPU itself, and numbers of NVLinks"


@dataclass(frozen=True, slots=True)
class _Row:
    """One line: the device's minor number, its links as written and as numbers, its cores."""

    line: int
    minor: int | None
    links: tuple[int, ...]
    cores: CpuSet | None
    is_mig: bool


@dataclass(slots=True)
class _Node:
    """What the lines give, by GPU number."""

    gpus: int
    row_of: dict[int, _Row] = field(default_factory=dict)
    mig: dict[int, list[_Row]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def parse(text: str, source: str) -> GpuTopology:
    """Read the lines of one node. `source` names the file in errors.

    BadInput: no such lines, lines without links, or of other GPUs than NVIDIA's. BadFields, with lines: vectors that
    contradict each other or are no vectors. Pairs without a straight NVLink stay unknown; cpu_sets are Slurm's cores.
    """
    if len(text) > MAX_CHARS:
        raise BadInput(f"{source}: a larger text than {MAX_CHARS >> 20} MiB")
    problems: list[Problem] = []
    rows = _rows(text, source, problems)
    refuse(problems)
    node = _node(rows, source, problems)
    problems += _mirror_problems(node, source)
    refuse(problems)
    given = _COUNTED.search(text)
    if given and int(given[1]) != node.gpus:
        node.warnings.append(
            f"slurmd detected {plural(int(given[1]), 'GPU')}, and {node.gpus} are described"
        )
    return _topology(node)


def _topology(node: _Node) -> GpuTopology:
    numbers = range(node.gpus)
    links = tuple(tuple(_link(node, a, b) for b in numbers) for a in numbers)
    straight = any(link not in (None, SELF) for row in links for link in row)
    warnings = list(node.warnings)
    missing = [f"GPU{number}" for number in numbers if number not in node.row_of | node.mig]
    if missing:
        warnings.append(f"no line for {', '.join(missing)}")
    if node.gpus > 1 and not straight:
        warnings.append("no straight NVLinks; those over NVSwitches do not show here")
    cores = tuple(_cores(node, number) for number in numbers)
    return GpuTopology(
        links=links,
        nic_links=((),) * node.gpus,
        numa=(None,) * node.gpus,
        cpu_sets=cores,
        inferred=tuple(_inferred(node, told_cores=any(cores))),
        warnings=tuple(warnings),
    )


def _rows(text: str, source: str, problems: list[Problem]) -> list[_Row]:
    """Read the lines of GPUs; where a log has both forms, those of the final list (the first form)."""
    lines = [
        (number, line, match[0])
        for number, line in enumerate(text.splitlines(), start=1)
        if (match := _LINE.search(line))
    ]
    if not lines:
        raise BadInput(f"{source}: no lines of `slurmd -G`; {named_instead(text)}; {_WANTED}")
    form = "Gres Name=gpu" if any(form == "Gres Name=gpu" for *_, form in lines) else "GRES[gpu]"
    last_line = text.count("\n") + 1
    rows: list[_Row] = []
    for number, line, its_form in lines:
        if its_form == form:
            rows += _row(line, number, number >= last_line, source, problems)
    if not rows and not problems:
        raise BadInput(f"{source}: the lines of GPUs have no Links; {_WANTED}")
    return rows


def _row(
    line: str, number: int, may_be_cut: bool, source: str, problems: list[Problem]
) -> Iterator[_Row]:
    """Yield the row of a line, none where it has no links."""
    words = dict(_WORD.findall(line[: 1 << 16]))
    flags, file = words.get("Flags", ""), words.get("File", "")
    if "ENV_RSMI" in flags or "ENV_ONEAPI" in flags or file.startswith("/dev/dri"):
        given = "GPUs that are not NVIDIA's; for AMD's give the print of `rocm-smi --showtopo`"
        raise BadInput(f"{source}:{number}: {given}")
    written = words.get("Links", "")
    if written in _NONE:
        return
    if may_be_cut and line.rstrip().endswith(written):
        written = written.rpartition(",")[0]  # the last number may be a fragment
    if not _LINKS.fullmatch(written):
        found = repr(shortened(written))
        problems.append(Problem(source, number, "Links", found, "numbers such as -1,4,0,0"))
        return
    links = tuple(map(int, written.strip(",").split(",")))
    cores = words.get("Cores", "")
    if cores not in _NONE and ranges(cores) is None:
        found = repr(shortened(cores))
        problems.append(Problem(source, number, "Cores", found, "a list such as 0-31,64-95"))
    if len(links) > MAX_GPUS or min(links) < _SELF_LINK:
        problems.append(Problem(source, number, "Links", repr(shortened(written)), _ALLOWED_LINKS))
        return
    minor = _MINOR.search(file)
    is_mig = "nvidia-caps" in file or words.get("UniqueId", "").startswith("MIG-")
    yield _Row(number, int(minor[1]) if minor else None, links, ranges(cores), is_mig)


def _node(rows: Sequence[_Row], source: str, problems: list[Problem]) -> _Node:
    """Number the GPUs by the place of -1 in their vectors."""
    whole = [row for row in rows if not row.is_mig]
    node = _Node(max((len(row.links) for row in whole), default=0))
    for row in whole:
        if row.links.count(_SELF_LINK) > 1 or (
            _SELF_LINK not in row.links and len(row.links) == node.gpus
        ):
            problems.append(_bad_vector(row, source, _ALLOWED_LINKS))
        elif len(row.links) < node.gpus and row is not rows[-1]:
            problems.append(_bad_vector(row, source, f"{node.gpus} numbers, as other lines have"))
        elif _SELF_LINK not in row.links:
            node.warnings.append(f"line {row.line} is cut before the GPU's own place; not read")
        else:
            _place(node, row, row.links.index(_SELF_LINK), source, problems)
    _place_mig(node, [row for row in rows if row.is_mig])
    return node


def _place(node: _Node, row: _Row, number: int, source: str, problems: list[Problem]) -> None:
    if len(row.links) < node.gpus:
        node.warnings.append(
            f"line {row.line}: Links ends after {len(row.links)} of {node.gpus} numbers"
        )
    known = node.row_of.setdefault(number, row)
    if (known.links, known.minor, known.cores) != (row.links, row.minor, row.cores):
        problems.append(_bad_vector(row, source, f"GPU{number} once, as in line {known.line}"))


def _place_mig(node: _Node, rows: Sequence[_Row]) -> None:
    """Give GPUs that are cut by MIG the numbers that are left, in the order of their device files."""
    by_minor: dict[int, list[_Row]] = {}
    for row in rows:
        by_minor.setdefault(-1 if row.minor is None else row.minor, []).append(row)
    left = [number for number in range(node.gpus) if number not in node.row_of]
    left += range(node.gpus, node.gpus + max(0, len(by_minor) - len(left)))
    for number, (_, parts) in zip(left, sorted(by_minor.items()), strict=False):
        node.mig[number] = parts
        node.gpus = max(node.gpus, number + 1)
        node.warnings.append(
            f"GPU{number} is cut by MIG into {plural(len(parts), 'instance')}; no links"
        )


def _bad_vector(row: _Row, source: str, allowed: str) -> Problem:
    found = shortened(",".join(map(str, row.links)))
    return Problem(source, row.line, "Links", found, allowed)


def _mirror_problems(node: _Node, source: str) -> Iterator[Problem]:
    for a, row in node.row_of.items():
        for b, count in enumerate(row.links):
            other = node.row_of.get(b)
            if other is None or b <= a or a >= len(other.links):
                continue
            if other.links[a] != count:
                found = f"{other.links[a]} to GPU{a}"
                allowed = f"{count}, as GPU{a} says in line {row.line}"
                yield Problem(source, other.line, f"GPU{b}, Links", found, allowed)


def _link(node: _Node, a: int, b: int) -> str | None:
    if a == b:
        return SELF
    count = _straight(node.row_of, a, b) or _straight(node.row_of, b, a)
    return f"NV{count}" if count else None


def _straight(row_of: Mapping[int, _Row], a: int, b: int) -> int:
    row = row_of.get(a)
    return row.links[b] if row and b < len(row.links) else 0


def _cores(node: _Node, number: int) -> CpuSet | None:
    rows = [node.row_of[number]] if number in node.row_of else node.mig.get(number, [])
    return next((row.cores for row in rows if row.cores), None)


def _inferred(node: _Node, told_cores: bool) -> Iterator[str]:
    if told_cores:
        yield "CPU sets are Slurm's cores, not the system's CPU numbers"
    minors = {number: row.minor for number, row in sorted(node.row_of.items())}
    if any(minor not in (None, number) for number, minor in minors.items()):
        shown = ", ".join(str(minor) for minor in minors.values())
        yield f"GPUs are numbered as their Links are; /dev/nvidiaN of them in this order: {shown}"
    if node.mig:
        yield "GPUs cut by MIG have the numbers that are left, in the order of their device files"
