"""Which replicas begin and which end: the rule of a rolling update, and of a service that shrinks or grows.

    plan(replicas, wanted, update)     how many to add, and the numbers of those that are to end

It is the rule of a Deployment of Kubernetes, with what matters where a replica takes GPUs. A replica that drains does
not count: it gets no new requests, and ends anyway. Of the others

    there are never more than wanted + surge, and in the end wanted
    ready are never fewer than wanted - unavailable because of a step that is taken here
    old ones (of another revision, or that are to leave their node) that hold no place end at once
    old ones that are not ready end as long as wanted - unavailable others are, beside new ones that are not ready yet
    old ones that are ready end as others become ready

So an update whose new revision never becomes ready stops after its first steps, and the old one serves on. Those that
end first: of the older revision, without a place, not ready, of the highest number. A second plan after the first was
carried out changes nothing. Nothing here knows of a ledger, or of an API server.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gantree.model.services import Update


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """A replica that has not ended. is_placed: it holds a place; is_ready: it answers requests."""

    number: int
    is_current_revision: bool = True
    is_ready: bool = False
    is_draining: bool = False
    is_placed: bool = True


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """So many replicas are to be added, and these are to end, by number."""

    add: int = 0
    end: tuple[int, ...] = ()


def plan(replicas: Sequence[ReplicaStatus], wanted: int, update: Update) -> RolloutPlan:
    """The next step to `wanted` replicas of the current revision. An update that allows nothing may do without one."""
    step = _Step([each for each in replicas if not each.is_draining], wanted, update)
    step.end_superfluous()
    step.end_old()
    return RolloutPlan(step.missing(), tuple(step.ending))


class _Step:
    """One plan in the making: alive are the replicas that stay so far."""

    def __init__(self, alive: list[ReplicaStatus], wanted: int, update: Update) -> None:
        unavailable = update.unavailable if update.surge or update.unavailable else 1
        self.alive, self.wanted = sorted(alive, key=_rank), wanted
        self.most_alive = wanted + update.surge
        self.least_ready = max(0, wanted - unavailable)
        self.ending: list[int] = []

    def end_superfluous(self) -> None:
        """End what is current beyond wanted, and old ones that hold no place."""
        current = [each for each in self.alive if each.is_current_revision]
        self._end(current[: max(0, len(current) - self.wanted)])
        self._end(each for each in self._old() if not (each.is_placed or each.is_ready))

    def end_old(self) -> None:
        """End old ones as far as enough others are ready; and any beyond what may be alive."""
        new_unready = sum(each.is_current_revision and not each.is_ready for each in self.alive)
        spare = max(0, len(self.alive) - self.least_ready - new_unready)
        self._end([each for each in self._old() if not each.is_ready][:spare])
        ready = sum(each.is_ready for each in self.alive)
        spare_ready = max(0, ready - self.least_ready)
        self._end([each for each in self._old() if each.is_ready][:spare_ready])
        too_many = max(0, len(self.alive) - self.most_alive)
        self._end([each for each in self.alive if not each.is_ready][:too_many])

    def missing(self) -> int:
        """How many of the current revision are missing, and may be added."""
        current = len(self.alive) - len(self._old())
        return max(0, min(self.wanted - current, self.most_alive - len(self.alive)))

    def _old(self) -> list[ReplicaStatus]:
        return [each for each in self.alive if not each.is_current_revision]

    def _end(self, these: Iterable[ReplicaStatus]) -> None:
        gone = [each.number for each in these]
        self.ending += gone
        self.alive = [each for each in self.alive if each.number not in gone]


def _rank(replica: ReplicaStatus) -> tuple[bool, bool, bool, int]:
    """The order in which replicas end."""
    return replica.is_current_revision, replica.is_placed, replica.is_ready, -replica.number
