"""What figures of the DCGM exporter say of the links of a GPU: its PCIe port and its NVLinks.

    PCIe width          negotiated, against the most that GPU and slot can have (DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH), or
                        where that is not exported, against the usual one of such GPUs. It does not depend on load.
    PCIe generation     only of a GPU that computes, GEN_FOR readings in a row: an idle one lowers it to save power
    PCIe replays        more than DCGM's own limit of its health watch, 8 a minute (median of `rates`)
    NVLinks             how many are up of those that such GPUs usually have up; a GPU that reaches no other one over
                        NVLink (DCGM_EXP_P2P_STATUS), where most such GPUs do, has none
    NVLink errors       CRC errors and replays, more than one a second (median of `rates`); at a hundred a second the
                        node is unhealthy, see `health`

Half a width is half a rate at once. Errors are sent again, which costs little but does not stop: a link with errors
carries WITH_ERRORS, so that equal places without come first. How much goes over a link is load and is not read here.
A figure that contradicts itself (more lanes than there can be) says nothing.
"""

from collections.abc import Mapping
from typing import NamedTuple

from gantree.telemetry.link_judgement import WITH_ERRORS, Judged
from gantree.telemetry.rates import Counters

WIDTH, MAX_WIDTH = "DCGM_FI_DEV_PCIE_LINK_WIDTH", "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH"
GEN, MAX_GEN = "DCGM_FI_DEV_PCIE_LINK_GEN", "DCGM_FI_DEV_PCIE_MAX_LINK_GEN"
REPLAYS = "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"
UTIL = "DCGM_FI_DEV_GPU_UTIL"
STATES = ("DCGM_FI_DEV_NVLINK_LINK_STATUS", "DCGM_FI_DEV_NVLINK_GET_STATE")
"""Of one NVLink: 1 is up. The second is the older name."""
P2P = "DCGM_EXP_P2P_STATUS"
P2P_OK, P2P_UNKNOWN = 0, 6
"""DCGM's dcgmP2pStatus of a pair of GPUs; what is between says why they do not reach each other over NVLink."""
NVLINK_ERRORS = (
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
)
LINK_FIGURES = frozenset({WIDTH, MAX_WIDTH, GEN, MAX_GEN, REPLAYS, UTIL, *NVLINK_ERRORS})
LINK_LABEL = {**dict.fromkeys(STATES, "nvlink"), P2P: "peer_gpu"}
"""Figures of which a GPU has several, and the label that tells them apart."""
REPLAYS_PER_S = 8 / 60
"""DCGM_LIMIT_MAX_PCIREPLAY_RATE of DCGM's health watch, per minute there."""
NVLINK_ERRORS_PER_S = 1.0
BUSY_PERCENT = 50.0
"""A GPU that computes for so much of the time has raised its PCIe link to the generation it can."""
GEN_FOR = 2
MOST_LANES, MOST_GEN = 32, 8

Figures = Mapping[str, float]


class Usual(NamedTuple):
    """What GPUs of a machine model usually have: lanes of PCIe, and NVLinks that are up; None if unknown.

    peers: whether most of them reach another GPU over NVLink.
    """

    width: float | None = None
    nvlinks: int | None = None
    peers: bool = False


def width_of(now: Figures) -> float | None:
    """Lanes of PCIe of a GPU; None if not told, or if more than it can have."""
    width = now.get(WIDTH, 0.0)
    return width if 0 < width <= now.get(MAX_WIDTH, MOST_LANES) <= MOST_LANES else None


def contradicts_itself(now: Figures) -> bool:
    """Whether a GPU tells a PCIe link of more lanes, or a later generation, than it says there can be."""
    wide = now.get(WIDTH, 0.0) > now.get(MAX_WIDTH, MOST_LANES)
    return wide or now.get(GEN, 0.0) > now.get(MAX_GEN, MOST_GEN)


def nvlinks_of(now: Figures) -> tuple[int, int]:
    """(NVLinks that are up, NVLinks of which that is told)."""
    if not any(f"{name}/0" in now for name in STATES):
        return 0, 0
    told = [value for name, value in now.items() if name.startswith(STATES) and value in (0, 1)]
    return sum(map(int, told)), len(told)


def reaches_a_peer(now: Figures) -> bool | None:
    """Whether a GPU reaches another one over NVLink; None if that is not told."""
    if f"{P2P}/0" not in now and f"{P2P}/1" not in now:
        return None
    told = [value for name, value in now.items() if name.startswith(P2P) and value < P2P_UNKNOWN]
    return P2P_OK in told if told else None


class GpuLinkWatch:
    """Readings of the links of GPUs before this one."""

    def __init__(self) -> None:
        self._counters = Counters()
        self._slow_gen: dict[tuple[str, int], tuple[int, float]] = {}

    def pcie(self, node: str, gpu: int, now: Figures, usual: Usual, at: float) -> Judged | None:
        """What its PCIe port carries; None if nothing tells. at is in seconds."""
        width = width_of(now)
        gen = self._generation(node, gpu, now)
        replays = self._rate(node, gpu, REPLAYS, now, at)
        if width is None and gen is None and replays is None:
            return None
        most = now.get(MAX_WIDTH) or usual.width or width
        lanes = min(1.0, width / most) if width and most else 1.0
        health, reasons = lanes * (1.0 if gen is None else gen.health), list[str]()
        if lanes < 1.0:
            reasons.append(f"PCIe x{width:g} instead of x{most:g}")
        reasons += [gen.reason] if gen and gen.reason else []
        if replays is not None and replays > REPLAYS_PER_S:
            reasons.append("PCIe replays")
            health = min(health, WITH_ERRORS)
        return Judged(round(health, 3), ", ".join(reasons))

    def nvlink(self, node: str, gpu: int, now: Figures, usual: Usual, at: float) -> Judged | None:
        """What its NVLinks carry together; None if nothing tells. at is in seconds."""
        up, told = nvlinks_of(now)
        errors = [self._rate(node, gpu, name, now, at) for name in NVLINK_ERRORS]
        known = [rate for rate in errors if rate is not None]
        is_cut_off = usual.peers and reaches_a_peer(now) is False
        if not told and not known and not is_cut_off:
            return None
        if is_cut_off:
            return Judged(0.0, "no GPU is reached over NVLink")
        most = usual.nvlinks or up
        health = min(1.0, up / most) if told and most else 1.0
        reasons = [f"{up} of {most} NVLinks up"] if health < 1.0 else []
        if sum(known) > NVLINK_ERRORS_PER_S:
            reasons.append("errors on NVLink")
            health = min(health, WITH_ERRORS)
        return Judged(round(health, 3), ", ".join(reasons))

    def keep(self, nodes: frozenset[str]) -> None:
        """Forget the GPUs of all other nodes."""
        self._counters.keep(nodes)
        for key in [key for key in self._slow_gen if key[0] not in nodes]:
            del self._slow_gen[key]

    def _generation(self, node: str, gpu: int, now: Figures) -> Judged | None:
        """What the generation costs: each has half the rate of the next. None where nothing tells, or none was low.

        A low one counts until the whole one is read: while the GPU idles it says nothing either way.
        """
        gen, most = now.get(GEN, 0.0), now.get(MAX_GEN, 0.0)
        if not 0 < gen <= most <= MOST_GEN:
            return None
        if gen == most:
            self._slow_gen.pop((node, gpu), None)
            return Judged(1.0)
        seen, slowest = self._slow_gen.get((node, gpu), (0, most))
        if now.get(UTIL, 0.0) >= BUSY_PERCENT:
            seen, slowest = seen + 1, min(slowest, gen)
        elif seen < GEN_FOR:
            seen, slowest = 0, most
        self._slow_gen[node, gpu] = seen, slowest
        if seen < GEN_FOR:
            return None
        return Judged(0.5 ** (most - slowest), f"PCIe generation {slowest:g} instead of {most:g}")

    def _rate(self, node: str, gpu: int, name: str, now: Figures, at: float) -> float | None:
        if name not in now:
            return None
        return self._counters.rate((node, str(gpu), name), now[name], at)
