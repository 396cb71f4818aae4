"""Derives the health of GPUs' links, PCIe and NVLink, from what DCGM exporters tell of them.

What a figure means is in `telemetry.dcgm.links`; here are its peers: what GPUs of the same machine model usually have
is the median of those that were read (of two, the higher). What is not read changes nothing.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from statistics import median_high

from gantree.control.nodes.links.link_reports import CLEAN_S, Judgements, LinkReports
from gantree.core.ledger.ledger import Ledger
from gantree.model.cluster import NVLINK_OF_GPU, PCIE_OF_GPU, LinkId
from gantree.model.events import LinkHealthObserved
from gantree.telemetry.dcgm.health import SignsOfGpu
from gantree.telemetry.dcgm.links import (
    GpuLinkWatch,
    Usual,
    contradicts_itself,
    nvlinks_of,
    reaches_a_peer,
    width_of,
)
from gantree.telemetry.link_judgement import Judged
from gantree.topology.fabric.fabric import Fabric

DCGM, NVML = "dcgm", "nvml"
log = logging.getLogger(__name__)


class GpuLinks:
    """The readings of GPUs' links, and their reports."""

    def __init__(self, clean_s: float = CLEAN_S, source: str = DCGM) -> None:
        self._watch = GpuLinkWatch()
        self._reports = LinkReports(source, clean_s)
        self._warned: set[tuple[str, int]] = set()

    def judge(self, told: Mapping[str, SignsOfGpu], fabric: Fabric, now: float) -> Judgements:
        """What the figures of the nodes that answered say."""
        self._watch.keep(frozenset(fabric.index_of_node))
        return Judgements.of(self._judged(told, fabric, now))

    def events(
        self, judgements: Judgements, ledger: Ledger, now: float, epoch: int
    ) -> list[LinkHealthObserved]:
        """What follows from that."""
        return self._reports.events(judgements, ledger, now, epoch)

    def _judged(
        self, told: Mapping[str, SignsOfGpu], fabric: Fabric, now: float
    ) -> Iterator[tuple[LinkId, Judged]]:
        usual = _usual(told, fabric)
        for node, of_gpu in told.items():
            index = fabric.index_of_node.get(node)
            if index is None:
                continue
            model, gpus = int(fabric.machine_index_of_node[index]), int(fabric.gpus_of_node[index])
            for gpu, figures in of_gpu.items():
                if gpu < gpus:
                    yield from self._of_gpu(node, gpu, figures, usual[model], now)

    def _of_gpu(
        self, node: str, gpu: int, figures: Mapping[str, float], usual: Usual, now: float
    ) -> Iterator[tuple[LinkId, Judged]]:
        if contradicts_itself(figures) and (node, gpu) not in self._warned:
            self._warned.add((node, gpu))
            log.warning("GPU %s of %s tells more of its PCIe link than there can be", gpu, node)
        for tier, judge in ((PCIE_OF_GPU, self._watch.pcie), (NVLINK_OF_GPU, self._watch.nvlink)):
            judged = judge(node, gpu, figures, usual, now)
            if judged is not None:
                yield LinkId(tier, f"{node}/{gpu}"), judged


def _usual(told: Mapping[str, SignsOfGpu], fabric: Fabric) -> dict[int, Usual]:
    """What GPUs usually have, by machine model."""
    of_model: dict[int, list[Mapping[str, float]]] = {}
    for node, of_gpu in told.items():
        index = fabric.index_of_node.get(node)
        if index is not None:
            model = int(fabric.machine_index_of_node[index])
            of_model.setdefault(model, []).extend(of_gpu.values())
    return {model: _usual_of(gpus) for model, gpus in of_model.items()}


def _usual_of(gpus: Sequence[Mapping[str, float]]) -> Usual:
    widths = [width for width in map(width_of, gpus) if width]
    nvlinks = [up for up, links in map(nvlinks_of, gpus) if links]
    peers = [reaches for reaches in map(reaches_a_peer, gpus) if reaches is not None]
    return Usual(
        median_high(widths) if widths else None,
        median_high(nvlinks) if nvlinks else None,
        2 * sum(peers) > len(peers),
    )
