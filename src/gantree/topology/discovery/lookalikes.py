"""What a text is that was given for an `nvidia-smi topo -m` print and is none: for a useful error, no more."""

import re

_WANTED = "give the print of `nvidia-smi topo -m`"
_PEER_STATUS = frozenset({"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"})

_SIGNS: tuple[tuple[str, str], ...] = (
    (r"NVIDIA-SMI has failed|couldn't communicate with the NVIDIA driver",
     "nvidia-smi says that it cannot reach the NVIDIA driver"),
    (r"No devices were found", "nvidia-smi found no GPU"),
    (r"nvidia-smi\S*:.*not found|No such file or directory", "it says that there is no nvidia-smi"),
    (r"ROCm System Management Interface|rocm-smi|Weight between two GPUs|XGMI",
     "it looks like `rocm-smi --showtopo`, for AMD GPUs"),
    (r"<nvidia_smi_log", "it looks like `nvidia-smi -q -x`"),
    (r"NVSMI LOG", "it looks like `nvidia-smi -q`"),
    (r"<!DOCTYPE topology|<topology\b", "it looks like hwloc's XML"),
    (r"<system version", "it looks like an NCCL topology file"),
    (r"Link [0-9]+: (<inactive>|[0-9.]+ GB/s)", "it looks like `nvidia-smi nvlink -s`"),
    (r"GPU [0-9]+: .*\(UUID:", "it looks like `nvidia-smi -L`"),
    (r"\| *NVIDIA-SMI", "it looks like plain `nvidia-smi`"),
    (r"^\s*NIC[0-9]+\s+(X|PIX|PXB|PHB|NODE|SYS)\b|^\s*GPU[0-9]+\s+(X|NV[0-9]+|PIX|PXB|PHB|NODE|SYS)\b",
     "there are rows, but no header line with GPU0, GPU1... before them"),
    (r"^\s*(tiers|machines|nodes|gang|apiVersion):", "it looks like YAML"),
    (r"\A\s*[\[{]", "it looks like JSON"),
)  # fmt: skip


def is_peer_status(word: str) -> bool:
    """Tell whether a cell is a peer-to-peer status, which `nvidia-smi topo -p2p` prints, and no link class."""
    return word in _PEER_STATUS


def what_instead(text: str) -> str:
    """Say what the text looks like instead, and what to give."""
    if not text.strip():
        return f"the text is empty; {_WANTED}"
    row = r"^\s*GPU[0-9]+\s+(?:X\s+)?(?:{})\b".format("|".join(sorted(_PEER_STATUS)))
    if re.search(row, text, re.MULTILINE):
        return f"it looks like a peer-to-peer matrix (`nvidia-smi topo -p2p`), which names no links; {_WANTED}"
    for sign, meaning in _SIGNS:
        if re.search(sign, text, re.MULTILINE):
            return f"{meaning}; {_WANTED}"
    if re.search(r"^\s*GPU0\b", text, re.MULTILINE):
        return f"there is a header but no row of link classes (X, NV#, PIX, PXB, PHB, NODE, SYS); {_WANTED}"
    return f"nothing in it looks like a header line with GPU0, GPU1...; {_WANTED}"
