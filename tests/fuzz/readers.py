"""Coverage-guided fuzzing of every reader of `gantree topo import`: nothing but a GantreeError may come out of it.

`make fuzz` runs it; `python tests/fuzz/readers.py KIND SECONDS [SAMPLE...]` fuzzes one kind, beginning with samples.
Atheris follows which branches of our code a text reaches and mutates what reached new ones, so it goes deeper than
the random damage of the test suite. What made it fail is kept in a temporary directory that is named.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["gantree.topology.discovery", "gantree.text"]):
    from gantree.model.errors import GantreeError
    from gantree.topology.discovery.kinds import FABRIC_KINDS, KINDS, MACHINE_KINDS, Wishes

MAX_BYTES = 20_000
SAMPLES = Path(__file__).resolve().parents[3] / "shared" / "data" / "topology"
FOLDERS_OF_KIND = {
    "nvidia-smi": ("nvidia-smi-topo",), "nvidia-smi-p2p": ("nvidia-smi-topo",), "nvidia-smi-xml": ("nvidia-smi-xml",),
    "nvlink-status": ("nvlink-status",), "nccl-xml": ("nccl-xml", "rccl-xml"), "rocm-smi": ("rocm",),
    "hwloc": ("hwloc",), "slurmd": ("slurm",), "ibnetdiscover": ("ibnetdiscover",), "netq": ("topograph",),
    "slurm": ("slurm",), "slurm-yaml": ("slurm",), "topograph": ("topograph",), "kubernetes": ("k8s",),
}  # fmt: skip


def read(kind: str, text: str) -> None:
    """Read a text as a kind; its own errors are what it is for."""
    try:
        if kind in MACHINE_KINDS:
            MACHINE_KINDS[kind].parse(text, "fuzz")
        else:
            FABRIC_KINDS[kind].read([(text, "fuzz")], Wishes())
    except GantreeError:
        pass


def fuzz(kind: str, seconds: int, samples: list[Path]) -> None:
    """Fuzz one kind; ends the process, with an error where something else than a GantreeError was raised."""
    corpus = tempfile.mkdtemp(prefix=f"fuzz-{kind}-")
    for number, sample in enumerate(samples):
        if sample.stat().st_size <= MAX_BYTES:
            shutil.copy(sample, Path(corpus) / str(number))
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={MAX_BYTES}",
        "-timeout=30",
        "-verbosity=0",
        f"-artifact_prefix={corpus}/",
    ]

    def one(data: bytes) -> None:
        read(kind, data.decode("utf-8", "replace"))

    atheris.Setup([sys.argv[0], *options, corpus], one)
    atheris.Fuzz()


def all_kinds(seconds: int) -> int:
    """Fuzz every kind in a process of its own; returns how many failed."""
    failed = 0
    for kind in KINDS:
        folders = FOLDERS_OF_KIND.get(kind, ())
        samples = [str(path) for folder in folders for path in sorted((SAMPLES / folder).glob("*"))]
        command = [sys.executable, __file__, kind, str(seconds), *samples]
        code = subprocess.run(command, check=False).returncode
        print(f"{kind}: {'ok' if code == 0 else 'FAILED'}", flush=True)
        failed += code != 0
    return failed


if __name__ == "__main__":
    if sys.argv[1] == "all":
        sys.exit(all_kinds(int(sys.argv[2])))
    fuzz(sys.argv[1], int(sys.argv[2]), [Path(word) for word in sys.argv[3:]])
