"""Pods as `kubectl get pods --all-namespaces -o json` lists them: which gangs they were, and when these ran.

Pods form gangs by the labels and owners that the scheduler knows (`workloads`); what only the object of a group says
(its queue, say) is not in such a list. A gang is submitted with its first pod, starts with the last and ends with the
last container. Gangs that run still count up to the newest moment in the list. Where pods of a gang were made after
others of it had ended, those before belong to an earlier attempt: the last attempt counts, since the first submission.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

import msgspec

from gantree.executors.kubernetes.apiserver.objects import Object, Pod
from gantree.executors.kubernetes.workloads.gangs import gang_of, job_of
from gantree.executors.kubernetes.workloads.keys import Key, key_of
from gantree.model.errors import BadFields, Problem
from gantree.model.jobs import Job
from gantree.policy.amounts import requested

MAX_PROBLEMS = 100
NEVER_STARTED, NO_GPU = "never started", "without GPUs"


class _End(Object, frozen=True):
    finished_at: str | None = None


class _State(Object, frozen=True):
    terminated: _End | None = None


class _Container(Object, frozen=True):
    state: _State = _State()


class _Change(Object, frozen=True):
    last_transition_time: str | None = None


class _Status(Object, frozen=True):
    phase: str = "Pending"
    start_time: str | None = None
    container_statuses: tuple[_Container, ...] = ()
    conditions: tuple[_Change, ...] = ()


class _Times(Object, frozen=True):
    status: _Status = _Status()


class _Kind(Object, frozen=True):
    kind: str = "Pod"


class _List(Object, frozen=True):
    items: tuple[msgspec.Raw, ...]


@dataclass(frozen=True, slots=True)
class PodTimes:
    """Moments of one pod in seconds since 1970; None for what has not happened."""

    created_at: float
    started_at: float | None
    ended_at: float | None


@dataclass(frozen=True, slots=True)
class RanGang:
    """A gang as a job: when it was submitted (seconds since 1970), and how long it ran."""

    job: Job
    submitted_at: float
    ran_s: float


def gangs_of_list(text: bytes, source: str) -> tuple[list[RanGang], Counter[str]]:
    """The gangs of a list in the order of submission, and how many are none that ran, by reason. Raises BadFields."""
    pods = _read(text, source)
    newest = max((moment for _, each in pods for moment in _moments(each)), default=0.0)
    of_gang: dict[Key, list[tuple[Pod, PodTimes]]] = defaultdict(list)
    for pod, when in pods:
        of_gang[key_of(pod)].append((pod, when))
    left_out: Counter[str] = Counter()
    gangs = []
    for key, ever in of_gang.items():
        submitted_at = min(when.created_at for _, when in ever)
        members = _last_attempt(ever)
        times = [when for _, when in members]
        starts = [each.started_at for each in times if each.started_at is not None]
        if len(starts) < len(times):
            left_out[NEVER_STARTED] += 1
            continue
        gang = gang_of(key, None, [pod for pod, _ in members])
        job, _, _ = job_of(gang, lambda _word: None, key[0])
        if not requested(job).get("gpus"):
            left_out[NO_GPU] += 1
            continue
        ended_at = max(newest if each.ended_at is None else each.ended_at for each in times)
        gangs.append(RanGang(job, submitted_at, max(0.0, ended_at - max(starts))))
    return sorted(gangs, key=lambda gang: (gang.submitted_at, gang.job.name)), left_out


def _last_attempt(members: list[tuple[Pod, PodTimes]]) -> list[tuple[Pod, PodTimes]]:
    """Those that had not ended when the newest of them was made."""
    newest = max(when.created_at for _, when in members)
    return [
        (pod, when) for pod, when in members if when.ended_at is None or when.ended_at >= newest
    ]


def _read(text: bytes, source: str) -> list[tuple[Pod, PodTimes]]:
    pods: list[tuple[Pod, PodTimes]] = []
    problems: list[Problem] = []
    for number, item in enumerate(_items(text, source)):
        try:
            _add(item, pods)
        except (msgspec.ValidationError, ValueError) as error:
            field = f"items[{number}]"
            problems.append(Problem(source, None, field, str(error), "an object of Kubernetes"))
    if problems:
        raise BadFields(problems[:MAX_PROBLEMS])
    return pods


def _items(text: bytes, source: str) -> Iterable[msgspec.Raw]:
    try:
        return msgspec.json.decode(text, type=_List).items
    except (msgspec.DecodeError, RecursionError) as error:
        allowed = "what `kubectl get pods --all-namespaces -o json` prints"
        raise BadFields([Problem(source, None, "document", str(error), allowed)]) from None


def _add(item: msgspec.Raw, pods: list[tuple[Pod, PodTimes]]) -> None:
    """A pod; other objects are passed over."""
    if msgspec.json.decode(item, type=_Kind).kind == "Pod":
        pod = msgspec.json.decode(item, type=Pod)
        pods.append((pod, _times(pod, msgspec.json.decode(item, type=_Times).status)))


def _times(pod: Pod, status: _Status) -> PodTimes:
    created = pod.metadata.creation_timestamp
    if created is None:
        raise ValueError("a pod without metadata.creationTimestamp")
    ends = [
        _moment(each.state.terminated.finished_at)
        for each in status.container_statuses
        if each.state.terminated is not None and each.state.terminated.finished_at
    ]
    if not ends:  # an evicted pod has no status of its containers
        ends = [
            _moment(each.last_transition_time)
            for each in status.conditions
            if each.last_transition_time
        ]
    start = status.start_time
    return PodTimes(
        created_at=_moment(created),
        started_at=None if start is None else _moment(start),
        ended_at=max(ends) if ends and pod.has_ended else None,
    )


def _moments(times: PodTimes) -> Iterator[float]:
    moments = (times.created_at, times.started_at, times.ended_at)
    return (moment for moment in moments if moment is not None)


def _moment(text: str) -> float:
    """Seconds since 1970 of 2026-01-05T08:00:00Z. Raises ValueError, also for a time without its zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"a time without its zone: {text}")
    return moment.timestamp()
