"""Boosts: higher priority for some jobs until a given time; a job's priority at a time, and when it changes."""

from fnmatch import fnmatchcase
from math import inf

from gantree.model.jobs import Job
from gantree.policy.rules import Boost, Policy


def boost_of(policy: Policy, job: Job, now: float) -> int:
    """What the boosts that have not expired at `now` seconds add to a job's priority."""
    return sum(boost.by for boost in policy.boosts if now < boost.until_s and _is_meant(boost, job))


def next_expiry(policy: Policy, now: float) -> float:
    """The next moment after now at which a boost expires, in seconds; inf if none does."""
    return min((boost.until_s for boost in policy.boosts if boost.until_s > now), default=inf)


def _is_meant(boost: Boost, job: Job) -> bool:
    queue = boost.queue
    in_queue = queue is None or job.queue == queue or job.queue.startswith(queue + "/")
    of_user = boost.user is None or job.user == boost.user
    return in_queue and of_user and (boost.job is None or fnmatchcase(job.name, boost.job))
