"""What ranks of a check write into the shared folder, a file each, a JSON object a line.

{"fault", "gpu"}            its own device is at fault, in words of the driver
{"begin", "at", "figure"}   it entered a group, at seconds of the steady clock
{"end", "figure"}           it left the group, with what was measured
{"done", "total"}           rank 0: sets that are done
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gantree.telemetry.checking.figures import Figure, figure_of, in_order
from gantree.telemetry.checking.spec import CheckSpec

HUNG_S = 5.0
"""A group that was begun so long before the end, and did not end, hangs; one begun later may only have been late."""


@dataclass(frozen=True, slots=True)
class RankFindings:
    """What the files of all ranks say: figures, those without a rate hung; sets done, of how many; own faults."""

    figures: tuple[Figure, ...]
    done: int
    total: int
    faults: tuple[tuple[int, int, str], ...]
    """(member, GPU, words)"""


def rank_file(spec: CheckSpec, rank: int) -> Path:
    """The file of a rank."""
    return spec.folder / f"rank-{rank}.jsonl"


def append(file: Path, line: dict[str, Any]) -> None:
    """Append a line. Raises OSError."""
    with file.open("a", encoding="utf-8") as opened:
        opened.write(json.dumps(line) + "\n")


def findings(spec: CheckSpec, now_steady_s: float) -> RankFindings:
    """Read the files of all ranks, as far as their lines are whole."""
    ended: dict[str, Figure] = {}
    begun: dict[str, tuple[float, Figure]] = {}
    faults: list[tuple[int, int, str]] = []
    done = total = 0
    for member in range(len(spec.members)):
        for rank in spec.ranks_of(member):
            for line in _lines(rank_file(spec, rank)):
                if "begin" in line:
                    begun.setdefault(line["begin"], (line["at"], figure_of(line["figure"])))
                elif "end" in line:
                    ended.setdefault(line["end"], figure_of(line["figure"]))
                elif "fault" in line:
                    faults.append((member, line["gpu"], line["fault"]))
                else:
                    done, total = line["done"], line["total"]
    hung = [
        figure
        for key, (at, figure) in begun.items()
        if key not in ended and now_steady_s - at >= HUNG_S
    ]
    return RankFindings(in_order([*ended.values(), *hung]), done, total, tuple(faults))


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    for line in text[: text.rfind("\n") + 1].splitlines():
        yield json.loads(line)
