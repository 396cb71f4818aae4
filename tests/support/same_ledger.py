"""Whether two ledgers are the same, down to every attribute that is not a cache: where they are not, which.

Orders of dictionaries count, but for those in which nobody looks in order. A new attribute of anything in a ledger is
compared from its first day; one that may be forgotten is to be named here.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from gantree.core.ledger.accounts.consumption import Consumption
from gantree.core.ledger.accounts.guarantees import Guarantees
from gantree.core.ledger.accounts.projected_quota import ProjectedQuota
from gantree.core.ledger.claims_by_node import ClaimsByNode
from gantree.core.ledger.job_amounts import JobAmounts
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import CLAIM, RESERVATION, JobState
from gantree.model.phases import Phase
from gantree.model.placements import MemberPlacement
from gantree.policy.quota.borrowing import Borrowing, Holding
from gantree.policy.quota.quota import Quota
from gantree.policy.share import Shares
from gantree.policy.waiting_jobs import WaitingJobs
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.numa import NumaUse
from gantree.topology.occupancy.gpus.split_gpus import SplitGpus
from gantree.topology.occupancy.host_resources import HostResources
from gantree.topology.occupancy.occupancy import Occupancy
from gantree.topology.occupancy.spares import Spares

CACHES: dict[type, frozenset[str]] = {
    Ledger: frozenset(),
    Consumption: frozenset({"_last"}),
    JobAmounts: frozenset(
        {"_requested_of_signature", "_least_of_signature", "_fabric", "_held_last"}
    ),
    Guarantees: frozenset(
        {"_quota", "_amounts", "_guaranteed_queues", "_within", "_within_on_any_model"}
    ),
    ClaimsByNode: frozenset({"_number_of", "_next"}),
    ProjectedQuota: frozenset({"_gives_way", "_queues", "_ranked"}),
    Quota: frozenset({"_releases", "_usage", "_unruled", "_left_of"}),
    Shares: frozenset({"_weighted_last", "_settled"}),
    Borrowing: frozenset({"_found_under", "_found_last", "_came", "_pushed_out"}),
    WaitingJobs: frozenset({"_columns_of_queue", "changes"}),
    Spares: frozenset({"fabric"}),
    Occupancy: frozenset({"indexes", "_emptied", "log"}),
    SplitGpus: frozenset({"_fabric", "_free", "_holders"}),
    HostResources: frozenset({"book_of_node"}),
}
"""What is made again when it is asked for, counters that only say whether it must be, and fabrics of older labels."""

ANY_ORDER = frozenset(
    {
        "_holders_of_priority", "newest_of_name", "_node_of_user", "_node_of_queue", "_node_of_cohort",
        "jobs", "alive", "gated", "of_user",
        "parts_of_node", "states_of_node", "numa_of_node", "holders_on_node", "held_back",
        "_ranked_under", "_holdings", "_gangs", "_closed", "_closed[]", "ticks_held", "tick_seconds", "at_start[]",
        "_holding_in_queue", "_on_node", "_on_node[]", "_uses[]",
    }
)  # fmt: skip
"""Dictionaries that are only ever asked for one key; "[]": those inside of one."""


LEAVE_ENTRIES = frozenset(
    {
        "numa_of_node", "holders_on_node", "_ranked_under",
        "_holding_in_queue",
    }
)  # fmt: skip
"""Dictionaries in which entries that say nothing may stay behind, as may the last ones of `_uses`."""


OF_HISTORY = frozenset(
    {
        "owners", "holders_on_node[]", "_positions_of_class", "_classes_of_signature", "_classes_of_signature[]",
        "_entries_in_queue", "resting",
    }
)  # fmt: skip
"""Dictionaries in the order in which things came, which a fold tells otherwise than those who decided them."""


COUNTS = frozenset({"room_version", "free_version", "holders_version"})
"""Numbers of a ledger that say only that something has changed, to whom the policy tells what to count."""


HELD_FOR = (f"owners['{CLAIM}", f"owners['{RESERVATION}")
"""Where a ledger says what is held for whom. In which order that came free says nothing: a plan gives it back for a
moment, and takes it anew."""


def differences(one: Ledger, other: Ledger, *, any_order: bool = False) -> list[str]:
    """Where two ledgers differ, in words; empty if they are the same.

    any_order: leaving aside in which order things came, as ledgers of different policies may.
    """
    used = frozenset(state.signature for state in one.jobs.values())
    comparison = _Comparison(ANY_ORDER | OF_HISTORY if any_order else ANY_ORDER, used)
    return list(comparison.differ("ledger", one, other))


class _Comparison:
    """One comparison; of the dictionaries named any_order the order does not count, used are signatures of jobs."""

    def __init__(self, any_order: frozenset[str], used: frozenset[int]) -> None:
        self._any_order, self._used = any_order, used

    def differ(self, where: str, one: Any, other: Any) -> Iterator[str]:
        """Yield every difference below a place."""
        if one is other:
            return
        if type(one) is not type(other) and not isinstance(one, Mapping | int | float):
            yield f"{where}: {one!r} is not {other!r}"
        elif isinstance(one, Fabric):
            yield from self.differ(f"{where}.cluster", one.cluster, other.cluster)
        elif isinstance(one, Shares) and one.half_life_s is other.half_life_s is None:
            yield from self.differ(f"{where} of what is held", _held(one), _held(other))
        elif (told := _told(where, one)) is not None:
            yield from self.differ(where, told, _told(where, other))
        elif isinstance(one, np.ndarray | memoryview):
            if not np.array_equal(np.asarray(one), np.asarray(other)):
                yield f"{where}: {np.asarray(one)} is not {np.asarray(other)}"
        elif isinstance(one, Mapping):
            yield from self._in_keys(where, one, other)
        elif isinstance(one, list | deque | tuple):
            yield from self._in_order(where, one, other)
        elif _is_plain(one):
            if one != other:
                yield f"{where}: {one!r} is not {other!r}"
        else:
            yield from self._in_attributes(where, one, other)

    def _in_keys(
        self, where: str, one: Mapping[Any, Any], other: Mapping[Any, Any]
    ) -> Iterator[str]:
        name = where.rpartition(".")[2]
        ours, theirs = list(one), list(other)
        if (
            name == "number_of"
        ):  # what no job asks for any more a fold may still know, and a snapshot does not
            ours = [key for key in ours if one[key] in self._used]
            theirs = [key for key in theirs if other[key] in self._used]
        if name in LEAVE_ENTRIES:
            ours, theirs = (
                [k for k in ours if _says(one[k])],
                [k for k in theirs if _says(other[k])],
            )
        outer, inside, _ = name.partition("[")
        if outer + ("[]" if inside else "") in self._any_order:
            ours, theirs = sorted(ours), sorted(theirs)
        if ours != theirs:
            yield f"{where} has {ours}, not {theirs}"
            return
        for key in ours:
            yield from self.differ(f"{where}[{key!r}]", one[key], other[key])

    def _in_order(self, where: str, one: Any, other: Any) -> Iterator[str]:
        if where.endswith("._uses"):
            one, other = [each for each in one if each], [each for each in other if each]
        if len(one) != len(other):
            yield f"{where}: {one!r} is not {other!r}"
            return
        for place, (ours, theirs) in enumerate(zip(one, other, strict=True)):
            yield from self.differ(f"{where}[{place}]", ours, theirs)

    def _in_attributes(self, where: str, one: Any, other: Any) -> Iterator[str]:
        caches = CACHES.get(type(one), frozenset())
        if isinstance(one, JobState) and one.phase is not Phase.PENDING:
            caches = frozenset(
                {"equivalence_class"}
            )  # where a job stood that waits no more is nobody's concern
            if self._any_order > OF_HISTORY:
                caches = frozenset({"equivalence_class", "position"})
        if isinstance(one, Ledger) and self._any_order > OF_HISTORY:
            caches |= COUNTS
        for name, value in vars_of(one).items():
            if name not in caches:
                yield from self.differ(f"{where}.{name}", value, getattr(other, name))


def _as_sets(member: MemberPlacement) -> tuple[Any, ...]:
    """What is held for a member, in an order of its own."""
    values = vars_of(member).values()
    return tuple(sorted(map(repr, each)) if isinstance(each, tuple) else each for each in values)


def _told(where: str, value: Any) -> Any:
    """What is compared in place of a value; None for the value itself.

    Of what a job holds of a quota, all but the books, which are compared once.
    """
    if isinstance(value, Holding):
        return value.path, [(book.resource, ticks) for book, ticks in value.parts], value.rank
    if (
        isinstance(value, tuple)
        and where.endswith("']")
        and any(held in where for held in HELD_FOR)
    ):
        return sorted((_as_sets(member) for member in value), key=repr)
    return None


def _held(shares: Shares) -> list[tuple[Any, ...]]:
    """What shares without a half-life go by: what was, and when, says nothing."""
    return sorted((one.path, one.resource, one.held) for one in shares.kept() if one.held)


def _is_plain(value: Any) -> bool:
    if isinstance(value, str | int | float | Set) or value is None:
        return True
    return (
        is_dataclass(value)
        and type(value).__eq__ is not object.__eq__
        and bool(type(value).__hash__)
    )


def _says(value: Any) -> bool:
    return any(map(any, value.held)) if isinstance(value, NumaUse) else bool(value)


def vars_of(value: Any) -> dict[str, Any]:
    """The attributes of an object, be they slots or not."""
    if is_dataclass(value):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    attributes: dict[str, Any] = vars(value)
    return attributes
