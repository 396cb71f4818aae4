"""Deletes pods that were bound too late: for an attempt that is over, or in place of which another pod was bound.

A write in flight cannot be cancelled, so the server may bind a pod after its attempt has ended. Annotations of the pod
say so when it is seen. It is deleted, and counts as a foreign pod until it is gone.
"""

import logging

from gantree.core.view import LedgerView
from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.controllers.attempts.controller import AGAIN_S
from gantree.executors.kubernetes.pods.annotations import member_annotation
from gantree.executors.kubernetes.watch.api_thread import ApiThread
from gantree.model.phases import HOLDING

log = logging.getLogger(__name__)


class LateBindings:
    """Pods that were bound too late, by uid, each with the time of its next deletion."""

    def __init__(self, api: ApiThread) -> None:
        self._api = api
        self._due: dict[str, tuple[float, Pod]] = {}

    def update(self, pod: Pod, decided: LedgerView, *, gone: bool) -> None:
        """A bound pod that is no member was added, has changed, or is gone."""
        uid = pod.metadata.uid
        if gone or not is_late(pod, decided):
            self._due.pop(uid, None)
        elif uid not in self._due:
            log.warning("pod %s was bound too late: it is deleted", pod.metadata.name)
            self._due[uid] = (float("-inf"), pod)

    def step(self, now: float) -> None:
        """Delete those that are due."""
        for uid, (due_at, pod) in self._due.items():
            if due_at <= now:
                self._due[uid] = (now + AGAIN_S, pod)
                self._api.delete(pod.metadata.namespace, pod.metadata.name, uid, None)


def is_late(pod: Pod, decided: LedgerView) -> bool:
    """Whether a bound pod that is not being deleted belongs to an attempt that is over, of a known job.

    A pod of a later attempt than is on record here was bound by another leader, and stays.
    """
    annotation = member_annotation(pod.metadata.annotations)
    if annotation is None or pod.has_ended or pod.metadata.deletion_timestamp is not None:
        return False
    state = decided.job(annotation.job)
    if state is None or annotation.attempt > state.attempt:
        return False
    is_over = annotation.attempt < state.attempt or state.phase not in HOLDING
    return is_over or annotation.life < state.replacements.get(annotation.member, 0)
