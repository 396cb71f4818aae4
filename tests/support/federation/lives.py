"""One life of a federation: the production front, simulated clusters, and a network that does what networks do.

A seed is a life. Requests and answers may be slow, late by minutes, or lost; links are cut and mended; the front and
the daemons are killed, stand still, and start again; machines reboot; clocks run at different rates. After the faults,
every job must end. `check` reads the history of what really ran, which none of the parts has seen as a whole.
"""

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random

from gantree.federation.calls import Call
from gantree.federation.front import Front
from gantree.federation.jobs.federated_job import FederatedJob, Stage
from gantree.federation.jobs.store import Store
from gantree.model.errors import Conflict, GantreeError
from gantree.model.federation import (
    ONE_REGION,
    EnforcedBy,
    FederatedCluster,
    Federation,
    Regions,
)
from support.federation.simulated_cluster import Attempt, SimulatedCluster

TIMEOUT_S = 10.0
FAULTS_S = 1800.0
CALM_S = 3600.0
LEASE_S = 60.0
SERVES_S = 1e9
"""A service runs until it is cancelled."""
KUBERNETES = "c"
"""The cluster of which only the daemon ends jobs."""
REGIONS = (ONE_REGION, Regions(count=2), Regions(), Regions(names=("b", "c")))
RATES = (0.98, 1.0, 1.02)
"""Clocks that run at these rates differ by less than the margin in the time of a lease."""


def federation(*names: str) -> Federation:
    """Clusters of these names, each a region of its own."""
    clusters = tuple(FederatedCluster(each, f"http://{each}", None, each) for each in names)
    return Federation(
        "f",
        clusters,
        lease_s=LEASE_S,
        margin_s=5.0,
        heartbeat_s=5.0,
        lost_after_s=20.0,
        move_waiting_s=60.0,
    )


@dataclass
class Life:
    """One life. make_front lets a test run it with a front that has a bug."""

    seed: int
    make_front: Callable[..., Front] = Front
    now: float = 0.0
    history: list[Attempt] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    faults: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.federation = federation("a", "b", "c")
        self.store = Store(":memory:")
        self.clusters = {
            each.name: SimulatedCluster(
                each.name,
                self.random,
                self.history,
                EnforcedBy.DAEMON if each.name == KUBERNETES else EnforcedBy.MEMBERS,
                rate=self.random.choice(RATES),
            )
            for each in self.federation.clusters
        }
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._cut: set[str] = set()
        self._frozen_until = 0.0
        self.front: Front | None = self._front()
        self._generation = 0
        self._is_off = False

    def _front(self) -> Front:
        return self.make_front(self.federation, self.store, self.now, lambda: self.now)

    def run(self) -> "Life":
        """Live: faults first, then calm until every job has ended."""
        self._every(1.0, self._tick_front)
        for cluster in self.clusters.values():
            self._every(0.5, partial(self._tick_cluster, cluster))
        self._every(20.0, self._act)
        self._until(lambda: self.now >= FAULTS_S)
        self._calm()
        self._until(lambda: self._all_ended() or self.now >= FAULTS_S + CALM_S)
        return self

    # Time.

    def _at(self, when: float, work: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (when, next(self._order), work))

    def _every(self, seconds: float, work: Callable[[], None]) -> None:
        def again() -> None:
            work()
            self._at(self.now + seconds, again)

        self._at(self.now + self.random.uniform(0, seconds), again)

    def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self.now, _, work = heapq.heappop(self._heap)
            work()

    def _tick_cluster(self, cluster: SimulatedCluster) -> None:
        cluster.tick(self.now)

    # The front and the network.

    def _tick_front(self) -> None:
        if self.front is None or self.now < self._frozen_until:
            return
        for call in self.front.calls(self.now):
            self._send(call)

    def _send(self, call: Call) -> None:
        """A request on its way: it may arrive long after the front has given it up."""
        generation, is_open = self._generation, [True]

        def give_up() -> None:
            if is_open.pop() and self._hears(generation):
                assert self.front is not None
                self.front.failed(call, "no answer", self.now)

        def come_back(hear: Callable[[Front], None]) -> None:
            if is_open and self._hears(generation):
                is_open.clear()
                assert self.front is not None
                hear(self.front)

        def arrive() -> None:
            cluster = self.clusters[call.cluster]
            if call.cluster in self._cut and self.random.random() < 0.7:
                if self.random.random() < 0.5:
                    self._at(self.now + self.random.uniform(1, 200), arrive)  # held up, not lost
                return
            if not cluster.is_up:
                return
            cluster.tick(self.now)
            try:
                answer = cluster.handle(call, self.now)
            except GantreeError as error:
                refusal = error
                reply = self._delay(call.cluster)
                if reply is not None:
                    self._at(
                        self.now + reply,
                        lambda: come_back(lambda front: front.refused(call, refusal, self.now)),
                    )
                return
            reply = self._delay(call.cluster)
            if reply is not None:
                self._at(
                    self.now + reply,
                    lambda: come_back(lambda front: front.answered(call, answer, self.now)),
                )

        def expire() -> None:
            if is_open:
                give_up()

        delay = self._delay(call.cluster)
        if delay is not None:
            self._at(self.now + delay, arrive)
        self._at(self.now + TIMEOUT_S, expire)

    def _hears(self, generation: int) -> bool:
        return self.front is not None and generation == self._generation

    def _delay(self, cluster: str) -> float | None:
        """How long a message takes; None: it is lost."""
        if cluster in self._cut:
            return self.random.uniform(1, 300) if self.random.random() < 0.3 else None
        if self.now < FAULTS_S and self.random.random() < 0.1:
            return self.random.choice([None, self.random.uniform(5, 240)])
        return self.random.expovariate(10.0)

    # What happens to it.

    def _act(self) -> None:
        if self.now >= FAULTS_S:
            return
        actions = (
            (8, self._submit), (2, self._cancel), (3, self._cut_link), (3, self._mend_link),
            (2, self._kill_front), (4, self._start_front), (1, self._freeze_front),
            (2, self._kill_daemon), (4, self._start_daemon), (1, self._reboot),
            (1, self._refuse), (1, self._release_by_hand), (1, self._switch_off), (3, self._confirm_lost),
        )  # fmt: skip
        weights = [weight for weight, _ in actions]
        (action,) = self.random.choices([act for _, act in actions], weights)
        name = action.__name__.removeprefix("_")
        self.faults[name] = self.faults.get(name, 0) + 1
        action()

    def _submit(self) -> None:
        if self.front is None or self.now < self._frozen_until:
            return
        name = f"job{len(self.acknowledged)}"
        needs_s = self.random.choice([5.0, 60.0, 300.0, SERVES_S])
        kind = "service" if needs_s == SERVES_S else "job"
        services = [job for job in self.front.jobs.values() if job.is_service and not job.cancelled]
        if kind == "service" and services and self.random.random() < 0.3:
            name = self.random.choice(services).name  # it is updated, perhaps with other regions
        regions = self.random.choice(REGIONS) if kind == "service" else ONE_REGION
        body = {"needs_s": needs_s, "service": name}
        job = FederatedJob(name, name, body, kind=kind, regions=regions)
        taken = [each.job for each in self.front.submit([(job, [])])]
        self.acknowledged += [each for each in taken if each not in self.acknowledged]

    def _cancel(self) -> None:
        if self.front is None or not self.acknowledged:
            return
        try:
            self.front.cancel(self.random.choice(self.acknowledged))
        except Conflict:
            return

    def _some_cluster(self) -> SimulatedCluster:
        return self.random.choice(list(self.clusters.values()))

    def _cut_link(self) -> None:
        self._cut.add(self._some_cluster().name)

    def _mend_link(self) -> None:
        self._cut.discard(self._some_cluster().name)

    def _kill_front(self) -> None:
        self.front = None
        self._generation += 1

    def _start_front(self) -> None:
        if self.front is None:
            self.front = self._front()

    def _freeze_front(self) -> None:
        self._frozen_until = self.now + self.random.uniform(1, 150)

    def _kill_daemon(self) -> None:
        self._some_cluster().is_up = False

    def _start_daemon(self) -> None:
        cluster = self._some_cluster()
        cluster.is_up = True
        self._is_off = self._is_off and cluster.name != KUBERNETES

    def _reboot(self) -> None:
        self._some_cluster().reboot(self.now)

    def _refuse(self) -> None:
        cluster = self._some_cluster()
        cluster.refuses = not cluster.refuses

    def _release_by_hand(self) -> None:
        self._some_cluster().release_by_hand(self.now)

    def _switch_off(self) -> None:
        """Its machines, until somebody starts it again."""
        self.clusters[KUBERNETES].switch_off(self.now)
        self._is_off = True

    def _confirm_lost(self) -> None:
        """An operator says so of a cluster that is off."""
        if self.front is None or not self._is_off or self.clusters[KUBERNETES].is_up:
            return
        try:
            self.front.confirm_lost(KUBERNETES, self.now)
        except Conflict:
            return

    def _calm(self) -> None:
        self._cut.clear()
        for cluster in self.clusters.values():
            cluster.is_up, cluster.refuses = True, False
        self._start_front()

    def _all_ended(self) -> bool:
        """Whether every job has ended, and each service runs once or was cancelled."""
        jobs = self.front.jobs if self.front is not None else {}
        running = Counter(each.job for each in self.history if each.end is None)
        return all(
            jobs[name].stage is Stage.ENDED and not running[name]
            if jobs[name].cancelled or not jobs[name].is_service
            else running[name] == 1 and jobs[name].stage is Stage.PLACED
            for name in self.acknowledged
        )


def overlaps(history: list[Attempt]) -> list[str]:
    """Attempts of one job that ran at the same time, in words. Services may overlap."""
    of_job: dict[str, list[Attempt]] = {}
    for attempt in history:
        of_job.setdefault(attempt.job, []).append(attempt)
    return [
        f"{job}: {first} and {second}"
        for job, attempts in of_job.items()
        for number, first in enumerate(attempts)
        for second in attempts[number + 1 :]
        if first.start < (second.end or float("inf")) and second.start < (first.end or float("inf"))
    ]


def check(life: Life) -> None:
    """AssertionError where what ran is not as it must be."""
    where = f"seed {life.seed}"
    kept = {job.job: job for job in life.store.jobs()}
    leased = [each for each in life.history if not kept[each.job].is_service]
    assert overlaps(leased) == [], where
    lost = [name for name in life.acknowledged if name not in kept]
    assert lost == [], f"{where}: acknowledged, and lost"
    assert life.now < FAULTS_S + CALM_S, f"{where}: not all have ended, or serve once"
    for job in kept.values():
        where_of_copies = [
            each.cluster
            for each in kept.values()
            if each.is_service and each.name == job.name and each.stage is Stage.PLACED
        ]
        assert len(where_of_copies) == len(set(where_of_copies)), f"{where}: {job.name} twice"
        assert not job.region or job.region == job.cluster or job.stage is Stage.ENDED, where
        if job.is_service and not job.cancelled:
            assert job.stage is Stage.PLACED, f"{where}: {job}"
            continue
        ran = [each for each in life.history if each.job == job.job]
        needs_s = job.submission["needs_s"]
        finished = any(
            each.end is not None and each.end - each.start >= needs_s - 1.0 for each in ran
        )
        assert job.outcome != "succeeded" or finished, f"{where}: {job} never ran to its end"
        assert job.outcome in ("succeeded", "cancelled"), f"{where}: {job}"
        assert job.outcome != "cancelled" or job.cancelled, f"{where}: {job} was not cancelled"
