"""Who stands right behind one that has just started, in its line and alike in all but its name.

A walk asks of everybody whether he may go on at all: what the search has refused, what room others might give up, which
ways he has, what his queue says to each, whom he may pass. If nothing was decided since the one before him started but
that start, and that start hung on nothing but room, then so does his: no rule counts anything of their queue, nobody
claims or was told anything, and a gang of one member that is alike goes where `placement.choice.repeat_placement` says.
If it says nowhere, he is asked as everybody is.

Nothing here is needed for correctness: a walk that forgets it decides the same, and a test holds it to that.
"""

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.queue.cell_usage import any_cells
from gantree.model.placements import Placement
from gantree.placement.choice.repeat_placement import placed_again
from gantree.placement.request.preferences import Taste
from gantree.planning.rightsize import chooses
from gantree.policy.order import Line


class RightBehind:
    """The line of the one that started last, and the place of the next of it, looked for once."""

    def __init__(self, taste: Taste) -> None:
        self._taste = taste
        self._line: Line | None = None
        self._applied = -1
        self._found: tuple[str, Placement | None] = ("", None)

    def started(self, ledger: Ledger, line: Line, state: JobState) -> None:
        """A job of a line has started, and that was the last thing that was decided."""
        if line != self._line or ledger.applied != self._applied + 1:
            self._line = line if _hangs_on_room_alone(ledger, state) else None
        self._applied = ledger.applied

    def is_of(self, ledger: Ledger, line: Line) -> bool:
        """Whether somebody of a line might be given a place here."""
        return line == self._line and ledger.applied == self._applied

    def place(self, ledger: Ledger, line: Line, job: str) -> Placement | None:
        """The place of a job that waits for nothing but room; None where it has to be asked as everybody is."""
        if not self.is_of(ledger, line):
            return None
        if self._found[0] != job:
            spec = ledger.jobs[job].spec
            self._found = (job, placed_again(ledger.rooms(), spec, self._taste))
            if self._found[1] is None:
                self._line = None
        return self._found[1]


def _hangs_on_room_alone(ledger: Ledger, state: JobState) -> bool:
    """Whether nothing but free room could have kept a job from starting that has."""
    spec, accounts = state.spec, ledger.accounts
    if spec.elastic is not None or chooses(spec) or ledger.bookings or ledger.claims:
        return False
    return (
        accounts.quota.is_unruled(state.queue)
        and not accounts.rations_models
        and not any_cells(ledger)
    )
