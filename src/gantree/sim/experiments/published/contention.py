"""Jobs that share the up-links of two leaves: gantree's model of contention beside ASTRA-sim."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass

from gantree.model.cluster import Cluster, Link, Node
from gantree.model.jobs import AxisTraffic, Job, Role, Shape, Traffic
from gantree.model.orders import MemberLaunch
from gantree.sim.experiments.experiment import Judgement, Table, Verdict
from gantree.sim.experiments.inputs import INPUTS
from gantree.sim.running.contention import Contention
from gantree.sim.running.link_traffic import LinkTraffic, LinkTraffics
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.catalog import plain

RANKS = 8
SIZE_BYTES = 2**30
NIC_GBps, HOP_US = 50.0, 0.5
AGREES_WITHIN = 0.1
"""The cost model's rings reach nine tenths of their link, as nccl-tests do; those of ASTRA-sim reach all of it."""


@dataclass(frozen=True, slots=True)
class Case:
    """Seconds of one all-reduce by ASTRA-sim (alone, and with all jobs at once) and by gantree."""

    jobs: int
    uplink_GBps: float
    astra_alone_s: float
    astra_s: float
    alone_s: float
    ours_s: float

    @property
    def deviation(self) -> float:
        """Ours over theirs, less one."""
        return self.ours_s / self.astra_s - 1


def cases() -> list[Case]:
    """Every row of inputs/astra-contention.csv, beside gantree's model."""
    with (INPUTS / "astra-contention.csv").open(encoding="utf-8", newline="") as file:
        rows = [{name: float(cell) for name, cell in row.items()} for row in csv.DictReader(file)]
    found = []
    for row in rows:
        jobs, uplink_GBps = int(row["jobs"]), row["uplink_GBps"]
        alone_s, ours_s = seconds(1, uplink_GBps), seconds(jobs, uplink_GBps)
        found.append(Case(jobs, uplink_GBps, row["alone_s"], row["together_s"], alone_s, ours_s))
    return found


def seconds(jobs: int, uplink_GBps: float) -> float:
    """Seconds of an all-reduce of so many equal jobs at once, half of each below either leaf."""
    fabric = Fabric.build(two_leaves(jobs * RANKS // 2, uplink_GBps))
    traffics, contention = LinkTraffics(fabric), Contention(fabric, shared=True)
    found: list[LinkTraffic] = []
    for number in range(jobs):
        traffic = traffics.of(_job(number), _members(number))
        assert traffic is not None, "each job crosses the up-links"
        contention.join(f"j{number}", traffic)
        found.append(traffic)
    list(contention.changed())
    return max(
        sum(flow_s for _, flow_s, _ in traffic.flows)
        * traffic.stretch(contention.share(f"j{number}"))
        for number, traffic in enumerate(found)
    )


def two_leaves(nodes_of_leaf: int, uplink_GBps: float) -> Cluster:
    """Nodes of one GPU and one NIC below two leaves and a spine."""
    machine = plain("one", 1, "H100-80GB", nics=1)
    nodes = tuple(
        Node(f"l{leaf}-n{number}", "one", ("s0", f"l{leaf}"))
        for leaf in range(2)
        for number in range(nodes_of_leaf)
    )
    links = {
        "leaf": Link(NIC_GBps, HOP_US, uplink_GBps=uplink_GBps),
        "spine": Link(NIC_GBps, 2 * HOP_US),
    }
    return Cluster("two-leaves", ("spine", "leaf", "node"), {"one": machine}, nodes, links=links)


def _job(number: int) -> Job:
    axis = AxisTraffic("data", SIZE_BYTES, collective="all_reduce")
    role = Role("worker", RANKS, Shape(gpus=1))
    return Job(f"j{number}", (role,), traffic=Traffic(axes=(axis,), compute_s=0.0))


def _members(number: int) -> tuple[MemberLaunch, ...]:
    half = RANKS // 2
    nodes = [f"l{rank // half}-n{number * half + rank % half}" for rank in range(RANKS)]
    return tuple(
        MemberLaunch("worker", rank, node, rank, rank, 1, (0,), (), ())
        for rank, node in enumerate(nodes)
    )


def table(found: Sequence[Case]) -> Table:
    """All cases."""
    head = (
        "jobs", "up-link GB/s", "ASTRA-sim alone ms", "gantree alone ms", "ASTRA-sim together ms",
        "gantree together ms", "deviation %",
    )  # fmt: skip
    rows = tuple(
        (each.jobs, each.uplink_GBps, 1e3 * each.astra_alone_s, 1e3 * each.alone_s, 1e3 * each.astra_s,
         1e3 * each.ours_s, 100 * each.deviation)
        for each in found
    )  # fmt: skip
    return Table("Ring all-reduces of 1 GiB over shared up-links", head, rows)


def verdict(found: Sequence[Case]) -> Verdict:
    """Whether the two agree in every case."""
    held_up = [abs(each.deviation) for each in found if each.astra_s > 1.01 * each.astra_alone_s]
    worst = max(abs(each.deviation) for each in found)
    return Verdict(
        "Contention: jobs that share up-links take as long as ASTRA-sim says, to 10 %",
        f"to {100 * max(held_up):.2g} % where they hold each other up, {100 * worst:.2g} % elsewhere",
        Judgement.HOLDS if worst <= AGREES_WITHIN else Judgement.MISSED,
        ""
        if worst <= AGREES_WITHIN
        else "the cost model is calibrated on nccl-tests, where a ring does not reach the rate of its link",
    )
