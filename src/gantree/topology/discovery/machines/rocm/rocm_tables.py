"""Output of `rocm-smi --showtopo` or `amd-smi topology` as cells by device; `rocm_smi` interprets them.

Both print square tables, each under a title and a header line of devices: GPU0, GPU1... in rocm-smi, bus ids in
amd-smi. The tables come in any order and some may be missing; around them are rules, warnings of sleeping GPUs,
prompts and legends. Tables of other things (bandwidth, atomics) are passed over. With --json, rocm-smi writes a
sentence per pair ("(Topology) Weight between DRM devices 0 and 1"), upper triangle only, and amd-smi a list of GPUs
with their links; older amd-smi a mapping of other GPUs per question.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gantree.model.errors import BadInput
from gantree.text.records import Record, Report, json_records
from gantree.text.words import plural, shortened
from gantree.topology.discovery.machines.devices.nvidia_names import sysfs_bus_id
from gantree.topology.discovery.machines.input_errors.wrong_format import named_instead

WEIGHT, HOPS, TYPE, ACCESS = "weight", "hops", "link type", "access"
MAX_GPUS = 512
_WANTED = "give the print of `rocm-smi --showtopo` or `amd-smi topology`, with or without --json"
_TITLES = (
    (WEIGHT, re.compile(r"weight between two gpus|^weight table", re.IGNORECASE)),
    (HOPS, re.compile(r"hops between two gpus|^hops table", re.IGNORECASE)),
    (TYPE, re.compile(r"link type between two gpus|^link type table", re.IGNORECASE)),
    (ACCESS, re.compile(r"(link accessibility|access) between two gpus|^access table", re.IGNORECASE)),
)  # fmt: skip
_OTHER_TITLE = re.compile(r"^={2,}|\btable:?\s*$", re.IGNORECASE)
_RULES = " =*-\t"
_DEVICE = re.compile(r"GPU[0-9]{1,4}|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
_NUMA = re.compile(
    r"GPU\[([0-9]{1,4})\]\s*:\s*(?:\(Topology\)\s*)?Numa (Node|Affinity)\s*:\s*(-?[0-9]{1,10})\b",
    re.IGNORECASE,
)
_PAIR = re.compile(
    r"\(Topology\) (Weight|Hops|Link type|Link accessibility) between DRM devices ([0-9]{1,4}) and ([0-9]{1,4})",
    re.IGNORECASE,
)
_KIND_OF_WORD = {"weight": WEIGHT, "hops": HOPS, "link type": TYPE, "link accessibility": ACCESS}
_KIND_OF_FIELD = {"weight": WEIGHT, "num_hops": HOPS, "link_type": TYPE, "link_status": ACCESS}
_KIND_OF_OLD_FIELD = {
    "weight": WEIGHT,
    "hops": HOPS,
    "link_type": TYPE,
    "link_accessibility": ACCESS,
}
_NO_NODE = frozenset({-1, 0xFFFF, 0xFFFFFFFF})
"""How "no NUMA node" is printed: as -1, or as -1 in an unsigned field."""


@dataclass(slots=True)
class Tables:
    """What a print gives. Devices are numbered in the order in which they were printed.

    names are as printed; cells[kind][a, b] is the word in row a, column b with its line (0: not known); numa maps a
    device to its "Numa Node" and "Numa Affinity", None for none.
    """

    names: list[str] = field(default_factory=list)
    bus_ids: dict[int, str] = field(default_factory=dict)
    cells: dict[str, dict[tuple[int, int], tuple[str, int]]] = field(default_factory=dict)
    numa: dict[int, dict[str, int | None]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def read_tables(text: str, report: Report) -> Tables:
    """Read a print. BadInput where it holds no such table; what is wrong in tables goes to the report."""
    is_json = re.match(r"\ufeff?\s*[\[{]", text)
    tables = _json_tables(text, report) if is_json else _text_tables(text, report)
    if not any(tables.cells.values()):
        report.check()
        said = "a header without rows" if tables.names else named_instead(text)
        raise BadInput(f"{report.source}: no topology of AMD GPUs; {said}; {_WANTED}")
    return tables


def _check_count(gpus: int, report: Report) -> None:
    if gpus > MAX_GPUS:
        raise BadInput(f"{report.source}: {gpus} GPUs; at most {MAX_GPUS}")


@dataclass(slots=True)
class _Grid:
    """One table of the text: the lines of its title and of its end, its columns, its rows as name, line and words."""

    kind: str
    line: int
    last_line: int = 0
    columns: list[str] = field(default_factory=list)
    rows: list[tuple[str, int, list[str]]] = field(default_factory=list)


def _text_tables(text: str, report: Report) -> Tables:
    lines = [line.rstrip("\r") for line in text.replace("\x00", "").split("\n")]
    grids = [grid for grid in _grids(lines) if grid.columns]
    tables = Tables()
    if not grids:
        return tables
    tables.names = _device_order(grids[0].columns)
    _check_count(len(tables.names), report)
    number = {name: device for device, name in enumerate(tables.names)}
    tables.bus_ids = {
        device: bus_id for name, device in number.items() if (bus_id := sysfs_bus_id(name))
    }
    unended_line = len(lines) if lines[-1] else 0
    line_of_kind: dict[str, int] = {}
    for grid in grids:
        first = line_of_kind.setdefault(grid.kind, grid.line)
        if first != grid.line:
            report.add(
                grid.line, f"{grid.kind} table", f"a second one (the first: line {first})", "one"
            )
        elif sorted(grid.columns) != sorted(tables.names):
            found, allowed = (
                shortened(", ".join(names)) for names in (grid.columns, grids[0].columns)
            )
            report.add(grid.line, f"{grid.kind} table", found, f"the same GPUs as above: {allowed}")
        else:
            tables.cells[grid.kind] = _cells(grid, number, unended_line, tables, report)
    _numa_lines(lines, number, tables, report)
    return tables


def _device_order(columns: Sequence[str]) -> list[str]:
    """Return devices by number, where they have one (GPU4, GPU5), else as printed."""
    if all(name.startswith("GPU") for name in columns):
        return sorted(set(columns), key=lambda name: int(name[3:]))
    return list(dict.fromkeys(columns))


def _grids(lines: Sequence[str]) -> Iterator[_Grid]:
    """Yield the tables that are requested; a table ends at the next title, or with the first other line."""
    grid: _Grid | None = None
    for number, line in enumerate(lines, start=1):
        plain = line.strip(_RULES)
        kind = next((kind for kind, title in _TITLES if title.search(plain)), None)
        words = line.split()
        if kind or (grid and _OTHER_TITLE.search(line.strip())):
            if grid:
                yield grid
            grid = _Grid(kind, number) if kind else None
        elif grid and words:
            if _take(grid, words, number):
                grid.last_line = number
            else:
                yield grid
                grid = None
    if grid:
        yield grid


def _take(grid: _Grid, words: list[str], number: int) -> bool:
    """Add a line to a table: to its header, as a row, or to the row before it that a terminal broke."""
    devices = [word.upper() if word[:3].upper() == "GPU" else word.lower() for word in words]
    if not grid.rows and all(map(_DEVICE.fullmatch, words)) and len(grid.columns) <= MAX_GPUS:
        grid.columns += devices
        return True
    if not grid.columns:
        return False
    if _DEVICE.fullmatch(words[0]):
        grid.rows.append((devices[0], number, words[1:]))
        return True
    if grid.rows and len(grid.rows[-1][2]) + len(words) <= len(grid.columns):
        grid.rows[-1][2].extend(words)
        return True
    return False


def _cells(
    grid: _Grid, number: Mapping[str, int], unended_line: int, tables: Tables, report: Report
) -> dict[tuple[int, int], tuple[str, int]]:
    """Return the cells of a table by row and column. unended_line is the text's last line if no line end follows it."""
    cells: dict[tuple[int, int], tuple[str, int]] = {}
    line_of_row: dict[str, int] = {}
    for name, line, words in grid.rows:
        wrong = _row_problem(grid, number, line_of_row, name, words)
        if wrong:
            report.add(line, f"{grid.kind}, row {name}", *wrong)
            continue
        line_of_row[name] = line
        short = len(words) < len(grid.columns)
        if short:
            tables.warnings.append(
                f"line {line}: {grid.kind}, row {name} ends after {len(words)} of {len(grid.columns)} cells; the last "
                "is left out"
            )
        # The last word of a cut row, or of a text that ends in it, may be a fragment: "1" of "15".
        fragment = short or (grid.last_line == unended_line and len(line_of_row) == len(grid.rows))
        for column, word in zip(grid.columns, words[:-1] if fragment else words, strict=False):
            cells[number[name], number[column]] = (word.upper(), line)
    missing = [name for name in grid.columns if name not in line_of_row]
    if missing:
        tables.warnings.append(
            f"{grid.kind} table: no row for {shortened(', '.join(missing), 200)}"
        )
    return cells


def _row_problem(
    grid: _Grid,
    number: Mapping[str, int],
    line_of_row: Mapping[str, int],
    name: str,
    words: Sequence[str],
) -> tuple[str, str] | None:
    """Return what is wrong with a row, and what is allowed; None where nothing is."""
    if name not in number:
        return "a row without a column", "rows of columns"
    if name in line_of_row:
        return f"a second one (the first: line {line_of_row[name]})", "one"
    if len(words) > len(grid.columns):
        return f"{plural(len(words), 'cell')}", f"{len(grid.columns)}, one per column"
    return None


def _numa_lines(
    lines: Sequence[str], number: Mapping[str, int], tables: Tables, report: Report
) -> None:
    for line_number, line in enumerate(lines, start=1):
        match = _NUMA.search(line) if "Numa" in line else None
        device = number.get(f"GPU{int(match[1])}") if match else None
        if match is None or device is None:
            continue
        _add_node(tables, device, match[2], int(match[3]), report, line_number)


def _add_node(
    tables: Tables, device: int, word: str, value: int, report: Report, line: int
) -> None:
    node = None if value in _NO_NODE else value
    given = tables.numa.setdefault(device, {})
    name = word.lower()
    if name in given and given[name] != node:
        where = f"{tables.names[device]}, Numa {word}"
        report.add(line, where, f"{value}", f"{given[name]}, as before")
    given[name] = node


def _json_tables(text: str, report: Report) -> Tables:
    records = list(json_records(text, report))
    if any(record.has("gpu") for record in records):
        return _amd_json([record for record in records if record.has("gpu")], report)
    return _rocm_json(records[0]) if len(records) == 1 else Tables()


def _rocm_json(document: Record) -> Tables:
    """Read {"system": {"(Topology) Weight between DRM devices 0 and 1": "15"}, "card0": {...}}."""
    tables, report = Tables(), document.report
    system = document.record("system")
    sentences = system.keys() if system else ()
    found = [
        (pair, system.text(sentence, ""))
        for sentence in sentences
        if system and (pair := _PAIR.fullmatch(sentence))
    ]
    cards = {
        int(match[1]): card
        for key in document.table
        if (match := re.fullmatch(r"card([0-9]{1,4})", key)) and (card := document.record(key))
    }
    devices = sorted({int(pair[end]) for pair, _ in found for end in (2, 3)} | cards.keys())
    tables.names = [f"GPU{device}" for device in devices]
    _check_count(len(tables.names), report)
    number = {device: place for place, device in enumerate(devices)}
    for pair, word in found:
        cells = tables.cells.setdefault(_KIND_OF_WORD[pair[1].lower()], {})
        cells[number[int(pair[2])], number[int(pair[3])]] = (word.upper(), 0)
    for device, record in cards.items():
        for word in ("Node", "Affinity"):
            value = record.text(f"(Topology) Numa {word}", "")
            if re.fullmatch(r"-?[0-9]{1,10}", value):
                _add_node(tables, number[device], word, int(value), report, 0)
    return tables


def _amd_json(gpus: Sequence[Record], report: Report) -> Tables:
    """Read [{"gpu": 0, "bdf": ..., "links": [{"gpu": 1, "weight": 15, ...}]}], or its older form."""
    tables = Tables()
    _check_count(len(gpus), report)
    number: dict[int, int] = {}
    for record in sorted(gpus, key=lambda record: record.integer("gpu")):
        device = record.integer("gpu")
        if device in number:
            record.problem("gpu", f"`{device}` twice", "each GPU once")
            continue
        number[device] = len(tables.names)
        tables.names.append(f"GPU{device}")
        bus_id = sysfs_bus_id(record.text("bdf", "")[:40])
        if bus_id:
            tables.bus_ids[number[device]] = bus_id
    for record in gpus:
        row = number[record.integer("gpu")]
        for device, kind, word in (*_new_links(record), *_old_links(record)):
            if device in number:
                cells = tables.cells.setdefault(kind, {})
                cells[row, number[device]] = (word.upper(), 0)
    return tables


def _new_links(record: Record) -> Iterator[tuple[int, str, str]]:
    links = record.records("links") if record.has("links") else []
    for link in links:
        for name, kind in _KIND_OF_FIELD.items():
            if link.has(name):
                yield link.integer("gpu"), kind, link.text(name)


def _old_links(record: Record) -> Iterator[tuple[int, str, str]]:
    for name, kind in _KIND_OF_OLD_FIELD.items():
        for key, word in record.texts_by_key(name).items():
            match = re.fullmatch(r"gpu_([0-9]{1,4})", key)
            if match:
                yield int(match[1]), kind, word
