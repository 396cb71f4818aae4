"""When a gang counts as idle, and what becomes of it: the rule of a queue, and the terms of a job.

Times are seconds. The samples of counters are in `control.nodes.idle_watch`, the state of a gang in
`core.lifecycle.idleness`.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, get_args

from gantree.model.jobs import Job

IdleAction = Literal["requeue", "shrink", "smaller", "stop", "warn"]
"""requeue: save, stop and wait again. shrink: to the fewest members of an elastic gang. smaller: to the slowest GPU
model that the job accepts. stop: save and end. warn: nothing more. A gang that cannot shrink or move is requeued."""
ACTIONS: tuple[str, ...] = get_args(IdleAction)

LONGEST_WINDOW_S = 300.0
"""The longest span over which it is judged whether a gang is idle."""
LONGEST_NOTICE_S = 300.0
"""An autostop is announced so long before it comes, or half its time if that is less."""


@dataclass(frozen=True, slots=True)
class IdleExempt:
    """Jobs that are never warned nor reclaimed: of these classes, users, or names (patterns such as "notebook-*")."""

    priorities: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()

    def covers(self, job: Job) -> bool:
        """Whether a job is exempt."""
        named = any(fnmatchcase(job.name, pattern) for pattern in self.jobs)
        return named or job.priority in self.priorities or job.user in self.users


@dataclass(frozen=True, slots=True)
class IdleRule:
    """The rule of a queue. A gang is idle while its GPUs compute for at most the share `below` of the time.

    Its clock starts at the last sample at which it computed, and not before it has run for grace_s. It is warned
    after warn_s, and after reclaim_s the action is taken. longest_lease_s is the longest lease that a user may give
    a job. times: a job that was reclaimed so often is held until it is released.
    """

    below: float = 0.05
    warn_s: float = 600.0
    reclaim_s: float = 900.0
    action: IdleAction = "requeue"
    grace_s: float = 600.0
    longest_lease_s: float = 86_400.0
    times: int = 3
    exempt: IdleExempt = IdleExempt()


DEFAULT_RULE = IdleRule()
"""What an autostop takes its share, its grace and the longest lease from where the queue has no rule."""


@dataclass(frozen=True, slots=True)
class IdleTerms:
    """What holds for one job: the rule of its queue, or its own autostop where that comes first."""

    below: float
    warn_s: float
    reclaim_s: float
    action: IdleAction
    grace_s: float
    lease_s: float

    @property
    def notice_s(self) -> float:
        """The least time between a warning and what it warns of."""
        return self.reclaim_s - self.warn_s

    @property
    def window_s(self) -> float:
        """The span over which the share of the time that computes is taken: at most half the time until a warning."""
        return min(LONGEST_WINDOW_S, self.warn_s / 2)


def terms_of(rule: IdleRule | None, job: Job) -> IdleTerms | None:
    """What holds for a job in a queue of this rule; None for a job that is neither warned nor stopped.

    A replica of a service never is: without requests it is idle, but how many there are its service decides.
    """
    if job.service is not None:
        return None
    if rule is not None and rule.exempt.covers(job):
        rule = None
    own, base = job.idle, rule or DEFAULT_RULE
    lease_s = 0.0 if own is None or own.lease_s is None else min(own.lease_s, base.longest_lease_s)
    stop_s = None if own is None else own.stop_s
    rules_first = rule is not None and rule.action != "warn"
    if stop_s is not None and not (rules_first and base.reclaim_s <= stop_s):
        warn_s = stop_s - min(LONGEST_NOTICE_S, stop_s / 2)
        return IdleTerms(base.below, warn_s, stop_s, "stop", base.grace_s, lease_s)
    if rule is None:
        return None
    return IdleTerms(rule.below, rule.warn_s, rule.reclaim_s, rule.action, rule.grace_s, lease_s)
