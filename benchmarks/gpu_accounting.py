"""What joining samples of 10,000 GPUs with the gangs that hold them costs, a round of every 15 seconds.

A site in this process (`support.pretended`) with about 1,000 gangs that run. A round is what the poll of DCGM exporters
(`api.gpu_metrics.polling`) does once all of them have answered: judging the readings beside the thread that decides,
and on that thread the health of GPUs, use, idleness, and the decisions and roll-ups that follow. Rounds with and
without use and idleness are taken in turn. `hold_ms` is the time for which the thread that decides does nothing else,
`cpu_ms` the processor time of all threads of this process; `cores` is that of 15 seconds.

    PYTHONPATH=src:tests python benchmarks/gpu_accounting.py [--rounds 41]
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from gantree.api.gpu_metrics.polling import EVERY_S, Judge
from gantree.control.engine.controller import Controller
from gantree.control.nodes.clock_watch import ClockWatch
from gantree.control.nodes.gpu_use_watch import GpuUseWatch
from gantree.control.nodes.health_watch import HealthWatch
from gantree.control.nodes.idle_watch import IdleWatch
from gantree.control.nodes.links.gpu_link_watch import GpuLinks
from gantree.telemetry.activity import MEMORY, TENSOR
from gantree.testing.builders import cluster
from page_reads import GANGS, SHAPE, jobs
from support.pretended import PretendedSite

GPUS = 8
Told = Mapping[str, Mapping[int, Mapping[str, float]]]


def told_of(nodes: int, chance: Random) -> Told:
    """What exporters tell of all GPUs: nine of ten compute."""
    return {
        f"n{node}": {
            gpu: {
                TENSOR: 0.4 if chance.random() < 0.9 else 0.0,
                MEMORY: 0.0,
                "DCGM_FI_DEV_XID_ERRORS": 0.0,
                "DCGM_FI_DEV_PCIE_LINK_WIDTH": 16.0,
                "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": 16.0,
            }
            for gpu in range(GPUS)
        }
        for node in range(nodes)
    }


class Round:
    """The judges of one kind of round, with what they have seen."""

    def __init__(self, *joins: Judge) -> None:
        self._judges: tuple[Judge, ...] = (HealthWatch(), GpuLinks(), ClockWatch(), *joins)
        self.hold_ms: list[float] = []
        self.cpu_ms: list[float] = []

    def take(self, site: PretendedSite, told: Told, now: float) -> None:
        """Judge, hand in, and have it decided."""
        cpu = time.process_time()
        fabric = site.ask(lambda controller: controller.ledger.fabric)
        assert fabric is not None
        judged = [(judge, judge.judge(told, fabric, now)) for judge in self._judges]

        def look(controller: Controller) -> float:
            since = time.thread_time()
            found = list[Any]()
            for judge, what in judged:
                found += judge.events(what, controller.ledger, now, 1)
            for event in found:
                controller.inbox.enqueue(event)
            while controller.step():
                pass
            return time.thread_time() - since

        self.hold_ms.append(1000 * site.ask(look))
        self.cpu_ms.append(1000 * (time.process_time() - cpu))

    def told(self) -> dict[str, float]:
        """The median and the longest hold, CPU on average: reports are few. The first round is not counted."""
        cpu_ms = statistics.mean(self.cpu_ms[1:])
        return {
            "hold_ms": round(statistics.median(self.hold_ms[1:]), 1),
            "most_hold_ms": round(max(self.hold_ms[1:]), 1),
            "cpu_ms": round(cpu_ms, 1),
            "cores": round(cpu_ms / 1000 / EVERY_S, 4),
        }


def main() -> None:
    """Measure, print JSON."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--rounds", type=int, default=41)
    given = options.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="gantree-bench-") as place,
        PretendedSite(Path(place), cluster(*SHAPE, GPUS, 8)) as site,
    ):
        site.submit(*jobs(GANGS))
        running = site.ask(lambda controller: len(controller.ledger.holding))
        without, joined = Round(), Round(GpuUseWatch(), IdleWatch())
        nodes, chance = SHAPE[0] * SHAPE[1] * SHAPE[2], Random(2)
        begin = site.ask(lambda controller: controller.clock())
        for number in range(given.rounds):
            told, now = told_of(nodes, chance), begin + number * EVERY_S
            without.take(site, told, now)
            joined.take(site, told, now)
    print(
        json.dumps(
            {
                "gpus": nodes * GPUS,
                "running": running,
                "without": without.told(),
                "joined": joined.told(),
            }
        )
    )


if __name__ == "__main__":
    main()
