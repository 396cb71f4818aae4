"""Recognises the output of other tools, for a helpful error.

Only the beginning of a text is looked at, and every sign is bounded, so that no text takes long.
"""

import re

PEER_STATUS = frozenset({"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"})
"""What `nvidia-smi topo -p2p` prints of a pair: fine, or what does not support it (chipset, GPU, topology, unknown),
disabled by a registry key, unknown."""
_WANTED = "give the print of `nvidia-smi topo -m`"
_LOOKED_AT_CHARS = 1 << 18
_STATUSES = "|".join(sorted(PEER_STATUS))

_SIGNS: tuple[tuple[str, str], ...] = (
    (r"NVIDIA-SMI has failed|couldn't communicate with the NVIDIA driver|Failed to initialize NVML",
     "nvidia-smi says that it cannot reach the NVIDIA driver"),
    (r"No devices were found", "nvidia-smi found no GPU"),
    (r"nvidia-smi\S{0,40}:.{0,80}not found|No such file or directory", "it says that there is no nvidia-smi"),
    (r"ROCm System Management Interface|rocm-smi|Weight between two GPUs|XGMI",
     "it looks like `rocm-smi --showtopo`, for AMD GPUs"),
    (r"<nvidia_smi_log", "it looks like `nvidia-smi -q -x`"),
    (r"NVSMI LOG", "it looks like `nvidia-smi -q`"),
    (r"<!DOCTYPE topology|<topology\b", "it looks like hwloc's XML"),
    (r"<system version", "it looks like an NCCL topology file"),
    (r"Link [0-9]{1,4}: (<inactive>|[0-9.]{1,20} GB/s)", "it looks like `nvidia-smi nvlink -s`"),
    (r"Gres Name=gpu|GRES\[gpu\]", "it looks like `slurmd -G`"),
    (r"GPU [0-9]{1,4}: .{0,200}\(UUID:", "it looks like `nvidia-smi -L`"),
    (r"\| {0,200}NVIDIA-SMI", "it looks like plain `nvidia-smi`"),
    (r"^[ \t]*(NIC[0-9]{1,4}[ \t]+(X|PIX|PXB|PHB|NODE|SYS)|GPU[0-9]{1,4}[ \t]+(X|NV[0-9]{1,4}|PIX|PXB|PHB|NODE|SYS))\b",
     "there are rows, but no header line with GPU0, GPU1... before them"),
    (r"^[ \t]*(tiers|machines|nodes|gang|apiVersion):", "it looks like YAML"),
    (r"\A\s*[\[{]", "it looks like JSON"),
)  # fmt: skip
_PEER_ROW = rf"^[ \t]*GPU[0-9]{{1,4}}[ \t]+(?:X[ \t]+)?(?:{_STATUSES})\b"


def is_peer_status(word: str) -> bool:
    """Return whether a cell is a peer-to-peer status, which `nvidia-smi topo -p2p` prints, and no link class."""
    return word in PEER_STATUS


def named_instead(text: str) -> str:
    """Report what the text looks like: "it looks like YAML"."""
    head = text[:_LOOKED_AT_CHARS]
    if not head.strip():
        return "the text is empty" if len(text) == len(head) else "it begins with blanks only"
    if re.search(_PEER_ROW, head, re.MULTILINE):
        return "it looks like a peer-to-peer matrix (`nvidia-smi topo -p2p`), which names no links"
    for sign, meaning in _SIGNS:
        if re.search(sign, head, re.MULTILINE):
            return meaning
    return "nothing in it is known"


def what_instead(text: str) -> str:
    """Report what a text looks like that was given for `nvidia-smi topo -m`, and what to give."""
    seen = named_instead(text)
    if seen == "nothing in it is known":
        if re.search(r"^[ \t]*GPU0\b", text[:_LOOKED_AT_CHARS], re.MULTILINE):
            seen = "there is a header but no row of link classes (X, NV#, PIX, PXB, PHB, NODE, SYS)"
        else:
            seen = "nothing in it looks like a header line with GPU0, GPU1..."
    return f"{seen}; {_WANTED}"
