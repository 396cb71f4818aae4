"""How far it is known what the GPUs of an attempt did while it ran: in the phase running, and not suspended.

Of each second of a run one report is counted, the first one that covers it, and none that comes LATE_S after it. So
reports may come late, twice or from two sources. What is done since the last checkpoint may be lost, with what was
told of it.
"""

from dataclasses import dataclass, replace

LATE_S = 900.0
"""Of runs that are longer ago nothing more is taken in."""

Span = tuple[float, float]
"""From a moment to another, in seconds of `Event.observed_at`."""


@dataclass(frozen=True, slots=True)
class MeasuredAttempt:
    """What is known of the last attempt of a job.

    runs_since: it has run since then; None: it does not. runs are earlier spans of which nothing was told, told_to is
    up to when something was. unsaved_s are the seconds of earlier spans since the last checkpoint, which was at
    saved_at; unsaved_useful and unsaved_idle the GPU-seconds that were told of them. counted_s are the seconds that
    were told. late_s is of snapshots of older versions.
    """

    counted_s: float = 0.0
    late_s: float = 0.0
    unsaved_useful: float = 0.0
    unsaved_idle: float = 0.0
    runs_since: float | None = None
    runs: tuple[Span, ...] = ()
    told_to: float = 0.0
    saved_at: float = 0.0
    unsaved_s: float = 0.0

    def running(self, at: float, *, runs: bool) -> "MeasuredAttempt":
        """It runs from now on, or it does not."""
        if runs == (self.runs_since is not None):
            return self
        if self.runs_since is None:
            return replace(self, runs_since=at)
        kept = tuple(span for span in self.runs if span[1] > at - LATE_S)
        return replace(
            self,
            runs_since=None,
            runs=(*kept, (self.runs_since, at)),
            unsaved_s=self._unsaved_s(at),
        )

    def untold(self, since: float, until: float, now: float) -> tuple[Span, ...]:
        """The spans between two moments in which it ran and of which nothing was told."""
        first = max(since, self.told_to, now - LATE_S)
        current = () if self.runs_since is None else ((self.runs_since, now),)
        spans = ((max(begin, first), min(end, until)) for begin, end in (*self.runs, *current))
        return tuple((begin, end) for begin, end in spans if begin < end)

    def told(
        self, spans: tuple[Span, ...], until: float, useful: float, idle: float
    ) -> "MeasuredAttempt":
        """These GPU-seconds were told of these spans; of what was before until nothing more is."""
        seconds = sum(end - begin for begin, end in spans)
        unsaved_s = sum(max(0.0, end - max(begin, self.saved_at)) for begin, end in spans)
        part = unsaved_s / seconds if seconds else 0.0
        runs = tuple((max(begin, until), end) for begin, end in self.runs if end > until)
        return replace(
            self,
            counted_s=self.counted_s + seconds,
            unsaved_useful=self.unsaved_useful + useful * part,
            unsaved_idle=self.unsaved_idle + idle * part,
            runs=runs,
            told_to=max(self.told_to, until),
        )

    def saved(self, at: float) -> "MeasuredAttempt":
        """A checkpoint is durable: what was done up to now is kept."""
        return replace(self, saved_at=at, unsaved_s=0.0, unsaved_useful=0.0, unsaved_idle=0.0)

    def ended(self, at: float, lost_s: float) -> tuple["MeasuredAttempt", "Lost"]:
        """Nothing of it is left; of its last lost_s seconds the work is done again."""
        over = self.running(at, runs=False)
        seconds = min(lost_s, over.unsaved_s)
        if seconds <= 0.0:
            return over, NOTHING_LOST
        part = seconds / over.unsaved_s
        lost = Lost(seconds, over.unsaved_useful * part, over.unsaved_idle * part)
        runs = ((begin, min(end, self.saved_at)) for begin, end in over.runs)
        kept = tuple((begin, end) for begin, end in runs if begin < end)
        return replace(over.saved(at), runs=kept), lost

    def _unsaved_s(self, at: float) -> float:
        if self.runs_since is None:
            return self.unsaved_s
        return self.unsaved_s + max(0.0, at - max(self.runs_since, self.saved_at))


@dataclass(frozen=True, slots=True)
class Lost:
    """Seconds of a run whose work is done again, and the GPU-seconds that were told of them."""

    seconds: float = 0.0
    useful_gpu_s: float = 0.0
    idle_gpu_s: float = 0.0


NOT_MEASURED = MeasuredAttempt()
NOTHING_LOST = Lost()
