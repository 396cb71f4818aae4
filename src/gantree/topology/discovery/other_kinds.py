"""Recognises the kind of a source by unique signs, for an error that names the kind to import it as.

Only the beginning of a text is looked at, and every sign is bounded, so that no text takes long. What is wrong with a
text of the right kind is reported by its parser.
"""

import re

_LOOKED_AT_CHARS = 1 << 18
_SIGNS: tuple[tuple[str, str, str], ...] = (
    ("nvidia-smi-xml", "`nvidia-smi -q -x`", r"<nvidia_smi_log\b"),
    ("hwloc", "hwloc's XML", r"<!DOCTYPE topology|^<topology\b"),
    ("nccl-xml", "an NCCL topology file", r"^[ \t]{0,40}<system version"),
    ("rocm-smi", "`rocm-smi --showtopo`", r"ROCm System Management Interface|Weight between two GPUs"),
    ("nvlink-status", "`nvidia-smi nvlink -s`", r"^[ \t]{1,40}Link [0-9]{1,4}: (<inactive>|[0-9.]{1,20} GB/s)"),
    ("slurmd", "`slurmd -G`", r"Gres Name=gpu|GRES\[gpu\]"),
    ("ibnetdiscover", "`ibnetdiscover`", r'^(?:Switch|Ca|Rt)[ \t]{1,20}[0-9]{1,5}[ \t]{1,20}"[SHR]-|^vendid=0x'),
    ("nvidia-smi-p2p", "`nvidia-smi topo -p2p r`",
     r"^[ \t]{0,40}GPU[0-9]{1,4}[ \t]{1,40}(?:X[ \t]{1,40})?(?:OK|CNS|GNS|TNS|NS|DR)\b"),
    ("nvidia-smi", "`nvidia-smi topo -m`",
     r"^[ \t]{0,40}GPU[0-9]{1,4}[ \t]{1,40}(?:X[ \t]{1,40})?(?:NV[0-9]{1,4}|PIX|PXB|PHB|NODE|SYS)\b"),
    ("slurm", "Slurm's topology.conf", r"^[ \t]{0,40}(?i:SwitchName|BlockName|RingName)="),
    ("slurm-yaml", "Slurm's topology.yaml", r"^-[ \t]{1,40}topology:|^[ \t]{0,40}cluster_default:"),
    ("kubernetes", "Kubernetes objects",
     r'^kind: {0,8}"?(?:List|Node|Topology)\b|"kind": {0,8}"(?:List|NodeList|Node|Topology)"'),
    ("topograph", "a model of topograph", r"^(?:switches|blocks|capacity_blocks):"),
    ("lingjun", "topo.csv of Lingjun", r"\A(?=[^\n]{0,1000}\b(?i:PSW)\b)(?=[^\n]{0,1000}\b(?i:ASW)\b)[^\n]{0,1000},"),
    ("csv", "a table of nodes", r"\A(?i:nodes?|names?|host|hostname)[,;\t|]"),
)  # fmt: skip
_COMPILED = tuple((kind, what, re.compile(sign, re.MULTILINE)) for kind, what, sign in _SIGNS)
_CLUSTER_FILE = re.compile(r"^tiers:", re.MULTILINE)


def instead_of(kind: str, text: str) -> str | None:
    """Return what a text looks like that was given as this kind, and what to do; None where it may be of this kind."""
    head = text[:_LOOKED_AT_CHARS]
    if not head.strip("\ufeff \t\r\n"):
        return "the text is empty" if len(head) == len(text) else None
    found = [(name, what) for name, what, sign in _COMPILED if sign.search(head)]
    if any(name == kind for name, _ in found):
        return None
    if found:
        name, what = found[0]
        return f"it looks like {what}; import it as {name}"
    if _CLUSTER_FILE.search(head):
        return "it looks like a cluster file, which needs no import"
    return None
