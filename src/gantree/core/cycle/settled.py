"""Whether all who wait still have the answer of the moment, so that a walk need look at nobody but who came since.

They have as long as none of this happens: more room is free, or may be made (`Awake.versions`); a start is told, a
claim made, or either dropped; a moment comes to ask somebody again; or a quota that has refused somebody who might fit
has more to give.
"""

from gantree.core.cycle.no_room_yet import Moment
from gantree.core.cycle.over import Over
from gantree.core.ledger.ledger import Ledger
from gantree.core.queue.fit_bound import Wakes
from gantree.policy.order import Line


class Settled:
    """The state in which all had their answers: how many changes of queues there had been, when that was, until when it
    holds, in seconds, and the moment for which it does anyway (None: for none). _in_part are lines of which a quota has
    refused some ways, and others have no place.
    """

    def __init__(self, wakes: Wakes, over: Over) -> None:
        self._wakes, self._over = wakes, over
        self._state: tuple[object, ...] = ()
        self._quotas = (-1, -1)
        self._changes, self._at, self._until = 0, 0.0, 0.0
        self._moment: Moment | None = None
        self._in_part: set[Line] = set()

    def settle(
        self,
        ledger: Ledger,
        state: tuple[object, ...],
        now: float,
        until: float,
        moment: Moment | None,
    ) -> None:
        """Everybody has the answer of the moment, and nothing was decided since."""
        self._state, self._quotas = state, ledger.accounts.freed_anywhere()
        self._changes, self._at, self._until = ledger.lines.changes, now, until
        self._moment = moment

    def holds(self, ledger: Ledger, state: tuple[object, ...], moment: Moment) -> bool:
        """Whether none of those who had their answers could get another one."""
        now, _ = moment
        if self._state != state or (now >= self._until and moment != self._moment):
            return False
        if any(self._at < moment <= now for moment in ledger.resting.values()):
            return False
        return not self._may_be_admitted(ledger, now)

    def has_changed(self, ledger: Ledger, queue: int) -> bool:
        """Whether anybody has come to a queue, or gone, since all had their answers: where jobs of a queue go in turn,
        be it one of another user.
        """
        tree, queues = ledger.accounts.tree, [queue]
        if ledger.policy.backfill.overtake == "none" and tree.user[queue] is not None:
            queues = tree.children[tree.parent[queue]]
        return any(ledger.lines.changes_in(each) > self._changes for each in queues)

    def over_in_part(self, line: Line) -> None:
        """The quota has said no to a way of a line, and for another one there was no place."""
        self._in_part.add(line)

    def ask_all(self) -> None:
        """Everybody is asked again who might get another answer."""
        self._in_part.clear()

    def _may_be_admitted(self, ledger: Ledger, now: float) -> bool:
        """Whether somebody who might fit was refused by a quota that may admit him now."""
        if self._quotas == ledger.accounts.freed_anywhere():
            return False
        self._wakes.look(ledger)
        if any(line in ledger.lines for line in self._in_part):
            return True
        lapsed = list(self._over.lapsed(ledger))
        return any(self._wakes.is_told(line) or self._wakes.may_fit(line, now) for line in lapsed)
