"""The lease of a federation as its cluster holds it: when a renewal counts, and how long the lease lasts. Pure.

A front may start a job of this cluster elsewhere only once nothing of it runs here. It cannot ask a cluster that it
does not reach, so all its jobs here are bound to one lease, which the front renews every few seconds. A lease that is
not renewed ends, here and without anybody's help; the front waits until it must have ended.

The end is counted from a stamp of this cluster's own clock that the front sends back, never from the moment at which
a renewal arrives. So a renewal may be late, come twice or overtake another: the lease never ends later than the front
believes, which counts from the moment at which it sent the renewal, after it had received the stamp. No two clocks are
compared; they only have to run at about the same rate.

A lease has a number. The front takes a higher one before it starts a job of this cluster elsewhere, and the cluster
obeys no lower one than it has seen: what was sent under an earlier lease, and arrives late, does nothing.
"""

from dataclasses import dataclass, replace

from gantree.model.errors import Conflict
from gantree.model.federation import Renewal, Stamp

NEVER = Stamp("", 0.0)


@dataclass(frozen=True, slots=True)
class Lease:
    """until is when it ends; a moment of another boot is past. suspended are jobs that were stopped as it ran out."""

    federation: str
    number: int
    lease_s: float
    until: Stamp = NEVER
    suspended: tuple[str, ...] = ()

    def remaining_s(self, now: Stamp) -> float:
        """Seconds until it ends; 0 once it has."""
        return max(0.0, self.until.at_s - now.at_s) if self.until.boot == now.boot else 0.0

    def is_valid(self, now: Stamp) -> bool:
        """Whether it has not ended."""
        return self.remaining_s(now) > 0.0

    def is_running_out(self, now: Stamp) -> bool:
        """Whether more than half of it has passed without a renewal: then jobs are saved and stopped."""
        return self.remaining_s(now) <= self.lease_s / 2


def renewed(lease: Lease | None, asked: Renewal, now: Stamp) -> Lease:
    """The lease after a renewal; one without a stamp of this boot changes no end.

    Raises Conflict for another federation's, and for a number that is over, or that comes too early.
    """
    if lease is None:
        lease = Lease(asked.federation, asked.number, asked.lease_s)
    _check(lease, asked, now)
    if (lease.federation, lease.number) != (asked.federation, asked.number):
        if asked.stamp is None:
            return lease
        lease = Lease(asked.federation, asked.number, asked.lease_s, suspended=lease.suspended)
    if asked.stamp is None or asked.stamp.boot != now.boot:
        return lease
    until = Stamp(now.boot, asked.stamp.at_s + asked.lease_s)
    if lease.until.boot == now.boot and lease.until.at_s >= until.at_s:
        return lease
    return replace(lease, lease_s=asked.lease_s, until=until)


def _check(lease: Lease, asked: Renewal, now: Stamp) -> None:
    ends = f"its lease ends in {lease.remaining_s(now):.0f} s unless it is renewed"
    if asked.federation != lease.federation and lease.is_valid(now):
        raise Conflict(f"this cluster is in federation {lease.federation}; {ends}")
    if asked.federation == lease.federation and asked.number < lease.number:
        raise Conflict(f"lease {asked.number} is over: this cluster has seen lease {lease.number}")
    if asked.number > lease.number and lease.is_valid(now):
        raise Conflict(f"lease {asked.number} comes too early: lease {lease.number} holds, {ends}")


def check_assignment(lease: Lease | None, federation: str, number: int, now: Stamp) -> None:
    """Raise Conflict unless a job may be taken under this lease."""
    if lease is None or (lease.federation, lease.number) != (federation, number):
        held = "none" if lease is None else f"lease {lease.number} of federation {lease.federation}"
        raise Conflict(f"lease {number} of federation {federation} is not held here: {held} is")
    if lease.is_running_out(now):
        raise Conflict(f"lease {number} of federation {federation} runs out, and nothing is taken")
