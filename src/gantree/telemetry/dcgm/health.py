"""Parses health metrics of NVIDIA's DCGM exporter: faults of each GPU, and their meaning.

What its links say, whether it computes and what it draws is read in the same pass; what that means is in `links`,
`telemetry.activity` and `telemetry.gpu_draw`.

A *sign* is a figure by its name, with the label that tells apart what is counted: `DCGM_EXP_XID_ERRORS_COUNT/79`. What
the exporter's defaults have is XIDs, failed remaps and remapped rows; the others are lines of its counters file that
are to be uncommented:
https://github.com/NVIDIA/dcgm-exporter/blob/main/etc/default-counters.csv
Fields that an exporter does not tell say nothing, good or bad.

Which signs say that what runs on a GPU will fail, or has:

    an XID of XIDS            the driver has lost the GPU, or it wants a reset (`topology.hardware.xids`)
    rows that could not be    remapped: memory that is broken stays in use
    double-bit errors         counted since the driver was loaded: the GPU is to be reset (XID 48)
    a row remapped just now   for an uncorrectable error: it counts after a reset (XID 63). How many rows were remapped
                              in a GPU's life says nothing
    NVLink gone and back      its recoveries grow; or CRC errors come as fast as DCGM's own watch takes for a failure
    slowed by the hardware    for heat or power, at each of SLOW_FOR looks, one after the other
    DCGM's own watch          DCGM_EXP_GPU_HEALTH_STATUS says "fail"

How much goes over NVLink is load, not health, and is not looked at.

The gauge of the last XID stays until another XID comes or the exporter starts anew, and harmless ones come after fatal
ones (45 after 79). So a GPU is *clean* again only when it tells no XID at all.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from sys import intern

from gantree.telemetry.activity import ACTIVITY_FIGURES, UTILISATION, instance_of
from gantree.telemetry.dcgm.links import LINK_FIGURES, LINK_LABEL
from gantree.telemetry.dcgm.use import samples_of_gpus
from gantree.telemetry.exposition import names_matcher
from gantree.telemetry.gpu_draw import DRAW_FIGURES
from gantree.telemetry.slow_clocks import CLOCK_FIGURES
from gantree.topology.hardware.xids import XIDS, xid_in_words

Signs = Mapping[str, float]
SignsOfGpu = Mapping[int, Signs]
"""By the index of a GPU on its node."""

XID_NAMES = ("DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR")
"""The gauge of the last one; the second name is that of newer exporters."""
XID_COUNT = "DCGM_EXP_XID_ERRORS_COUNT"
"""How many came within a window, by XID."""
STATUS = "DCGM_EXP_GPU_HEALTH_STATUS"
STATUS_FAIL = 20
"""DCGM_HEALTH_RESULT_FAIL; 10 is a warning, 0 is healthy."""
REMAP_FAILED = "DCGM_FI_DEV_ROW_REMAP_FAILURE"
REMAPPED = "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"
DOUBLE_BIT = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"
RECOVERIES = "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL"
CRC_ERRORS = "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL"
CRC_PER_S = 100.0
"""DCGM_LIMIT_MAX_NVLINK_CRC_ERROR of DCGM's health watch."""
SLOW_NAMES = ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS")
SLOWED_BY_HARDWARE = 0x8 | 0x40 | 0x80
"""NVML's nvmlClocksThrottleReasonHwSlowdown, ...HwThermalSlowdown and ...HwPowerBrakeSlowdown."""
SLOW_FOR = 8
_LABEL = {
    XID_COUNT: "xid",
    STATUS: "health_watch",
    **LINK_LABEL,
}
_SIGNS = frozenset(
    {*XID_NAMES, *SLOW_NAMES, *_LABEL, REMAP_FAILED, REMAPPED, DOUBLE_BIT, RECOVERIES, CRC_ERRORS}
    | LINK_FIGURES
    | ACTIVITY_FIGURES
    | CLOCK_FIGURES
    | DRAW_FIGURES
)
_ALWAYS_TOLD = "DCGM_FI_DEV_GPU_TEMP"
"""By it a GPU is there that has no signs. A GPU that never had an XID may have no figure of that."""
_FIND = names_matcher(_SIGNS | {_ALWAYS_TOLD})


def signs_in(text: str) -> dict[str, dict[int, dict[str, float]]]:
    """Node -> GPU -> its signs; "" is the node of GPUs that come without a host name. BadInput for other text.

    A GPU without any sign is in it too, if its temperature is.
    """
    found: dict[str, dict[int, dict[str, float]]] = {}
    for host, gpu, name, labels, value in samples_of_gpus(text, _FIND):
        told = found.setdefault(host, {}).setdefault(gpu, {})
        if name in _SIGNS:
            label = _label(name, labels)
            sign = name if label is None else intern(f"{name}/{label}")
            told[sign] = max(value, told.get(sign, value))
    return found


def _label(name: str, labels: Mapping[str, str]) -> str | None:
    """What tells lines of one name and GPU apart."""
    if name in ACTIVITY_FIGURES and name != UTILISATION:
        return instance_of(labels)
    return labels.get(_LABEL.get(name, ""))


@dataclass(slots=True)
class GpuWatch:
    """The last reading of one GPU, and how many readings in a row were slowed."""

    before: Signs = field(default_factory=dict)
    looked_at: float = -math.inf
    slow: int = 0

    def look(self, now: Signs, at: float) -> tuple[str, ...]:
        """What is wrong with it, in words that stay the same while it is; at is in seconds."""
        slowed = any(int(now.get(name, 0)) & SLOWED_BY_HARDWARE for name in SLOW_NAMES)
        self.slow = self.slow + 1 if slowed else 0
        wrong = tuple(dict.fromkeys((*_at_once(now), *self._since_then(now, at))))
        self.before, self.looked_at = now, at
        return wrong

    def _since_then(self, now: Signs, at: float) -> Iterator[str]:
        if self._grew(now, REMAPPED):
            yield "a row of memory was remapped after an uncorrectable error"
        if self._grew(now, RECOVERIES):
            yield "an NVLink was lost and came back"
        errors = self._grew(now, CRC_ERRORS)
        if errors and errors >= CRC_PER_S * (at - self.looked_at):
            yield "CRC errors on NVLink"
        if self.slow >= SLOW_FOR:
            yield "slowed by the hardware, for heat or power"

    def _grew(self, now: Signs, name: str) -> float:
        """By how much a counter grew; 0 where it is not known, or began anew."""
        return max(0.0, now.get(name, 0.0) - self.before.get(name, math.inf))


def _at_once(now: Signs) -> Iterator[str]:
    """What signs say without those of before."""
    for sign, value in sorted(now.items()):
        name, _, label = sign.partition("/")
        if name in XID_NAMES and value in XIDS:
            yield xid_in_words(int(value))
        elif name == XID_COUNT and value and label.isdecimal() and int(label) in XIDS:
            yield xid_in_words(int(label))
        elif name == STATUS and value >= STATUS_FAIL:
            yield f"DCGM says that it fails ({label or 'ALL'})"
        elif name == REMAP_FAILED and value:
            yield "a row of memory could not be remapped"
        elif name == DOUBLE_BIT and value:
            yield "double-bit ECC errors"


def has_xid(now: Signs) -> bool:
    """Return whether a GPU reports any XID, even a harmless one."""
    return any(value and sign.startswith((*XID_NAMES, XID_COUNT)) for sign, value in now.items())
