"""Random lives into which people put their word: whatever they ask for, when, the invariants hold and all can end.

`Stage` checks every invariant, and that folding the facts gives a ledger that decides the same, after every event.
"""

from dataclasses import replace

from hypothesis import HealthCheck, settings
from hypothesis import Phase as Stages
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from gantree.core.explain.explain import why
from gantree.model.events import (
    CordonRequested,
    HoldRequested,
    LabelRequested,
    NodeLost,
    NodeReturned,
    PriorityRequested,
    ReleaseRequested,
    ScaleRequested,
    SuspendRequested,
    UncordonRequested,
)
from gantree.model.jobs import Checkpoint, Elastic, Job
from gantree.model.phases import ENDED, Phase
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.examples import examples

CLASSES = ("research", "batch", "production")
NODES = ("n0", "n1", "n2", "n3")
numbers, nodes = st.integers(0, 20), st.sampled_from(NODES)


def asking_for(spec: Job, label: str | None) -> Job:
    """The job, for nodes of this pool only."""
    labels = () if label is None else (("pool", label),)
    roles = tuple(replace(r, shape=replace(r.shape, labels=labels)) for r in spec.roles)
    return replace(spec, roles=roles)


class Asked(RuleBasedStateMachine):
    """One cluster, jobs that come and go, and everything that may be asked."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage(cluster(leaves=2, nodes=2, gpus=4))
        self.names = 0

    def pick(self, number: int, *phases: Phase) -> str | None:
        jobs = [name for name, s in self.stage.scheduler.ledger.jobs.items() if s.phase in phases]
        return jobs[number % len(jobs)] if jobs else None

    @rule(
        members=st.integers(1, 4),
        gpus=st.sampled_from([1, 2, 4]),
        priority=st.sampled_from(CLASSES),
        saves=st.booleans(),
        elastic=st.booleans(),
        stays=st.integers(0, 4),
        pool=st.sampled_from([None, None, "a"]),
    )
    def submit(
        self,
        members: int,
        gpus: int,
        priority: str,
        saves: bool,
        elastic: bool,
        stays: int,
        pool: str | None,
    ) -> None:
        self.names += 1
        spec = job(
            f"j{self.names}",
            members,
            gpus,
            priority=priority,
            checkpoint=Checkpoint(grace_s=20) if saves else None,
            restarts=1,
        )
        spec = replace(spec, elastic=Elastic(1, 4) if elastic else None, preemptible=stays != 0)
        self.stage.submit(asking_for(spec, pool))

    @rule(number=numbers)
    def start(self, number: int) -> None:
        name = self.pick(number, Phase.STARTING)
        if name:
            self.stage.started(name)

    @rule(number=numbers, code=st.sampled_from([0, 1, 143]))
    def end(self, number: int, code: int) -> None:
        name = self.pick(number, Phase.RUNNING, Phase.SAVING, Phase.STOPPING)
        if name:
            self.stage.ended(name, code)

    @rule(number=numbers, step=st.integers(1, 99))
    def save(self, number: int, step: int) -> None:
        name = self.pick(number, Phase.RUNNING, Phase.SAVING)
        if name:
            self.stage.saved(name, step)

    @rule(seconds=st.sampled_from([0.5, 5.0, 30.0, 700.0]))
    def wait(self, seconds: float) -> None:
        self.stage.wait(seconds)

    @rule(node=nodes, back=st.booleans())
    def lose(self, node: str, back: bool) -> None:
        self.stage.tell(NodeReturned if back else NodeLost, node=node)

    @rule(number=numbers, kind=st.sampled_from([HoldRequested, SuspendRequested, ReleaseRequested]))
    def hold(self, number: int, kind: type[HoldRequested]) -> None:
        name = self.pick(number, *Phase)
        if name:
            self.stage.tell(kind, job=name)

    @rule(number=numbers, members=st.integers(0, 5))
    def scale(self, number: int, members: int) -> None:
        name = self.pick(number, *Phase)
        if name:
            self.stage.tell(ScaleRequested, job=name, members=members)

    @rule(number=numbers, priority=st.sampled_from([*CLASSES, 150, "no-such-class"]))
    def reprioritise(self, number: int, priority: str | int) -> None:
        name = self.pick(number, *Phase)
        if name:
            self.stage.tell(PriorityRequested, job=name, priority=priority)

    @rule(node=nodes, drain=st.booleans(), deadline_s=st.sampled_from([None, 0.0, 20.0]))
    def cordon(self, node: str, drain: bool, deadline_s: float | None) -> None:
        self.stage.now += 0.25
        at = None if deadline_s is None or not drain else self.stage.now + deadline_s
        self.stage.tell(CordonRequested, node=node, drain=drain, deadline_at=at)

    @rule(node=nodes)
    def uncordon(self, node: str) -> None:
        self.stage.tell(UncordonRequested, node=node)

    @rule(node=nodes, value=st.sampled_from(["a", "b", None]))
    def label(self, node: str, value: str | None) -> None:
        self.stage.tell(LabelRequested, node=node, labels=(("pool", value),))

    def teardown(self) -> None:
        """With all nodes open and nobody held, every job that can fit comes to its end."""
        for node in NODES:
            self.stage.tell(NodeReturned, node=node)
            self.stage.tell(UncordonRequested, node=node)
        for name in list(self.stage.scheduler.ledger.jobs):
            self.stage.tell(ReleaseRequested, job=name)
        for _ in range(20 * (self.names + 1)):
            holding = list(self.stage.scheduler.ledger.holding)
            if not holding:
                self.stage.wait(400)
                holding = list(self.stage.scheduler.ledger.holding)
            for name in holding:
                self.stage.ended(name, 0)
        for name, state in self.stage.scheduler.ledger.jobs.items():
            if state.phase not in ENDED:
                refused = why(self.stage.scheduler.ledger, name, self.stage.now).refused
                assert refused is not None and refused.never, self.stage.phases()


def test_whatever_people_ask_for_every_invariant_holds_and_all_can_end() -> None:
    run_state_machine_as_test(
        Asked,
        settings=settings(
            max_examples=examples(6),
            stateful_step_count=40,
            phases=(Stages.generate,),  # a life cannot be shrunk within a test run's time
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
