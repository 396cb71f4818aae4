"""What ranks in pods report of themselves through the API, as the executor's files have it on one machine.

Each bound pod has a token of its own in an annotation, which its containers get as a variable. The annotation is the
only record of it: after a restart, or on a new leader, the pods say again which tokens there are, and the ranks report
again within seconds. A token is good for one thing, to report for ranks of the attempt that its pod is a member of.
What is reported is kept in memory, the newest of each rank, and replaced as a whole.

`update` and `forget` are for the controller's thread, everything else for any thread.
"""

import logging
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256

from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.pods.annotations import (
    GPUS,
    PARALLELISM,
    REPORT_TOKEN,
    REPORT_URL,
    member_annotation,
)
from gantree.executors.kubernetes.pods.rank_report import (
    MOST_RANKS_OF_POD,
    RankReport,
    parallelism_of,
    rank_report_in,
)
from gantree.executors.progress import Progress, RankSteps, StepReports
from gantree.model.errors import Conflict, GantreeError, TooOften, Unauthenticated

EVERY_S = 5.0
"""A rank is told to report again after so long; later where there are many."""
LEAST_S = 1.0
"""A report of a rank that comes sooner after its last one is refused."""
MOST_A_SECOND = 100
"""Reports of all ranks together."""
MOST_RANKS = 65_536
WARN_EVERY_S = 60.0
NO_POD = "the token is that of no running pod"

_INDEX = re.compile("[0-9]{1,4}")
Name = tuple[str, int]
"""A job and the number of an attempt."""
log = logging.getLogger(__name__)


@dataclass(slots=True)
class _ReportingPod:
    """A pod with a token. is_exact: its GPUs are those of its claims."""

    name: str
    of: Name
    role: str
    node: str
    gpus: tuple[int, ...]
    is_exact: bool
    parallelism: tuple[tuple[str, int], ...]
    digest: bytes
    member: int
    reports: dict[int, RankReport] = field(default_factory=dict)
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class PodPlace:
    """Which member of which attempt a pod is; gpus are () where nobody knows which."""

    of: Name
    member: int
    gpus: tuple[int, ...]


def report_annotations(url: str) -> dict[str, str]:
    """What a pod is told with its binding: where to report, with a new token; nothing without a URL."""
    return {REPORT_URL: url, REPORT_TOKEN: secrets.token_urlsafe(32)} if url else {}


class RankReports:
    """The reports of all pods that are members of attempts."""

    def __init__(
        self,
        gpus_of_node: Callable[[], Mapping[str, int]],
        steady: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """gpus_of_node says how many GPUs each node has."""
        self._gpus_of_node, self._steady, self._wall = gpus_of_node, steady, wall
        self._lock = threading.Lock()
        self._pods: dict[str, _ReportingPod] = {}
        self._uids_of_attempt: dict[Name, dict[str, None]] = {}
        self._uid_of_digest: dict[bytes, str] = {}
        self._ranks = 0
        self._warn_at = float("-inf")

    # ----- pods

    def update(self, uid: str, pod: Pod | None, place: tuple[Name, str] | None) -> None:
        """A pod was added, has changed, or is gone (None). place: its attempt and role; None for no member of any."""
        reports = pod is not None and place is not None and _may_report(pod)
        if reports == (uid in self._pods):
            return
        with self._lock:
            if pod is None or place is None or not reports:
                self._drop(uid)
            else:
                self._add(uid, _pod_of(pod, *place))

    def forget(self, job: str, attempt: int) -> None:
        """The end of an attempt is on record."""
        with self._lock:
            for uid in list(self._uids_of_attempt.get((job, attempt), ())):
                self._drop(uid)

    def _add(self, uid: str, pod: _ReportingPod) -> None:
        if self._uid_of_digest.setdefault(pod.digest, uid) != uid:
            return  # somebody copied the token of another pod
        self._pods[uid] = pod
        self._uids_of_attempt.setdefault(pod.of, {})[uid] = None

    def _drop(self, uid: str) -> None:
        pod = self._pods.pop(uid)
        del self._uid_of_digest[pod.digest]
        self._ranks -= len(pod.reports)
        of_attempt = self._uids_of_attempt[pod.of]
        del of_attempt[uid]
        if not of_attempt:
            del self._uids_of_attempt[pod.of]

    def _pods_of(self, of: Name) -> list[_ReportingPod]:
        return [self._pods[uid] for uid in self._uids_of_attempt.get(of, ())]

    # ----- reports

    def take(self, token: str, body: bytes) -> float:
        """Take the report of a rank; return after how many seconds it may report again.

        Raises Unauthenticated for a token of no running pod, BadInput for what is no report, Conflict for a rank of
        another pod or one too many, TooOften for one that reported just now. Nothing has changed then.
        """
        try:
            return self._take(_digest(token), body)
        except GantreeError as error:
            self._warn(error)
            raise

    def place_of(self, token: str) -> PodPlace:
        """The place of the pod that a token is of. Raises Unauthenticated for a token of no running pod."""
        with self._lock:
            pod = self._pods.get(self._uid_of_digest.get(_digest(token), ""))
            if pod is None:
                raise Unauthenticated(NO_POD)
            return PodPlace(pod.of, pod.member, self._known_gpus(pod))

    def _take(self, digest: bytes, body: bytes) -> float:
        uid = self._uid_of_digest.get(digest)
        if uid is None:
            raise Unauthenticated(NO_POD)
        report = rank_report_in(body, self._steady(), self._wall())
        with self._lock:
            pod = self._pods.get(uid)
            if pod is None:
                raise Unauthenticated(NO_POD)
            self._check(pod, report.rank, report.taken_at)
            known = pod.reports.get(report.rank)
            self._ranks += known is None
            if known is not None and not report.steps:  # of progress alone: its steps stand
                report = replace(known, taken_at=report.taken_at, progress=report.progress)
            pod.reports[report.rank] = report
            if report.rank == 0 and report.progress is not None:
                pod.progress = report.progress
            return max(EVERY_S, self._ranks / MOST_A_SECOND)

    def _check(self, pod: _ReportingPod, rank: int, now: float) -> None:
        """Raises Conflict and TooOften where a report is not taken."""
        known = pod.reports.get(rank)
        if known is not None:
            if now - known.taken_at < LEAST_S:
                raise TooOften(f"rank {rank} may report once in {LEAST_S:g} s")
            return
        other = next((each for each in self._pods_of(pod.of) if rank in each.reports), None)
        if other is not None:
            raise Conflict(f"rank {rank} is in pod {other.name}, not in {pod.name}")
        if len(pod.reports) >= MOST_RANKS_OF_POD or self._ranks >= MOST_RANKS:
            raise Conflict(
                f"rank {rank} is one too many: a pod may have {MOST_RANKS_OF_POD}, all together {MOST_RANKS}"
            )

    def _warn(self, error: GantreeError) -> None:
        """Log why a report was refused, once a minute at most."""
        now = self._steady()
        if now >= self._warn_at:
            self._warn_at = now + WARN_EVERY_S
            log.warning("a report of a rank was refused, maybe more: %s", error)

    # ----- what was reported

    def progress(self, job: str, attempt: int) -> Progress | None:
        """How far an attempt says that it is."""
        with self._lock:
            found = [each.progress for each in self._pods_of((job, attempt))]
        return next((each for each in found if each is not None), None)

    def step_reports(self, job: str, attempt: int) -> StepReports | None:
        """The own times that the ranks of an attempt report; None where rank 0 reports none."""
        with self._lock:
            found = [
                (rank, report, pod)
                for pod in self._pods_of((job, attempt))
                for rank, report in pod.reports.items()
                if report.steps
            ]
        of_rank_0 = next(((report, pod) for rank, report, pod in found if rank == 0), None)
        if of_rank_0 is None:
            return None
        first, pod_of_rank_0 = of_rank_0
        ranks = [
            RankSteps(rank, pod.role, pod.node, self._gpus(pod, report), report.own_s_of_step())
            for rank, report, pod in found
            if report.world_size == first.world_size
        ]
        ranks.sort(key=lambda each: each.rank)
        return StepReports(first.at, first.world_size, tuple(ranks), pod_of_rank_0.parallelism)

    def _gpus(self, pod: _ReportingPod, report: RankReport) -> tuple[int, ...]:
        """The GPUs of a process, or those of its pod."""
        gpus = self._known_gpus(pod)
        if len(gpus) != report.local_world_size:
            return gpus
        return gpus[report.local_rank : report.local_rank + 1]

    def _known_gpus(self, pod: _ReportingPod) -> tuple[int, ...]:
        """The GPUs of a pod: none where a device plugin chose some of a node's, because nobody knows which."""
        is_all = len(pod.gpus) == self._gpus_of_node().get(pod.node)
        return pod.gpus if pod.is_exact or is_all else ()


def _may_report(pod: Pod) -> bool:
    return bool(
        pod.metadata.annotations.get(REPORT_TOKEN) and pod.spec.node_name and not pod.has_ended
    )


def _pod_of(pod: Pod, attempt: Name, role: str) -> _ReportingPod:
    meta, told = pod.metadata, pod.metadata.annotations.get(GPUS, "")
    gpus = tuple(int(each) for each in told.split(",") if _INDEX.fullmatch(each))
    name, is_exact = f"{meta.namespace}/{meta.name}", bool(pod.spec.resource_claims)
    place = member_annotation(meta.annotations)
    return _ReportingPod(
        name,
        attempt,
        role,
        pod.spec.node_name or "",
        gpus,
        is_exact,
        parallelism_of(meta.annotations.get(PARALLELISM, "")),
        _digest(meta.annotations[REPORT_TOKEN]),
        0 if place is None else place.member,
    )


def _digest(token: str) -> bytes:
    return sha256(token.encode(errors="replace")).digest()
