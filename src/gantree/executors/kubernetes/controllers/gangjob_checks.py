"""The checks before the start of GangJobs: which their pods make, and the condition LinksChecked that tells of them."""

from collections.abc import Callable, Mapping
from typing import Any

from gantree.core.view import JobView
from gantree.executors.check_status import CHECKING, CheckStatus
from gantree.executors.kubernetes.pods.gang_spec import InvalidObject, Spec, text
from gantree.executors.kubernetes.pods.link_check import PodCheck, check_in
from gantree.executors.kubernetes.workloads.gangjob import has_links
from gantree.executors.kubernetes.workloads.gangs import DEFAULT_QUEUE
from gantree.model.jobs import Check
from gantree.model.phases import Phase

CONDITION = "LinksChecked"
NEEDS_IMAGE = (
    "this gantree has no image for it (--check-image with --report-url; check.image of the chart)"
)
Json = dict[str, Any]


class GangJobChecks:
    """What GangJobs are checked by. image is that of the check, "" for none; check_of gives the check of a queue."""

    def __init__(
        self,
        image: str,
        check_of: Callable[[str], Check | None],
        status: Callable[[str, int], CheckStatus | None],
    ) -> None:
        """status is how the check of an attempt stands."""
        self._image, self._check_of, self._status = image, check_of, status

    def of(self, spec: Spec) -> PodCheck | None:
        """The check that pods make: its own, or that of its queue; None without links.

        Raises InvalidObject for one that cannot be made.
        """
        own = check_in(spec)
        if own is not None and not self._image:
            raise InvalidObject(f"check is not carried out: {NEEDS_IMAGE}; leave it out")
        check = own or self._check_of(_queue(spec))
        if check is None or not self._image or not (check.soak_s or has_links(spec)):
            return None
        return PodCheck(check, self._image)

    def condition(self, spec: Spec, state: JobView | None, told: Mapping[str, Any]) -> Json | None:
        """The condition without its time; None for a GangJob without a check. Raises InvalidObject.

        Of an attempt that runs and whose check is not known any more, it is what was told.
        """
        if self.of(spec) is None:
            if self._image or self._check_of(_queue(spec)) is None:
                return None
            message = f"the check of queue {_queue(spec)} is not carried out: {NEEDS_IMAGE}"
            return _condition("False", "NotCarriedOut", message)
        status = None if state is None else self._status(state.job, state.attempt)
        if status is not None:
            return _condition_of(status)
        if state is None or state.phase in (Phase.PENDING, Phase.STARTING):
            return _condition("Unknown", "Waiting", "")
        before = told.get("conditions")
        known = before if isinstance(before, list) else ()
        return next((dict(each) for each in known if each.get("type") == CONDITION), None)


def _queue(spec: Spec) -> str:
    return text(spec, "queue") or DEFAULT_QUEUE


def _condition_of(status: CheckStatus) -> Json:
    if status.report is None:
        return _condition("Unknown", CHECKING.capitalize(), "")
    is_passed = status.state == "passed"
    words = "; ".join((status.report["sentence"], *status.report["warnings"]))
    return _condition(str(is_passed), status.state.capitalize(), words)


def _condition(status: str, reason: str, message: str) -> Json:
    return {"type": CONDITION, "status": status, "reason": reason, "message": message}
