"""Bindings that land after they were given up: the server took them when nobody waited for the answer any more.

So are pods in whose place another was put while they could not be reached.

A write that is on its way cannot be called back. So what it bound is told apart by its marks, when it is seen: it is of
an attempt that the ledger has seen the end of, and would run on beside the next one. It is deleted, and until it is
gone it holds its room as others do.
"""

import logging

from gantree.core.view import LedgerView
from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.controllers.attempt_controller import AGAIN_S
from gantree.executors.kubernetes.pods.annotations import member_annotation
from gantree.executors.kubernetes.watch.api_thread import ApiThread
from gantree.model.phases import HOLDING

log = logging.getLogger(__name__)


class LateBindings:
    """Pods that were bound too late and are to go, by uid, each with when it is asked to next."""

    def __init__(self, api: ApiThread) -> None:
        self._api = api
        self._due: dict[str, tuple[float, Pod]] = {}

    def update(self, pod: Pod, decided: LedgerView, *, gone: bool) -> None:
        """A bound pod of no attempt that counts is like this, or is gone."""
        uid = pod.metadata.uid
        if gone or not is_late(pod, decided):
            self._due.pop(uid, None)
        elif uid not in self._due:
            log.warning("pod %s was bound too late: it is deleted", pod.metadata.name)
            self._due[uid] = (float("-inf"), pod)

    def step(self, now: float) -> None:
        """Have those deleted whose time has come."""
        for uid, (due_at, pod) in self._due.items():
            if due_at <= now:
                self._due[uid] = (now + AGAIN_S, pod)
                self._api.delete(pod.metadata.namespace, pod.metadata.name, uid, None)


def is_late(pod: Pod, decided: LedgerView) -> bool:
    """Whether a bound pod that nobody has deleted yet is of an attempt which is over, of a job that is known.

    Of a later attempt than the ledger knows it is none of ours to judge: whoever leads by now has bound it.
    """
    annotation = member_annotation(pod.metadata.annotations)
    if annotation is None or pod.has_ended or pod.metadata.deletion_timestamp is not None:
        return False
    state = decided.job(annotation.job)
    if state is None or annotation.attempt > state.attempt:
        return False
    is_over = annotation.attempt < state.attempt or state.phase not in HOLDING
    return is_over or annotation.life < state.replacements.get(annotation.member, 0)
