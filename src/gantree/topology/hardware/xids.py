"""NVIDIA's XIDs: which call for a reset of the GPU or a restart of its node, and which say that the GPU is lost.

An XID is an error of a GPU as NVIDIA's driver reports it: in the kernel log, as an event of NVML, in metrics of DCGM,
in conditions of Kubernetes nodes. NVIDIA's catalogue says what is to be done at once; RESTART_APP concerns the program
alone, so XIDs that programs cause (13, 31, 43, 45, 68, 109) are not in the table, as in NVIDIA's device plugin.

    https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
    https://github.com/NVIDIA/k8s-device-plugin/blob/main/internal/rm/health.go
"""

import re

XIDS = {
    46: "GPU stopped processing",
    48: "double-bit ECC error",
    62: "internal micro-controller halt",
    64: "row remapping failed",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    95: "uncontained ECC error",
    110: "security fault",
    119: "GSP timeout",
    120: "GSP error",
    140: "unrecovered ECC error",
}
"""Those for which NVIDIA's catalogue says to reset or to restart at once, with its words in short."""
LOST = frozenset({79, 95})
"""No process can use the GPU until it was reset: it is off the bus, or all its memory is in doubt.

What runs on it can save nothing, or nothing that is worth it.
"""
OFF_THE_BUS = 79
_IN_TEXT = re.compile(
    r"\bX[Ii][Dd][ :=]?(?:\([^)]*\): )?(?P<xid>\d{1,3})\b|\bErrorCode:(?P<code>\d{1,3})\b"
)
_OFF_THE_BUS = re.compile(r"fallen off the bus|device lost from bus", re.IGNORECASE)
_OF_GPU = re.compile(r"GPU (?P<gpu>\d{1,4}): XID (?P<xid>\d{1,3})\b")


def xid_in_words(xid: int) -> str:
    """An XID of the table: "XID 79 (GPU has fallen off the bus)"."""
    return f"XID {xid} ({XIDS[xid]})"


def tells_of_lost_gpu(text: str) -> bool:
    """Whether a message says that a GPU is lost: of a driver, of NVSentinel, or of another monitor."""
    numbers = (each["xid"] or each["code"] for each in _IN_TEXT.finditer(text))
    return any(int(number) in LOST for number in numbers) or bool(_OFF_THE_BUS.search(text))


def lost_gpus_in(reason: str) -> tuple[int, ...] | None:
    """The GPUs that a reason "GPU 3: XID 79 (...); GPU 5: ..." says are lost; None: it says so of none."""
    found = {int(each["gpu"]) for each in _OF_GPU.finditer(reason) if int(each["xid"]) in LOST}
    return tuple(sorted(found)) or None
