"""Pods that keep an attempt from ending: of a lost node, of which nobody says that they ended, or past their grace.

The gang starts again only once they are gone, so their names are in an event about each, in the conditions of the pod
group and of pods that came in their place, and in the answer to why.
"""

from collections.abc import Callable, Sequence
from datetime import datetime

from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.watch.api_thread import ApiThread
from gantree.executors.kubernetes.writes.writes import StatusMessage

LATE_S = 10.0
"""A pod may take so long beyond its grace."""
NAMED = 3
"""Pods that are named in a sentence."""
REASON = "WaitingForPodToEnd"
Name = tuple[str, int]
"""A job and the number of an attempt."""


class RemainingPods:
    """What was said of attempts that do not end. tell is called with a job and a new sentence."""

    def __init__(self, api: ApiThread, tell: Callable[[str, str], None]) -> None:
        self._api, self._tell = api, tell
        self._told: dict[Name, str] = {}

    def review(
        self, name: Name, pods: Sequence[Pod], is_lost: Callable[[str], bool], now: float
    ) -> None:
        """These pods of an attempt that is to end are there."""
        sentence = why_remaining(pods, is_lost, now)
        if sentence == self._told.get(name, ""):
            return
        self._told[name] = sentence
        if not sentence:
            self.forget(name)
            return
        for pod in _remaining(pods, is_lost, now):
            meta = pod.metadata
            where = ((meta.namespace, meta.name),)
            self._api.report_status(
                StatusMessage(where, meta.uid, REASON, f"{sentence}.", is_warning=True)
            )
        self._tell(name[0], sentence)

    def forget(self, name: Name) -> None:
        """Nothing keeps an attempt from ending."""
        self._told.pop(name, None)

    def told(self, job: str) -> list[tuple[Name, str]]:
        """What keeps attempts of a job from ending, as it was when they were reviewed."""
        return [(name, told) for name, told in self._told.items() if name[0] == job]


def why_remaining(pods: Sequence[Pod], is_lost: Callable[[str], bool], now: float) -> str:
    """Which pods keep an attempt from ending, and what is awaited; "" for none. is_lost is asked of nodes."""
    found = _remaining(pods, is_lost, now)
    if not found:
        return ""
    said = "; ".join(_of_pod(pod, is_lost) for pod in found[:NAMED])
    more = f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return f"{said}{more}. The gang starts again once they are gone"


def _remaining(pods: Sequence[Pod], is_lost: Callable[[str], bool], now: float) -> list[Pod]:
    return [pod for pod in pods if is_lost(pod.spec.node_name or "") or _is_late(pod, now)]


def _is_late(pod: Pod, now: float) -> bool:
    """Whether a pod is there although its grace is over: until then it is to be gone."""
    ends_at = pod.metadata.deletion_timestamp
    return ends_at is not None and now > datetime.fromisoformat(ends_at).timestamp() + LATE_S


def _of_pod(pod: Pod, is_lost: Callable[[str], bool]) -> str:
    meta, node = pod.metadata, pod.spec.node_name or ""
    there = f"pod {meta.name} of its last attempt is still there, on node {node}"
    if is_lost(node):
        return f"{there}, which is lost: delete the Node, or the pod with --grace-period=0 --force"
    held = f", held by {', '.join(meta.finalizers)}" if meta.finalizers else ""
    return f"{there}, past its grace period{held}"
