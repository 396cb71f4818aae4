"""`topo.csv` of Alibaba's Lingjun 2023 traces: the switches above each host of a three-layer Clos network.

Columns, in any order: `ip` (hashed in the published file), `DSW` (core), `PSW` (aggregation), `ASW` (top of rack), and
`host` in copies that have given hosts short names. A host is called by its `host`, else by its `ip`. Layers become
the tiers core, spine and leaf. Names of ASWs are used again in every PSW, so a leaf is known by its whole path.
"""

import re
from collections.abc import Iterator, Sequence

from gantree.text.records import MAX_PROBLEMS, Report
from gantree.text.words import shortened
from gantree.topology.discovery.fabrics import FabricReading, SeenNode
from gantree.topology.discovery.listings.csv_rows import Row, Sheet, read_sheet
from gantree.topology.discovery.listings.domains_csv import said_of_repeats
from gantree.topology.discovery.listings.slurm_names import ALLOWED_NAMES, is_name

TIER_OF_LAYER = {"dsw": "core", "psw": "spine", "asw": "leaf"}
_HOST, _IP = "host", "ip"
_ADDRESS = re.compile(r"(?:[0-9]{1,3}\.){3}[0-9]{1,3}", re.ASCII)


def parse(text: str, source: str) -> FabricReading:
    """Read a topo.csv. BadInput where there is no table; BadFields, with lines, for what is wrong in it."""
    sheet = read_sheet(text, source)
    report = Report(source)
    place = {title.lower(): number for number, title in enumerate(sheet.columns)}
    layers = [layer for layer in TIER_OF_LAYER if layer in place]
    _check_columns(sheet, place, report)
    report.check()
    named_by = _HOST if _HOST in place else _IP
    nodes = list(_nodes(sheet, place, layers, named_by, report))
    report.check()
    tiers = tuple(TIER_OF_LAYER[layer] for layer in layers)
    inferred = [", ".join(f"{layer.upper()} is {TIER_OF_LAYER[layer]}" for layer in layers)]
    inferred += said_of_repeats(tiers, [node.at for node in nodes])
    if not any(node.address for node in nodes) and _IP in place:
        inferred.append("ip is a hash, not an address: nodes get none")
    missing = [layer.upper() for layer in TIER_OF_LAYER if layer not in place]
    warnings = [f"there is no column {', '.join(missing)}"] if missing else []
    return FabricReading(tiers, tuple(nodes), inferred=tuple(inferred), warnings=tuple(warnings))


def _check_columns(sheet: Sheet, place: dict[str, int], report: Report) -> None:
    wanted = "host or ip, and DSW, PSW, ASW"
    if "asw" not in place:
        report.add(sheet.header_line, "header", "no column ASW", wanted)
    if _HOST not in place and _IP not in place:
        report.add(sheet.header_line, "header", "no column host or ip", wanted)
    for title in sheet.columns:
        if title.lower() not in (*TIER_OF_LAYER, _HOST, _IP):
            report.add(sheet.header_line, f"column {shortened(title)}", "an unknown column", wanted)


def _nodes(
    sheet: Sheet, place: dict[str, int], layers: Sequence[str], named_by: str, report: Report
) -> Iterator[SeenNode]:
    line_of_node: dict[str, int] = {}
    for row in sheet.rows:
        if len(report.problems) == MAX_PROBLEMS:
            return
        name = row.cells[place[named_by]]
        for title in (named_by, *layers):
            _check_cell(row, title, row.cells[place[title]], report)
        first = line_of_node.setdefault(name, row.line)
        if first != row.line:
            found = f"`{shortened(name)}`, which is in line {first}"
            report.add(row.line, named_by, found, "each host once")
        ip = row.cells[place[_IP]] if _IP in place else ""
        yield SeenNode(
            name,
            tuple(row.cells[place[layer]] for layer in layers),
            address=ip if _ADDRESS.fullmatch(ip) else None,
        )


def _check_cell(row: Row, title: str, cell: str, report: Report) -> None:
    if not is_name(cell):
        found = f"`{shortened(cell)}`" if cell else "nothing"
        report.add(row.line, title, found, ALLOWED_NAMES)
