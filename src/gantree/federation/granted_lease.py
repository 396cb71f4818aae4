"""The lease of a cluster as the front grants it: when to renew it, and when it must have ended there. Pure.

The cluster counts the end from a stamp of its own clock (`control.federation.lease`), however often and however late it
is sent. The cluster made the stamp before it arrived here, so the lease ends there at the latest lease_s after that
arrival. After that and a margin for clocks that run at other rates, nothing of the lease runs there.

A lease is renewed only after the cluster has listed its jobs and none of them was started elsewhere since: after each
start of the front, and after each new number, the first question carries no stamp. So what the cluster suspended as
the lease ran out is never released there once it was moved.
"""

from dataclasses import dataclass
from typing import Any

from gantree.model.federation import EnforcedBy, Renewal, Stamp


@dataclass(slots=True)
class GrantedLease:
    """ends_at_s and the like are seconds on the front's clock, which cannot be set.

    is_cleared: no job there was moved elsewhere. is_held: the cluster says that it holds the lease. is_known_lost: an
    operator says that nothing runs there.
    """

    federation: str
    cluster: str
    number: int
    lease_s: float
    margin_s: float
    ends_at_s: float
    answered_at_s: float
    enforced_by: EnforcedBy = EnforcedBy.MEMBERS
    stamp: Stamp | None = None
    stamped_at_s: float = float("-inf")
    is_cleared: bool = False
    is_held: bool = False
    is_known_lost: bool = False
    asked_at_s: float = float("-inf")
    trouble: str = ""

    def renewal(self, now_s: float) -> Renewal:
        """What to send now; from here on the cluster may hold the lease for lease_s from the newest stamp on."""
        self.asked_at_s = now_s
        stamp = self.stamp if self.is_cleared else None
        if stamp is not None:
            self.ends_at_s = max(self.ends_at_s, self.stamped_at_s + self.lease_s)
        return Renewal(self.federation, self.number, self.lease_s, stamp)

    def is_due(self, now_s: float, every_s: float) -> bool:
        """Whether to renew now: after a first stamp at once, else every so often."""
        waits_for_stamp = self.is_cleared and not self.is_held and not self.trouble
        return waits_for_stamp or now_s - self.asked_at_s >= every_s

    def answered(
        self,
        stamp: Stamp,
        enforced_by: EnforcedBy,
        now_s: float,
        *,
        granted: bool,
        is_cleared: bool,
    ) -> None:
        """The cluster has answered a renewal of this number."""
        self.stamp, self.stamped_at_s, self.answered_at_s = stamp, now_s, now_s
        self.enforced_by = enforced_by
        self.is_held, self.trouble, self.is_known_lost = granted, "", False
        self.is_cleared = self.is_cleared or is_cleared

    def failed(self, trouble: str) -> None:
        """It has not answered."""
        self.trouble = trouble

    def is_connected(self, now_s: float, lost_after_s: float) -> bool:
        """Whether it answered lately."""
        return now_s - self.answered_at_s < lost_after_s

    def is_over(self, now_s: float) -> bool:
        """Whether nothing of the lease can run there any more."""
        if self.is_known_lost:
            return True
        has_ended = now_s >= self.ends_at_s + self.margin_s
        return has_ended and self.enforced_by is EnforcedBy.MEMBERS

    def begin_next(self) -> None:
        """Take the next number, before anything of the cluster is started elsewhere."""
        self.number += 1
        self.is_cleared = self.is_held = self.is_known_lost = False

    def to_json(self) -> dict[str, Any]:
        """What the store keeps of it."""
        return {"number": self.number, "enforced_by": self.enforced_by.value}
