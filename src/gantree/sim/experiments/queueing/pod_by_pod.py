"""A scheduler that binds pods one by one, acted out: what happens to gangs without all-or-nothing.

Nodes have GPUs; a job has members, and each member is a pod that needs its GPUs on one node. A job works when all its
pods are bound. Whenever something changed, the pods that wait are tried in a drawn order, as they come out of a queue
of pods that back off each by itself, and each takes the first node with room. Three rules:

    partial   what was bound stays bound
    timeout   a job that is not complete so long after its first pod was bound gives all back, and its pods are tried
              again after a back-off of drawn length, up to as long
    gang      all pods of a job are bound at once or none; jobs are tried in the order of arrival

Nothing else differs: no quota, no priorities, no topology.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random


@dataclass(frozen=True, slots=True)
class GangJob:
    """A job of equal members: GPUs of each, when it comes and how long it works, in seconds."""

    name: str
    submit_s: float
    duration_s: float
    members: int
    gpus_each: int


@dataclass(slots=True)
class _Held:
    """The nodes that a job's pods are bound to, since when, and whether it works."""

    nodes: list[int] = field(default_factory=list)
    bound_at: list[float] = field(default_factory=list)
    first_at: float = 0.0
    runs: bool = False
    round: int = 0
    not_before_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Acted:
    """What came of it. wasted_gpu_s were held by pods of jobs that did not work yet; hung jobs never did.

    until_s is the moment of the last event; GPU-seconds of hung jobs are counted up to horizon_s.
    """

    finished: int
    hung: int
    never_bound: int
    wasted_gpu_s: float
    useful_gpu_s: float
    released: int
    until_s: float


class PodByPod:
    """One run. timeout_s None: what was bound stays bound. gang: all or nothing."""

    def __init__(
        self, nodes: int, gpus: int, jobs: Sequence[GangJob], *, gang: bool, timeout_s: float | None, seed: int
    ) -> None:  # fmt: skip
        self._free = [gpus] * nodes
        self._jobs = {job.name: job for job in jobs}
        self._gang, self._timeout_s = gang, timeout_s
        self._random = Random(seed)  # noqa: S311 - a draw of a simulation, not a secret
        self._held: dict[str, _Held] = {}
        self._events: list[tuple[float, int, str, str, int]] = []
        self._sequence = 0
        self.wasted_gpu_s = self.useful_gpu_s = 0.0
        self.finished = self.released = 0
        for job in jobs:
            self._tell(job.submit_s, "submit", job.name, 0)

    def run(self, horizon_s: float) -> Acted:
        """Run until nothing can happen any more; what hangs then holds its GPUs until horizon_s."""
        now = 0.0
        while self._events:
            now = self._events[0][0]
            while self._events and self._events[0][0] == now:
                self._happen(now, *heappop(self._events)[2:])
            self._bind(now)
        hung = [name for name, held in self._held.items() if held.nodes]
        for name in hung:
            self._waste(name, max(now, horizon_s))
        return Acted(
            self.finished, len(hung), len(self._held) - len(hung), self.wasted_gpu_s,
            self.useful_gpu_s, self.released, now,
        )  # fmt: skip

    def _tell(self, at_s: float, kind: str, job: str, number: int) -> None:
        self._sequence += 1
        heappush(self._events, (at_s, self._sequence, kind, job, number))

    def _happen(self, now: float, kind: str, name: str, number: int) -> None:
        if kind == "submit":
            self._held[name] = _Held()
        elif kind == "end":
            self._end(name)
        elif kind == "timeout":
            held = self._held.get(name)
            if held is not None and not held.runs and held.round == number:
                self._release(name, now)

    def _end(self, name: str) -> None:
        job = self._jobs[name]
        self._give_back(name)
        self.useful_gpu_s += job.duration_s * job.members * job.gpus_each
        self.finished += 1
        del self._held[name]

    def _release(self, name: str, now: float) -> None:
        """Give back what an incomplete job holds; its pods come back after a drawn back-off."""
        assert self._timeout_s is not None
        self._waste(name, now)
        self._give_back(name)
        self.released += 1
        again_s = now + self._timeout_s * self._random.random()
        held = self._held[name]
        self._held[name] = _Held(round=held.round + 1, not_before_s=again_s)
        self._tell(again_s, "retry", name, 0)

    def _give_back(self, name: str) -> None:
        for node in self._held[name].nodes:
            self._free[node] += self._jobs[name].gpus_each

    def _waste(self, name: str, now: float) -> None:
        each = self._jobs[name].gpus_each
        self.wasted_gpu_s += sum((now - at_s) * each for at_s in self._held[name].bound_at)

    def _bind(self, now: float) -> None:
        if not any(self._free):
            return
        waiting = [
            name for name, held in self._held.items() if not held.runs and held.not_before_s <= now
        ]
        if self._gang:
            for name in waiting:
                if self._has_room(self._jobs[name]):
                    for _ in range(self._jobs[name].members):
                        self._bind_one(name, now)
            return
        pods = [
            name
            for name in waiting
            for _ in range(self._jobs[name].members - len(self._held[name].nodes))
        ]
        self._random.shuffle(pods)
        for name in pods:
            self._bind_one(name, now)

    def _has_room(self, job: GangJob) -> bool:
        return sum(free // job.gpus_each for free in self._free) >= job.members

    def _bind_one(self, name: str, now: float) -> None:
        """Bind a pod to the first node with room, if there is one; the job works once it was the last."""
        job, held = self._jobs[name], self._held[name]
        node = next((node for node, free in enumerate(self._free) if free >= job.gpus_each), None)
        if node is None:
            return
        self._free[node] -= job.gpus_each
        if not held.nodes:
            held.first_at = now
            if self._timeout_s is not None:
                self._tell(now + self._timeout_s, "timeout", name, held.round)
        held.nodes.append(node)
        held.bound_at.append(now)
        if len(held.nodes) == job.members:
            held.runs = True
            self._waste(name, now)
            self._tell(now + job.duration_s, "end", name, 0)
