"""Published NCCL measurements beside the prices that gantree makes: the table of docs/cost.md.

    python benchmarks/calibration.py [--logs DIRECTORY] [--docs docs/cost.md]

`measured.csv` holds every busbw figure that we know with its source; SITES says on what machines it was taken, and what
of that had to be assumed. Rows of kind "held out" were found after the constants were chosen; "expected" is what
NVIDIA's staff said, not a measurement. With --logs a directory of nccl-tests logs is compared row by row and summed up
by log. With --docs the part between the marks in that page is written anew. Figures over gloo have no place here.
"""

import argparse
import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median

from gantree.model.cluster import Cluster, Link, Machine, Nic, Node
from gantree.topology.cost.cost import GIB, Price, Pricer, Ranks
from gantree.topology.discovery.logs.nccl_tests import parse
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.catalog import machine

HERE = Path(__file__).parent
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
MIB = 1 << 20
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


@dataclass(frozen=True)
class Site:
    """Where figures were taken: nodes of a machine, per NVLink domain where that spans nodes; what was assumed."""

    machine: Machine
    nodes: int
    nodes_in_nvlink: int = 0
    assumed: str = ""
    why: str = ""

    def pricer(self) -> Pricer:
        """A pricer on these nodes under one switch."""
        return _pricer(self)

    def fabric(self) -> Fabric:
        """Its nodes, in their NVLink domains or under one leaf."""
        wide = bool(self.nodes_in_nvlink)
        tiers = ("nvlink", "node") if wide else ("leaf", "node")
        places = [(f"d{n // self.nodes_in_nvlink if wide else 0}",) for n in range(self.nodes)]
        nodes = tuple(Node(f"n{n}", "m", at) for n, at in enumerate(places))
        return Fabric.build(Cluster("site", tiers, {"m": self.machine}, nodes))

    def ranks(self, gpus: int) -> list[tuple[int, int]]:
        """The first so many GPUs, node by node."""
        each = min(self.machine.gpus, gpus)
        return [(rank // each, rank % each) for rank in range(gpus)]


@cache
def _pricer(site: Site) -> Pricer:
    return Pricer(site.fabric())


def with_nics(name: str, GBps: float, count: int = 8, path: str = "PIX") -> Machine:
    """A machine of the catalogue with so many NICs, shared out over its GPUs."""
    model = machine(name)
    each = range(model.gpus)

    def near(nic: int) -> tuple[int, ...]:
        return tuple(
            gpu
            for gpu in each
            if gpu * count // model.gpus == nic or nic * model.gpus // count == gpu
        )

    nics = tuple(Nic(f"nic{n}", near(n), n, GBps, path) for n in range(count))
    return replace(model, nics=nics)


def _mi300x() -> Machine:
    links = tuple(tuple("X" if a == b else "XGMI1" for b in range(8)) for a in range(8))
    return Machine("mi300x", 8, "MI300X-192GB", links)


_TCPX = "the TCP-based transport (GPUDirect-TCPXO) has a fixed cost that NCCL's InfiniBand figures do not"
_EFA = "EFA's steps take several times as long as the InfiniBand steps of NCCL's model; a site's `latency_us` says so"
_RACKS_20 = (
    "a fixed 4.4 ms at 1,440 ranks, ten times what NCCL's latency model says; the slope is right"
)
_GB200 = machine("gb200-nvl72-tray")
_GB300 = replace(_GB200, gpu="GB300-288GB")
_HDR = replace(with_nics("dgx-a100", 25.0, 1), gpu="A800-80GB")
_HDR_PIX = replace(_HDR, nics=(replace(_HDR.nics[0], near=tuple(range(8))),))
_HDR_CPU = replace(_HDR_PIX, nics=(replace(_HDR_PIX.nics[0], path="NODE"),))

SITES = {
    "a100": Site(
        machine("dgx-a100-40"),
        1,
        why="NCCL sends one peer over fewer channels than a ring has",
    ),
    "h100": Site(machine("dgx-h100"), 1),
    "h200": Site(machine("dgx-h200"), 1),
    "b200": Site(machine("dgx-b200"), 1, assumed="16 GiB where no size is stated"),
    "mi300x": Site(_mi300x(), 1),
    "p6-b200-4": Site(
        with_nics("dgx-b200", 50.0),
        4,
        why=_EFA + "; the 32 KiB row is 6.3 ms, longer than 1 MiB took: the first size of a run",
    ),
    "oci-h100-2": Site(with_nics("dgx-h100", 50.0), 2, assumed="two 200 Gb/s NICs a GPU as one"),
    "sharp-h100-8": Site(
        with_nics("dgx-h100", 50.0),
        12,
        assumed="64 GPUs as stated; busbw / algbw in the log's rows is that of 96, and so the log is priced",
    ),
    "azure-h100-8": Site(with_nics("dgx-h100", 50.0), 8),
    "p5en": Site(
        with_nics("dgx-h200", 25.0, 16), 8, assumed="8 nodes (their number is not stated)"
    ),
    "a3-mega-2": Site(with_nics("dgx-h100", 25.0), 2, why=_TCPX),
    "gcp-flex-2": Site(
        with_nics("dgx-h200", 50.0), 2, assumed="H200 with 8 x 400 Gb/s (machine not stated)"
    ),
    "gb200-1-rack": Site(_GB200, 18, 18),
    "gb200-2-racks": Site(
        _GB200, 36, 18, assumed="144 GPUs as named; busbw / algbw in the log's rows is that of 128"
    ),
    "gb200-20-racks": Site(_GB200, 360, 18, why=_RACKS_20),
    "gb300-1-rack": Site(_GB300, 18, 18),
    "gb300-ib": Site(_GB300, 18, assumed="18 trays, NVLink used inside a tray only"),
    "a800-hdr-cpu": Site(_HDR_CPU, 12, assumed="1 GiB; one HDR NIC on the CPU"),
    "a800-hdr-pix": Site(_HDR_PIX, 12, assumed="1 GiB; one HDR NIC on a GPU's switch"),
}

LOGS = {
    "a100-8gpu-1node": "a100",
    "a3-mega-2node": "a3-mega-2",
    "gb200-allreduce-single-rack": "gb200-1-rack",
    "gb200-allreduce-2-racks": "gb200-2-racks",
    "gb200-allreduce-20-racks": "gb200-20-racks",
    "gcp-2node-16gpu": "gcp-flex-2",
    "h100-2node-16gpu": "oci-h100-2",
    "h100-64gpu-8node-allreduce-sharp": "sharp-h100-8",
}
"""Sites of logs, by how their file names begin."""
NAMES = {"alltoall": "all_to_all", "sendrecv": "send_recv"}
"""nccl-tests' names of collectives where they are not ours."""


@dataclass(frozen=True)
class Row:
    """A measurement and its price."""

    site: str
    kind: str
    gpus: int
    collective: str
    size_bytes: int
    measured_GBps: float
    price: Price
    source: str

    @property
    def ratio(self) -> float:
        """Modelled over measured."""
        return self.price.busbw_GBps / self.measured_GBps

    @property
    def aim(self) -> str:
        """How near it should be: by size, and by whether a node is left; "" where nothing was aimed at."""
        if self.size_bytes < MIB:
            return "2x"
        if self.size_bytes < 512 * MIB:
            return ""
        return "10 %" if SITES[self.site].nodes == 1 else "25 %"

    @property
    def met(self) -> bool:
        """Whether the price is as near as was aimed at."""
        if self.aim == "2x":
            return 0.5 <= self.ratio <= 2
        within = {"10 %": 0.10, "25 %": 0.25, "": float("inf")}[self.aim]
        return abs(self.ratio - 1) <= within


def rows() -> Iterator[Row]:
    """Every row of measured.csv, priced."""
    with (HERE / "measured.csv").open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            size = _bytes(line["bytes"])
            gpus, site = int(line["gpus"]), SITES[line["site"]]
            price = site.pricer().price(
                line["collective"], size, site.ranks(gpus), line["algorithm"] or None
            )
            yield Row(
                line["site"], line["kind"], gpus, line["collective"], size,
                float(line["busbw_GBps"]), price, line["source"],
            )  # fmt: skip


def rows_of_log(path: Path) -> Iterator[Row]:
    """Every row of an nccl-tests log, priced; rows of 0 bytes or too few for two decimals left out."""
    name = next(site for start, site in LOGS.items() if path.name.startswith(start))
    site = SITES[name]
    algorithm = "collnet" if "sharp" in path.name else None
    for run in parse(path.read_text(encoding="utf-8"), path.name).runs:
        collective = NAMES.get(run.collective or "", run.collective or "")
        gpus = run.ranks or site.nodes * site.machine.gpus
        for row in run.rows:
            if row.busbw_GBps < 0.05:
                continue
            price = site.pricer().price(collective, row.size_bytes, site.ranks(gpus), algorithm)
            yield Row(
                name, "log", gpus, collective, row.size_bytes, row.busbw_GBps, price, path.name
            )


def orderings() -> list[tuple[str, bool]]:
    """What must come before what, and whether it does."""
    priced = {
        (row.site, row.size_bytes): row.price.busbw_GBps for row in rows() if row.kind == "measured"
    }
    sizes = (512 * MIB, GIB, 8 * GIB)
    racks = all(
        priced["gb200-1-rack", s] > priced["gb200-2-racks", s] > priced["gb200-20-racks", s]
        for s in sizes
    )
    leaving = all(
        priced["b200", s] > priced["p6-b200-4", s]
        for s in (32 << 10, MIB, 16 * MIB, 128 * MIB, 512 * MIB, GIB, 4 * GIB, 16 * GIB)
    )
    fast, slow = ring_orders()
    spread, packed = host_memory()
    return [
        ("busbw of 1 rack > 2 racks > 20 racks of GB200, at 512 MiB, 1 GiB, 8 GiB", racks),
        ("busbw inside a B200 node > across 4, at every size", leaving),
        (f"ring in topology order before shuffled ({fast * 1e3:.1f} ms, {slow * 1e3:.1f} ms)", fast < slow),
        (f"P2P off: 4 GPUs over two sockets ({spread:.0f} GB/s) before 4 in one ({packed:.0f}), as measured (35, 24)",
         spread > packed),
    ]  # fmt: skip


def ring_orders() -> tuple[float, float]:
    """Seconds of a 1 GiB ring all-reduce over 8 nodes of two leaves with thin up-links, in order and interleaved."""
    nodes = tuple(Node(f"n{n}", "m", (f"l{n // 4}",)) for n in range(8))
    links = {"leaf": Link(50.0, 6.0, uplink_GBps=200.0)}
    site = Cluster("two-leaves", ("leaf", "node"), {"m": machine("dgx-h100")}, nodes, links)
    pricer = Pricer(Fabric.build(site))

    def seconds(order: Sequence[int]) -> float:
        ranks: Ranks = [(node, gpu) for node in order for gpu in range(8)]
        return pricer.price("all_reduce", GIB, ranks, "ring").seconds

    return seconds(range(8)), seconds([0, 4, 1, 5, 2, 6, 3, 7])


def host_memory() -> tuple[float, float]:
    """busbw of 4 GPUs without P2P: two on each of two sockets, and four on one."""
    links = tuple(
        tuple("X" if a == b else "NODE" if a // 4 == b // 4 else "SYS" for b in range(8))
        for a in range(8)
    )
    peer = tuple(tuple(a == b for b in range(8)) for a in range(8))
    model = Machine("p2p-off", 8, "RTX5090-32GB", links, (0,) * 4 + (1,) * 4, peer=peer)
    pricer = Site(model, 1).pricer()

    def busbw(gpus: Sequence[int]) -> float:
        return pricer.price("all_reduce", 8 * GIB, [(0, gpu) for gpu in gpus]).busbw_GBps

    return busbw([0, 1, 4, 5]), busbw([0, 1, 2, 3])


def _bytes(word: str) -> int:
    found = re.fullmatch(r"(\d+)([KMG]?)", word)
    assert found, f"{word} is no size"
    return int(found[1]) * UNITS[found[2]]


def _size(size: int) -> str:
    unit = next(unit for unit in "GMK" if size >= UNITS[unit])
    return f"{size // UNITS[unit]} {unit}iB"


def table(priced: Sequence[Row]) -> Iterator[str]:
    """Rows as Markdown; a row that misses its aim is followed by the reason below the table."""
    yield ("| site | GPUs | collective | size | measured busbw GB/s | modelled busbw GB/s | modelled / measured | "
           "modelled as | aim | | source |")  # fmt: skip
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for row in priced:
        verdict = ("ok" if row.met else "**MISS**") if row.aim else ""
        kind = "" if row.kind == "measured" else f" ({row.kind})"
        yield (
            f"| {row.site} | {row.gpus} | {row.collective} | {_size(row.size_bytes)} | {row.measured_GBps:g}{kind} | "
            f"{row.price.busbw_GBps:.4g} | {row.ratio:.2f} | {row.price.algorithm}, {row.price.limit} | {row.aim} | "
            f"{verdict} | {row.source} |"
        )


def log_table(directory: Path) -> Iterator[str]:
    """One line a log and zone of sizes: how many rows are as near as was aimed at, and the worst."""
    yield "| log | aim | rows | as near as aimed at | median modelled / measured | worst |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for path in sorted(directory.glob("*.txt")):
        priced = list(rows_of_log(path))
        for aim in ("2x", "", "10 %", "25 %"):
            part = [row for row in priced if row.aim == aim]
            if part:
                met = f"{sum(row.met for row in part)}" if aim else "-"
                worst = max(part, key=lambda row: max(row.ratio, 1 / row.ratio))
                yield (
                    f"| {path.name} | {aim or '1 MiB to 512 MiB, none'} | {len(part)} | {met} | "
                    f"{median(row.ratio for row in part):.2f} | {worst.ratio:.2f} at {_size(worst.size_bytes)} |"
                )


def report(logs: Path | None) -> str:
    """The whole page part."""
    priced = list(rows())
    aimed = [row for row in priced if row.aim]
    lines = [f"{sum(row.met for row in aimed)} of {len(aimed)} rows with an aim meet it.", ""]
    lines += [*table(priced), ""]
    missed = dict.fromkeys(row.site for row in aimed if not row.met)
    lines += ["Why rows miss:", "", *(f"- {site}: {SITES[site].why}." for site in missed), ""]
    lines += ["Assumed, because the source does not say:", ""]
    lines += [f"- {name}: {site.assumed}." for name, site in SITES.items() if site.assumed]
    lines += ["", "Orders that must hold:", ""]
    lines += [
        f"- {'holds' if holds else '**does not hold**'}: {what}." for what, holds in orderings()
    ]
    if logs is not None and logs.is_dir():
        lines += ["", "Whole logs of nccl-tests, row by row:", "", *log_table(logs)]
    return "\n".join(lines)


def main() -> None:
    """Print the report, and write it into a page where told to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--logs", type=Path, default=HERE.parents[1] / "shared/data/topology/nccl-tests"
    )
    parser.add_argument("--docs", type=Path, help="a page to write the part between the marks of")
    arguments = parser.parse_args()
    text = report(arguments.logs)
    print(text)
    if arguments.docs:
        page = arguments.docs.read_text(encoding="utf-8")
        before, _, rest = page.partition(BEGIN)
        after = rest.partition(END)[2]
        arguments.docs.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
