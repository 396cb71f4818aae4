"""Gangs of gantree's own that run and that no record knows: the journal was lost, or another process led with its own.

What they are stands on their pods (`marks`), so they are taken over instead of being counted as others': job,
attempt, which pod is which member, and the GPUs that each was counted by. Queue, priority and topology are read
again from the pods and the object of their group; what each member holds is what its pod asks for. Where that is not
told, the claims of a pod say which GPUs it has. What is on no object is lost: what was used before, since when the
gang waited, how often it was moved.

Only once after each start is looked for such gangs, before anything else is told: so what they hold is theirs before it
could be given to others, and nothing on record is ever touched. A gang of which a member is missing stays with others,
and so does one that the core rejects. Somebody may have written marks himself: they count only where they agree with
the gang that the pod is of, and give nobody more than his pods have already.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gantree.core.view import LedgerView
from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.constraints.gang_constraints import role_of
from gantree.executors.kubernetes.controllers.allocator import Allocator
from gantree.executors.kubernetes.controllers.attempt_controller import Members
from gantree.executors.kubernetes.nodes.site import SiteReading
from gantree.executors.kubernetes.pods.annotations import DOMAIN, GPUS, NICS, Mark, mark_of
from gantree.executors.kubernetes.pods.shapes import asked_by
from gantree.executors.kubernetes.workloads.gangs import gang_of, job_of, processes_of
from gantree.executors.kubernetes.workloads.keys import Key, key_alone
from gantree.executors.kubernetes.workloads.pending_pods import Waiting
from gantree.model.events import GangFound
from gantree.model.jobs import Job, Role, TopologySpec
from gantree.model.placements import FABRIC_TIER, Domain, MemberPlacement, Placement, Predicted

PATIENCE_S = 60.0
"""A gang that the core has not answered about for so long is counted as others'."""

log = logging.getLogger(__name__)

Seated = tuple[Mark, Pod]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A gang that the core was told of: its attempt, its pods, and until when an answer is waited for."""

    attempt: int
    pods: tuple[Pod, ...]
    until: float


class Found:
    """Looks for gangs once, when it is told to, and sees to what the core makes of them."""

    def __init__(
        self,
        scheduler: str,
        waiting: Waiting,
        members: Members,
        allocator: Allocator,
        see: Callable[[Pod], None],
    ) -> None:
        """scheduler is the schedulerName of pods that are ours; see is called with pods that are whose by now."""
        self._scheduler, self._waiting, self._members = scheduler, waiting, members
        self._allocator, self._see = allocator, see
        self._is_due = False
        self._asked: dict[str, _Asked] = {}

    def due(self) -> None:
        """Look for gangs, once there is a site."""
        self._is_due = True

    def step(
        self,
        decided: LedgerView,
        site: SiteReading | None,
        gpus_of_node: Mapping[str, int],
        now: float,
    ) -> Iterator[GangFound]:
        """What is found, gang by gang; the first time after it became due."""
        self._answered(decided, now)
        if not self._is_due or site is None or decided.site.description is None:
            return
        self._is_due = False
        for seated in _gangs(self._members.pods.values(), self._members, decided, self._scheduler):
            event = self._event(seated, site, gpus_of_node, now)
            if event is not None:
                self._seat(event, seated, now)
                yield event
        if self._asked:
            log.warning(
                "%d gangs run that no record knows, and are taken over: what they used before is not known",
                len(self._asked),
            )

    def _seat(self, event: GangFound, seated: Sequence[Seated], now: float) -> None:
        pods = tuple(pod for _, pod in seated)
        key = self._key(event.job, pods)
        assert key is not None, "it was looked at"
        self._asked[event.job] = _Asked(event.attempt, pods, now + PATIENCE_S)
        self._waiting.adopt(event.job, key)
        self._members.take_over(event.job, event.attempt, len(seated))
        for pod in pods:
            self._see(pod)

    def _answered(self, decided: LedgerView, now: float) -> None:
        """Those that were turned down are others' again."""
        for job, asked in list(self._asked.items()):
            rejected_for = decided.rejection(job)
            if decided.job(job) is not None:
                del self._asked[job]
            elif rejected_for is not None or now >= asked.until:
                log.warning("%s was not taken over: %s", job, rejected_for or "no answer")
                del self._asked[job]
                self._waiting.part(job)
                self._members.settle(job, asked.attempt)
                for pod in asked.pods:
                    if pod.metadata.uid in self._members.pods:
                        self._see(self._members.pods[pod.metadata.uid])

    @property
    def asked(self) -> Iterable[str]:
        """Jobs about which the core has not answered yet."""
        return self._asked

    # ----- what they are

    def _event(
        self,
        seated: Sequence[Seated],
        site: SiteReading,
        gpus_of_node: Mapping[str, int],
        now: float,
    ) -> GangFound | None:
        """What the pods of an attempt come to; None where they do not tell enough."""
        (mark, _), pods = seated[0], [pod for _, pod in seated]
        key = self._key(mark.job, pods)
        roles = _roles(seated)
        if key is None or roles is None:
            return None
        members = self._placed(seated, gpus_of_node)
        if members is None:
            return None
        gang = gang_of(key, self._waiting.keys.terms_of(key), pods)
        spec, _, _ = job_of(gang, site.tier, key[0])
        return GangFound(
            id=f"{mark.job}/{mark.attempt}/found",
            observed_at=now,
            job=mark.job,
            spec=_with_roles(spec, roles),
            attempt=mark.attempt,
            placement=Placement(members, _domain(pods[0]), Predicted(0.0, ())),
        )

    def _key(self, job: str, pods: Sequence[Pod]) -> Key | None:
        """The gang that a job is by its id, if its pods are of that; one that came late stands alone."""
        keys = {self._waiting.keys.of(pod) for pod in pods}
        if len(pods) == 1:
            keys.add(key_alone(pods[0]))
        found = [key for key in sorted(keys) if job.startswith(f"{'.'.join(key)}.")]
        is_one = len(keys) == 1 or len(pods) == 1
        if not found or not is_one or self._waiting.job_of(found[0]) not in (None, job):
            return None
        return found[0]

    def _placed(
        self, seated: Sequence[Seated], gpus_of_node: Mapping[str, int]
    ) -> tuple[MemberPlacement, ...] | None:
        """What each member holds where; None where that is not told, as of partitions that a kubelet chose."""
        number_in_role: dict[str, int] = {}
        found = []
        for mark, pod in seated:
            shape, node = asked_by(pod).shape, pod.spec.node_name
            gpus = _gpus(pod) or (self._allocator.gpus_of(pod) if shape.gpus else ())
            is_told = len(gpus) == shape.gpus and all(g < gpus_of_node.get(node, 0) for g in gpus)
            if shape.part or not is_told or node not in gpus_of_node:
                return None
            number = number_in_role[mark.role] = number_in_role.get(mark.role, -1) + 1
            nics = tuple(filter(None, pod.metadata.annotations.get(NICS, "").split(",")))
            found.append(
                MemberPlacement(
                    role=mark.role,
                    rank=number,
                    node=node,
                    gpus=gpus,
                    nics=nics,
                    cpus=shape.cpus,
                    memory_GiB=shape.memory_GiB,
                    devices=shape.devices,
                )
            )
        return tuple(found)


def _gangs(
    pods: Iterable[Pod], members: Members, decided: LedgerView, scheduler: str
) -> Iterator[list[Seated]]:
    """The pods of each attempt that runs whole and that the ledger does not know, in member order."""
    of_job: dict[str, dict[int, list[Seated]]] = {}
    for pod in pods:
        mark = mark_of(pod.metadata.annotations)
        is_ours = pod.spec.scheduler_name == scheduler and pod.spec.node_name
        if mark is None or not is_ours or members.has_seat(pod.metadata.uid):
            continue
        if decided.job(mark.job) is None and decided.rejection(mark.job) is None:
            of_job.setdefault(mark.job, {}).setdefault(mark.attempt, []).append((mark, pod))
    for job in sorted(of_job):
        seated = sorted(of_job[job][max(of_job[job])], key=lambda each: each[0].member)
        numbers = [mark.member for mark, _ in seated]
        is_whole = all(mark.members == len(seated) for mark, _ in seated)
        if is_whole and numbers == list(range(len(seated))) and not _is_over(seated):
            yield seated


def _is_over(seated: Sequence[Seated]) -> bool:
    return all(pod.has_ended for _, pod in seated)


def _roles(seated: Sequence[Seated]) -> list[Role] | None:
    """The roles that members have by their marks, in runs; None where those of one role are not alike."""
    roles: list[Role] = []
    for mark, pod in seated:
        shape, count = asked_by(pod).shape, processes_of(pod)
        if not roles or roles[-1].name != mark.role:
            roles.append(Role(mark.role, 0, shape, count))
        if (roles[-1].shape, roles[-1].processes) != (shape, count):
            return None
        roles[-1] = replace(roles[-1], members=roles[-1].members + 1)
    return roles if len({role.name for role in roles}) == len(roles) else None


def _with_roles(spec: Job, roles: Sequence[Role]) -> Job:
    """A job with the roles that run, each with the topology of the role that it is, or is a part of."""
    told = {role.name: role.topology for role in spec.roles}
    known = tuple(
        replace(role, topology=told.get(role_of(role.name), TopologySpec())) for role in roles
    )
    return replace(spec, roles=known)


def _gpus(pod: Pod) -> tuple[int, ...]:
    words = pod.metadata.annotations.get(GPUS, "").split(",")
    return tuple(int(word) for word in words if word.isascii() and word.isdecimal())


def _domain(pod: Pod) -> Domain:
    tier, colon, name = pod.metadata.annotations.get(DOMAIN, "").partition(":")
    return Domain(tier, name) if colon else Domain(FABRIC_TIER, "")
