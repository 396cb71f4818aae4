"""A stand-in for amd-smi on a machine whose GPUs are in a file: the commands that gantree uses, and their prints.

What it prints is as AMD's documentation shows it for ROCm 7: modes are told by the first partition of a GPU alone, each
partition has a UUID of its own, and all are numbered anew when a mode changes. A refusal is told in words.

    {"modes": ["SPX", "CPX"], "xcds": 8, "shared_uuids": false, "refuse": "", "asked": [["static", "--partition"]]}
"""

import json
import sys
from pathlib import Path
from typing import Any

COUNTS = {"SPX": 1, "DPX": 2, "TPX": 3, "QPX": 4}
_SCRIPT = """#!{python} -IS
import sys
sys.path.insert(0, {path!r})
from support.amd_smi import main
main({file!r}, sys.argv[1:])
"""


class AmdSmi:
    """A program in a folder, and its GPUs."""

    def __init__(self, folder: Path, gpus: int = 2, **state: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file, self.program = folder / "gpus.json", folder / "amd-smi"
        script = _SCRIPT.format(
            python=sys.executable, path=str(Path(__file__).parents[1]), file=str(self.file)
        )
        self.program.write_text(script)
        self.program.chmod(0o755)
        self.write(**{"modes": ["SPX"] * gpus, "xcds": 8, "asked": [], **state})

    def write(self, **state: Any) -> None:
        """Change what is so of the machine."""
        before = json.loads(self.file.read_text()) if self.file.exists() else {}
        self.file.write_text(json.dumps(before | state))

    @property
    def modes(self) -> list[str]:
        """The mode of each GPU."""
        found: list[str] = json.loads(self.file.read_text())["modes"]
        return found

    @property
    def settings(self) -> list[list[str]]:
        """The changes that were asked for."""
        asked: list[list[str]] = json.loads(self.file.read_text())["asked"]
        return [words for words in asked if words[0] == "set"]


def main(file: str, words: list[str]) -> None:
    """Answer one command."""
    state = json.loads(Path(file).read_text())
    state["asked"].append(words)
    match words:
        case ["static", "--partition"]:
            print("\n".join(_static(state)))
        case ["list", "-e"]:
            print("\n".join(_list(state)))
        case ["set", "--gpu", number, "--compute-partition", mode]:
            print(_set(state, int(number), mode))
        case _:
            print(f"AMDSMI: invalid command {words}")
    Path(file).write_text(json.dumps(state))


def _partitions(state: dict[str, Any]) -> list[tuple[int, int, str]]:
    """(GPU, partition, mode) of each number."""
    return [
        (gpu, partition, mode)
        for gpu, mode in enumerate(state["modes"])
        for partition in range(COUNTS.get(mode, state["xcds"]))
    ]


def _static(state: dict[str, Any]) -> list[str]:
    lines = []
    for number, (_, partition, mode) in enumerate(_partitions(state)):
        compute, memory = ("N/A", "N/A") if partition else (mode, "NPS1")
        lines += [f"GPU: {number}", "    PARTITION:", f"        COMPUTE_PARTITION: {compute}"]
        lines += [f"        MEMORY_PARTITION: {memory}", f"        PARTITION_ID: {partition}", ""]
    return lines


def _list(state: dict[str, Any]) -> list[str]:
    lines = []
    for number, (gpu, partition, _) in enumerate(_partitions(state)):
        own = 0 if state.get("shared_uuids") else partition
        lines += [f"GPU: {number}", f"    BDF: 0000:{gpu:02x}:00.{partition}"]
        lines += [f"    PARTITION_ID: {partition}", f"    HIP_ID: {number}"]
        lines += [f"    HIP_UUID: GPU-{gpu:08x}{own:08x}", ""]
    return lines


def _set(state: dict[str, Any], number: int, mode: str) -> str:
    gpu, partition, _ = _partitions(state)[number]
    if state.get("refuse"):
        return f"ValueError: Unable to set compute partition to {mode} on GPU ID: {number}: {state['refuse']}"
    if partition or mode not in (*COUNTS, "CPX"):
        return "AMDSMI_STATUS_NOT_SUPPORTED - Feature not supported"
    state["modes"][gpu] = mode
    return f"GPU: {number}\n    COMPUTEPARTITION: Successfully set compute partition to {mode}"
