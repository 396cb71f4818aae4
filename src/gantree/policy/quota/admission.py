"""The admission of a job by quotas: within the guarantee, borrowed, or refused with numbers and a sentence."""

from dataclasses import dataclass
from typing import Literal

from gantree.model.verdicts import Gate

RUNNING, WAITING = "running jobs", "waiting jobs"
"""The resources of refusals by a number of jobs."""
_COUNTED = frozenset({"GPUs", "CPUs", "NICs", RUNNING, WAITING})
_IN_WORDS = {"gpus": "GPUs", "cpus": "CPUs", "nics": "NICs", "memory_GiB": "GiB of memory"}


@dataclass(frozen=True, slots=True)
class Admission:
    """The answer of `Quota.room`. state "owed" is within the guarantee; all other fields are set for refusals only.

    gate is LIMIT or QUOTA. name is the node that refuses, for people ("queue research", "cohort all", "ann in
    research"); queue the path of that queue, "" for a cohort. used is the amount of resource in use there, most the
    limit (what is available now, for gate QUOTA), asked the requested amount, short_by the excess. never: it is refused
    even if nothing else runs. reclaim: all of it is guaranteed, so borrowing jobs may be preempted for it.
    may_not_borrow: it is refused because the job may not borrow; used and most are not set then. sentence is what
    `words` says of a refusal by a budget, of which resource is the unit; "" for others.
    """

    state: Literal["owed", "borrowed", "refused"]
    gate: Gate | None = None
    name: str = ""
    queue: str = ""
    resource: str = ""
    used: float = 0.0
    most: float = 0.0
    asked: float = 0.0
    short_by: float = 0.0
    never: bool = False
    reclaim: bool = False
    may_not_borrow: bool = False
    sentence: str = ""

    @property
    def refused(self) -> bool:
        """Whether the job may not start."""
        return self.state == "refused"

    @property
    def within_guarantee(self) -> bool:
        """Whether all of the request is within the guarantee."""
        return self.state == "owed"

    @property
    def may_reclaim(self) -> bool:
        """Whether the job may reclaim what others borrow of its queue's guarantee."""
        return self.within_guarantee or self.reclaim

    @property
    def words(self) -> str:
        """A part of a sentence for people, without a full stop; "" where it is not refused."""
        if not self.refused:
            return ""
        if self.sentence:
            return self.sentence
        if self.may_not_borrow:
            return (
                f"{self.name} would borrow {_figure(self.short_by)} of {much(self.resource, self.asked)}, "
                "and a job that is never preempted must stay within the guarantee"
            )
        fits = max(0.0, self.asked - self.short_by)
        asked = f"{_figure(self.asked)} {'is' if self.asked == 1 else 'are'} asked for"
        if self.never:
            return f"{self.name} may use {much(self.resource, fits)} at most, {asked}"
        if self.gate is Gate.LIMIT:
            return f"{self.name} uses {_figure(self.used)} of its limit of {much(self.resource, self.most)}"
        return f"{self.name} uses {much(self.resource, self.used)} and can have {_figure(fits)} more now, {asked}"


WITHIN_GUARANTEE = Admission("owed")
BORROWED = Admission("borrowed")


def much(resource: str, amount: float) -> str:
    """Return an amount of a resource in words: "1 GPU", "24 GPUs", "512 GiB of memory"."""
    what = in_words(resource)
    one = amount == 1 and what in _COUNTED
    return f"{_figure(amount)} {what.removesuffix('s') if one else what}"


def in_words(resource: str) -> str:
    """Return a resource as people call it: "GPUs", "H100-80GB", "GiB of memory"."""
    return _IN_WORDS.get(resource) or resource.rpartition("/")[2]


def _figure(amount: float) -> str:
    return f"{round(amount, 2):g}" if abs(amount) < 1e6 else f"{amount:.0f}"
