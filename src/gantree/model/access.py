"""Authorisation rules: powers, the roles that have them, and grants, which give a role on a queue and all below it.

Authentication is elsewhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Flag, auto


class Power(Flag):
    """Permissions on the jobs of a queue, one's own and others', and on the site."""

    SEE_OWN = auto()
    """View one's own jobs: state, placement, why, when."""
    READ_OWN = auto()
    """Read one's own jobs in full: environment, output, records."""
    CHANGE_OWN = auto()
    """Cancel one's own jobs, hold them, scale them and so on."""
    SUBMIT = auto()
    SEE = auto()
    READ = auto()
    CHANGE = auto()
    SUBMIT_FOR = auto()
    """Submit jobs for other users."""
    OPERATE = auto()
    """Change the site: nodes, policy, moves; read metrics and the audit log."""
    ROUTE = auto()
    """Read where replicas of services listen, and report requests to them."""


_VIEWER = Power.SEE_OWN | Power.SEE
_USER = Power.SEE_OWN | Power.READ_OWN | Power.CHANGE_OWN | Power.SUBMIT
_QUEUE_ADMIN = _VIEWER | _USER | Power.READ | Power.CHANGE | Power.SUBMIT_FOR | Power.ROUTE

POWERS_OF_ROLE: dict[str, Power] = {
    "viewer": _VIEWER,
    "user": _USER,
    "queue_admin": _QUEUE_ADMIN,
    "operator": _QUEUE_ADMIN | Power.OPERATE,
    "router": Power.ROUTE,
}
ROLES = tuple(POWERS_OF_ROLE)


@dataclass(frozen=True, slots=True)
class Grant:
    """Powers over a queue and all that are below it; "" is every queue, and the site."""

    powers: Power
    queue: str = ""

    def covers(self, queue: str) -> bool:
        """Return whether the grant covers a queue."""
        return not self.queue or is_within(queue, self.queue)

    def within(self, other: "Grant") -> "Grant | None":
        """Return the intersection with another grant; None if it is empty.

        To operate the site is a power over all queues, so nothing is left of it below one.
        """
        if other.covers(self.queue):
            queue = self.queue
        elif self.covers(other.queue):
            queue = other.queue
        else:
            return None
        powers = self.powers & other.powers
        if queue:
            powers &= ~Power.OPERATE
        return Grant(powers, queue) if powers else None


def grant_of(role: str, queue: str = "") -> Grant:
    """The grant of a role, one of ROLES."""
    return Grant(POWERS_OF_ROLE[role], queue)


def scope_of(role: str, queue: str = "") -> Grant:
    """Return the grants of a token with a role on a queue; "": all roles, on that queue."""
    return Grant(POWERS_OF_ROLE[role or "operator"], queue)


def narrowed(grants: Sequence[Grant], scope: Grant) -> tuple[Grant, ...]:
    """Return the intersection of grants with a scope."""
    return tuple(found for each in grants if (found := each.within(scope)) is not None)


def is_within(queue: str, above: str) -> bool:
    """Return whether a queue is `above`, or below it."""
    return f"{queue}/".startswith(f"{above}/")
