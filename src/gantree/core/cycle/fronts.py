"""The front of each queue: those for whom others are told to leave, and who are told starts.

Who stands behind the front waits for its turn: all of a queue of thousands is looked at for free room, but not for
everybody's victims. Who is held, waits for other jobs or can never fit is not counted.
"""

from collections.abc import Sequence
from math import inf

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.queue.eligibility import eligible
from gantree.placement.choice.search import fits
from gantree.planning.rightsize import chooses
from gantree.policy.order import Line, Standing

FRONT = 32
"""So many of a queue that wait for room and might ever have it are its front, with all that stand between them."""


class Fronts:
    """How many of each queue are its front, counted anew when somebody comes or goes."""

    def __init__(self) -> None:
        self._fabric: object = None
        self._ever_fits: dict[int, bool] = {}
        self._sizes: dict[int, tuple[int, float, int]] = {}

    def of(self, ledger: Ledger, queue: int, now: float) -> Sequence[Standing]:
        """The front of a queue, in order."""
        return ledger.lines.in_queue(queue)[: self._size(ledger, queue, now)]

    def has(self, ledger: Ledger, standing: Standing, now: float) -> bool:
        """Whether a job is in the front of its queue."""
        waiting = ledger.lines.in_queue(standing.line.queue)
        size = self._size(ledger, standing.line.queue, now)
        return len(waiting) <= size or standing <= waiting[size - 1]

    def has_any_of(self, ledger: Ledger, line: Line, now: float) -> bool:
        """Whether the first of a line is in the front of its queue."""
        return ledger.lines.stands_before(line, self._size(ledger, line.queue, now))

    def _size(self, ledger: Ledger, queue: int, now: float) -> int:
        waiting = ledger.lines.in_queue(queue)
        if len(waiting) <= FRONT:
            return FRONT
        self._follow(ledger)
        known = self._sizes.get(queue)
        changes = ledger.lines.changes_in(queue)
        if known is None or known[0] != changes or now >= known[1]:
            known = self._sizes[queue] = (changes, *self._count(ledger, waiting, now))
        return known[2]

    def _count(self, ledger: Ledger, waiting: Sequence[Standing], now: float) -> tuple[float, int]:
        """(until when a front stays as it is, but for who comes and goes, how many it is)."""
        found, size, until = 0, 0, inf
        for standing in waiting:
            state = ledger.jobs[standing.position.job]
            if state.not_before > now:
                until = min(until, state.not_before)
            found += eligible(ledger, state, now) and self.may_ever_fit(ledger, state)
            size += 1
            if found == FRONT:
                break
        return until, size

    def may_ever_fit(self, ledger: Ledger, state: JobState) -> bool:
        """Whether the empty, healthy fabric holds a gang; of one with a choice of sizes or models that is not asked."""
        self._follow(ledger)
        known = self._ever_fits.get(state.signature)
        if known is None:
            spec = state.spec
            several = spec.elastic is not None or chooses(spec) or ledger.accounts.rations_models
            known = several or fits(ledger.rooms().emptied(), spec)
            self._ever_fits[state.signature] = known
        return known

    def _follow(self, ledger: Ledger) -> None:
        """Forget all where the fabric is another one."""
        if self._fabric is not ledger.rooms().fabric:
            self._fabric = ledger.rooms().fabric
            self._ever_fits.clear()
            self._sizes.clear()
