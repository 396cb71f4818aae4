"""The program of one rank of a check: `python -m gantree.telemetry.checking.rank SPEC.json LOCAL_INDEX`.

All ranks go through the same sets of groups, one set after the other; the groups of a set are timed side by side on
GPUs, and one at a time on CPUs, which they share. Rank 0 says before each set whether there is time for it. Each rank
appends what it begins and ends to a file of its own in the shared folder, a JSON object a line, so that a collective
that never ends is known by its group. A GPU that cannot compute ends its rank with LOCAL_FAULT before it meets others.

It imports torch, which is an optional dependency; nothing imports this module.
"""

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from gantree.telemetry.checking.figures import COMPUTE, GANG, GPUS, MEMBER, MEMORY, PAIR, Figure
from gantree.telemetry.checking.judge import SHORT_OF_PEERS, SHORT_OF_PRICE
from gantree.telemetry.checking.rank_files import append, rank_file
from gantree.telemetry.checking.rounds import rounds
from gantree.telemetry.checking.soak import Faulty, is_device_fault, soak
from gantree.telemetry.checking.spec import CheckSpec, read_spec
from gantree.telemetry.measuring.fit import busbw_GBps
from gantree.telemetry.measuring.lifetime import end_with_parent
from gantree.telemetry.measuring.timing import series

LOCAL_FAULT = 5
"""Exit status of a rank whose own device is at fault."""
COLLECTIVE = "all_reduce"


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that are timed together, and what a figure says of them."""

    ranks: tuple[int, ...]
    figure: Figure

    @property
    def key(self) -> str:
        """What lines about it begin with."""
        return f"{self.figure.kind} {self.figure.members} {self.figure.gpus}"


def main() -> None:
    """Take part as the rank that the arguments name."""
    told = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    spec, local = read_spec(Path(told["check"])), int(sys.argv[2])
    end_with_parent(told["seconds"], os.getppid())
    rank = spec.first_rank + local
    file = rank_file(spec, rank)
    device = _device(spec, local, file)
    dist.init_process_group(
        "nccl" if spec.cuda else "gloo",
        init_method=f"tcp://{spec.address}:{spec.port}",
        rank=rank,
        world_size=spec.world,
        timeout=timedelta(seconds=told["seconds"]),
    )
    _Rank(spec, rank, local, device, told["until_steady_s"]).go_through()
    dist.destroy_process_group()


def _device(spec: CheckSpec, local: int, file: Path) -> torch.device:
    """The device of this rank, once it has computed something. Ends the process where it cannot."""
    if not spec.cuda:
        return torch.device("cpu")
    seen = torch.cuda.device_count()
    if seen <= local:
        sys.exit(f"PyTorch sees {seen} GPUs here, and is to check GPU {local}")
    try:
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
        ones = torch.ones(256, 256, device=device)
        if float((ones @ ones).sum().item()) != 256.0**3:
            raise Faulty("a product of matrices is wrong")
    except (Faulty, RuntimeError) as error:
        end_at_fault(file, local, error)
    return device


def end_at_fault(file: Path, local: int, error: Exception) -> NoReturn:
    """End the process; where the device is at fault, say so first. Otherwise it may be the installation, or memory."""
    words = (str(error).splitlines() or [type(error).__name__])[0][:300]
    if not is_device_fault(error):
        sys.exit(f"GPU {local}: {words}")
    append(file, {"fault": words, "gpu": local})
    os._exit(LOCAL_FAULT)


class _Rank:
    """One rank on its way through the sets."""

    def __init__(
        self, spec: CheckSpec, rank: int, local: int, device: torch.device, until_s: float
    ) -> None:
        self._spec, self._rank, self._local = spec, rank, local
        self._device, self._until_s = device, until_s
        self._file = rank_file(spec, rank)
        self._control = dist.new_group(backend="gloo") if spec.cuda else None
        self._figures: list[Figure] = []
        self._done = 0

    def go_through(self) -> None:
        """Time all sets, as far as there is time; then the GPUs of members that are short."""
        if self._spec.soak_s:
            self._soak()
        sets = list(_sets(self._spec))
        total = len(sets)
        for groups in sets:
            if not self._may_begin():
                return
            self._time(groups)
            self._done += 1
            if self._rank == 0:
                self._write({"done": self._done, "total": total})
        for groups in _gpu_sets(self._spec, _short_members(self._figures)):
            if not self._may_begin():
                return
            self._time(groups)

    def _soak(self) -> None:
        """Compute and copy alone, all ranks at once. A device that does it wrongly ends the process."""
        try:
            found = soak(self._device, min(self._spec.soak_s, self._until_s - time.monotonic()))
        except (Faulty, RuntimeError) as error:
            end_at_fault(self._file, self._local, error)
        member = self._spec.index
        for kind, rate in ((COMPUTE, found.TFLOPS), (MEMORY, found.memory_GBps)):
            figure = Figure(kind, (member,), rate, None, (self._local,))
            self._write({"end": f"{kind} {member} {self._local}", "figure": figure.to_json()})

    def _may_begin(self) -> bool:
        return bool(self._shared(time.monotonic() < self._until_s)[0])

    def _shared(self, mine: Any) -> list[Any]:
        """What each rank has, by rank. It goes over TCP also where collectives are timed over NCCL."""
        found: list[Any] = [None] * self._spec.world
        dist.all_gather_object(found, mine, group=self._control)
        return found

    def _time(self, groups: Iterable[Group]) -> None:
        """Time the groups of a set side by side; all ranks have the figures then."""
        mine: Figure | None = None
        for group in groups:
            handle = dist.new_group(list(group.ranks))
            if self._rank in group.ranks:
                figure = self._timed(group, handle)
                mine = figure if self._rank == group.ranks[0] else None
        self._figures += [each for each in self._shared(mine) if each is not None]

    def _timed(self, group: Group, handle: Any) -> Figure:
        size = self._spec.size_bytes
        self._write({"begin": group.key, "at": time.monotonic(), "figure": group.figure.to_json()})
        found = series(COLLECTIVE, group.ranks, handle, [size], self._device)
        if "unsupported" in found:
            raise RuntimeError(found["unsupported"])
        (size_bytes, time_s), *_ = found["times"]
        rate = busbw_GBps(COLLECTIVE, len(group.ranks), size_bytes, time_s)
        told = group.figure
        figure = Figure(told.kind, told.members, rate, told.expected, told.gpus)
        self._write({"end": group.key, "figure": figure.to_json()})
        return figure

    def _write(self, line: dict[str, Any]) -> None:
        append(self._file, line)


def _sets(spec: CheckSpec) -> Iterator[list[Group]]:
    """What is timed of every gang: members, pairs of members, all."""
    expected, count = spec.expected, len(spec.members)
    inside = [
        Group(spec.ranks_of(m), Figure(MEMBER, (m,), None, expected.of_member.get(m)))
        for m in range(count)
        if spec.processes[m] > 1
    ]
    between = [
        [
            Group(
                spec.ranks_of(a) + spec.ranks_of(b),
                Figure(PAIR, (a, b), None, expected.of_pair.get((a, b))),
            )
            for a, b in pairs
        ]
        for pairs in rounds(count)
    ]
    for groups in [inside, *between]:
        yield from _side_by_side(spec, groups)
    if count > 2:
        everybody = tuple(range(spec.world))
        yield [Group(everybody, Figure(GANG, tuple(range(count)), None, expected.gang))]


def _side_by_side(spec: CheckSpec, groups: list[Group]) -> Iterator[list[Group]]:
    if spec.cuda and groups:
        yield groups
    elif groups:
        yield from ([group] for group in groups)


def _short_members(figures: Iterable[Figure]) -> list[int]:
    """Members of which the all-reduce inside is below its price, or below that of the best member."""
    inside = [each for each in figures if each.kind == MEMBER and each.measured is not None]
    best = max((each.measured or 0.0 for each in inside), default=0.0)
    return [
        each.members[0]
        for each in inside
        if (each.measured or 0.0)
        < (SHORT_OF_PRICE * each.expected if each.expected else SHORT_OF_PEERS * best)
    ]


def _gpu_sets(spec: CheckSpec, members: Iterable[int]) -> Iterator[list[Group]]:
    for member in members:
        ranks = spec.ranks_of(member)
        for pairs in rounds(len(ranks)) if spec.cuda and len(ranks) > 2 else ():
            yield [
                Group(
                    (ranks[a], ranks[b]),
                    Figure(
                        GPUS, (member,), None, spec.expected.of_gpus.get((member, (a, b))), (a, b)
                    ),
                )
                for a, b in pairs
            ]


if __name__ == "__main__":
    main()
