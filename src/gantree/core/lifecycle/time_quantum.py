"""Time slices on shared GPUs: which gang computes for the next quantum, and which are suspended in place.

Jobs of the classes in `Policy.time_sharing` that hold shares of one GPU in turns ("time-slicing") do not compute at the
same time: one has its turn, the others keep their place and their memory and wait. A gang computes with all its
members or with none, so it needs the turn on all its GPUs at once; two gangs that have a GPU in common are *rivals*.
Jobs of other classes that share the same GPU are no party to this: they always compute.

Who computes from a moment on, in this order, each one if no rival was chosen before it:

1. Gangs that were asked to save before they are stopped: they compute until they are gone, whoever else does.
2. Gangs whose turn has not ended yet.
3. Gangs that wait, the longest first. One that cannot have its turn yet, for a rival of kind 1 or 2 or for one that has
   waited longer, keeps its GPUs from those that have waited less. Or a gang of two GPUs would starve where the turns
   on each never end together.
4. Gangs whose turn has ended: they go on while nobody can take over.

A turn begins with `GangResumed`, or where the gang is placed and nobody minds. Its end means something only to rivals
that wait: a gang without rivals is never suspended. One that was just placed waits like any other, since then.

From these rules: no two rivals compute at once, unless one is saving or being stopped; whoever has waited longest among
its rivals waits one quantum more at most; and what was chosen is chosen again if it is asked again at once.

A gang that is told to stop or to save is resumed, since a stopped process hears no signal but SIGKILL. Suspended
seconds do not count as run time: a limit is enforced on what the job could use. The gangs of a ledger are in
`core.lifecycle.time_slicing`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Gpu = tuple[str, int]
"""A node and the index of a GPU on it."""


@dataclass(frozen=True, slots=True)
class TimeSlicedGang:
    """A gang that takes turns on its GPUs. Times in seconds.

    since is when it was last suspended or resumed, or placed if it was neither. turn_ends_at is of its present turn, if
    it computes. leaving: it was asked to save. new: it was placed at this very moment.
    """

    job: str
    seq: int
    gpus: frozenset[Gpu]
    since: float
    turn_ends_at: float
    suspended: bool = False
    leaving: bool = False
    new: bool = False

    @property
    def waits(self) -> bool:
        """Whether it stands in the line for a turn."""
        return (self.suspended or self.new) and not self.leaving

    def rivals(self, others: Iterable["TimeSlicedGang"]) -> bool:
        """Whether it has a GPU in common with any of these."""
        return any(not self.gpus.isdisjoint(other.gpus) for other in others)


@dataclass(frozen=True, slots=True)
class TurnChange:
    """Job ids whose time slice ends, and whose begins."""

    suspend: tuple[str, ...]
    resume: tuple[str, ...]


def next_turns(gangs: Sequence[TimeSlicedGang], now: float) -> TurnChange:
    """Return which gangs to suspend and to resume at a time in seconds, given all that share GPUs."""
    leaving = [each for each in gangs if each.leaving]
    staying = [each for each in gangs if not each.leaving and not each.waits]
    in_turn = sorted((each for each in staying if each.turn_ends_at > now), key=_by_end)
    over = sorted((each for each in staying if each.turn_ends_at <= now), key=_by_end)
    waiting = sorted((each for each in gangs if each.waits), key=_by_waiting)
    taken = {gpu for each in leaving for gpu in each.gpus}
    chosen = leaving + _first_come(in_turn, taken) + _in_waiting_order(waiting, taken)
    longer = _first_come(over, taken)
    computes = {each.job for each in chosen + longer}
    lost = [each for each in gangs if each.job not in computes]
    lost_now = [each for each in lost if not each.waits]
    begins = [each for each in chosen if each.suspended or (each.new and each.rivals(lost))]
    begins += [each for each in longer if each.rivals(lost_now)]
    return TurnChange(
        tuple(each.job for each in lost if not each.suspended),
        tuple(each.job for each in begins),
    )


def next_end(gangs: Sequence[TimeSlicedGang], now: float) -> float | None:
    """Return the first end of a time slice after now for which a rival waits, in seconds."""
    wanted = {gpu for each in gangs if each.suspended for gpu in each.gpus}
    ends = [
        each.turn_ends_at
        for each in gangs
        if not each.suspended and not each.leaving and each.turn_ends_at > now
        if not each.gpus.isdisjoint(wanted)
    ]
    return min(ends, default=None)


def _by_end(gang: TimeSlicedGang) -> tuple[float, int]:
    return gang.turn_ends_at, gang.seq


def _by_waiting(gang: TimeSlicedGang) -> tuple[float, int]:
    return gang.since, gang.seq


def _first_come(gangs: Iterable[TimeSlicedGang], taken: set[Gpu]) -> list[TimeSlicedGang]:
    """Select the gangs whose GPUs are not taken by earlier ones."""
    chosen = []
    for gang in gangs:
        if taken.isdisjoint(gang.gpus):
            chosen.append(gang)
            taken |= gang.gpus
    return chosen


def _in_waiting_order(waiting: Iterable[TimeSlicedGang], taken: set[Gpu]) -> list[TimeSlicedGang]:
    """As `_first_come`, but whoever must wait on keeps its GPUs from those behind it."""
    chosen, kept = [], set[Gpu]()
    for gang in waiting:
        if taken.isdisjoint(gang.gpus) and kept.isdisjoint(gang.gpus):
            chosen.append(gang)
            taken |= gang.gpus
        else:
            kept |= gang.gpus
    return chosen
