"""Names of NVIDIA's driver for GPUs, PCI addresses and fabrics, translated to gantree's.

They are the same whether queried live or read from a file. The rest of a source is in its parser.
"""

import math
import re

NOMINAL_GB = (4, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 80, 94, 96, 141, 144, 180, 186, 288)
"""Memory sizes in product names. Drivers report a little less: 81559 MiB of 80GB, 46068 of 48GB, 189471 of 186GB."""
_MOST_RESERVED = 1.1
"""A product's size is at most this much over what the driver reports (T4 1.07, B300 1.07); beyond, it is another's."""

_BRANDS = re.compile(r"\b(NVIDIA|Tesla|GeForce|Quadro)\b|RTX (?=A[0-9])", re.IGNORECASE)
_VARIANT = re.compile(
    r"SXM[0-9]*|PCIE?|NVL|OAM|AC|HBM[0-9]e?|[0-9]+GB?|GPU|Generation|Server|Workstation|Edition|Blackwell|Pascal",
    re.IGNORECASE,
)
_WORD_GAPS = re.compile(r"[\s()/-]+")
_BUS_ID = re.compile(
    r"([0-9a-f]{1,8}):([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.([0-7]))?", re.IGNORECASE
)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_NO_CLUSTER = "00000000-0000-0000-0000-000000000000"


def model_name(product: str, memory_MiB: int) -> str:
    """Return the catalogue's name of a GPU: "NVIDIA H100 80GB HBM3" with 81559 MiB is "H100-80GB".

    The size comes from the memory, not from the name: "NVIDIA GH200 480GB" counts the CPU's.
    """
    words = _WORD_GAPS.split(_BRANDS.sub("", product))
    kept = [word for word in words if word and not _VARIANT.fullmatch(word)]
    return f"{''.join(kept) or 'GPU'}-{_nominal_GB(memory_MiB / 1024)}GB"


def _nominal_GB(memory_GiB: float) -> int:
    size = next((size for size in NOMINAL_GB if size >= memory_GiB), None)
    return math.ceil(memory_GiB) if size is None or size > memory_GiB * _MOST_RESERVED else size


def sysfs_bus_id(written: str) -> str | None:
    """Return a PCI address as sysfs writes it; None for what is none.

    The driver's "00000000:1B:00.0" and "0000:1B:00" are "0000:1b:00.0".
    """
    match = _BUS_ID.fullmatch(written.strip())
    if match is None:
        return None
    domain, bus, device = (int(match[part], 16) for part in (1, 2, 3))
    return f"{domain:04x}:{bus:02x}:{device:02x}.{match[4] or 0}"


def clique_name(cluster_uuid: str, clique_id: int) -> str | None:
    """Return the NVLink domain across nodes, "<cluster uuid>.<clique>", as node labels write it.

    None for a cluster that is no UUID or all zeros: the GPUs' NVLinks do not leave the node.
    """
    uuid = cluster_uuid.strip().lower()
    if not _UUID.fullmatch(uuid) or uuid == _NO_CLUSTER:
        return None
    return f"{uuid}.{clique_id}"
