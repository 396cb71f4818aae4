"""Random lives of random jobs: whatever happens in whatever order, the invariants hold and everything ends.

`Stage` checks every invariant, and that folding the facts gives the same ledger, after every single event.
"""

from hypothesis import HealthCheck, given, settings
from hypothesis import Phase as Stages
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from gantree.core.explain.explain import why
from gantree.model.events import GangEnded, MemberLost, NodeLost, NodeReturned
from gantree.model.jobs import Checkpoint
from gantree.model.phases import ENDED, NEXT, Phase
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.examples import examples

CLASSES = ("research", "batch", "production", "serving")


class Lives(RuleBasedStateMachine):
    """One cluster, and anything that may happen on it."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage(cluster(leaves=2, nodes=2, gpus=4))
        self.names = 0

    def pick(self, number: int, *phases: Phase) -> str | None:
        """The number-th job (wrapping round) that is in one of these phases."""
        jobs = [name for name, s in self.stage.scheduler.ledger.jobs.items() if s.phase in phases]
        return jobs[number % len(jobs)] if jobs else None

    @rule(
        members=st.integers(1, 4),
        gpus=st.sampled_from([1, 2, 4]),
        priority=st.sampled_from(CLASSES),
        required=st.sampled_from([None, "leaf", "node"]),
        saves=st.booleans(),
        limit=st.sampled_from([None, 40.0]),
    )
    def submit(
        self,
        members: int,
        gpus: int,
        priority: str,
        required: str | None,
        saves: bool,
        limit: float | None,
    ) -> None:
        self.names += 1
        self.stage.submit(
            job(
                f"j{self.names}",
                members,
                gpus,
                priority=priority,
                required=required,
                checkpoint=Checkpoint(grace_s=20) if saves else None,
                restarts=1,
                time_limit_s=limit,
            )
        )

    @rule(number=st.integers(0, 20))
    def start(self, number: int) -> None:
        name = self.pick(number, Phase.STARTING)
        if name:
            self.stage.started(name)

    @rule(number=st.integers(0, 20), code=st.sampled_from([0, 1, 143]))
    def end(self, number: int, code: int) -> None:
        name = self.pick(number, Phase.STARTING, Phase.RUNNING, Phase.SAVING, Phase.STOPPING)
        if name:
            self.stage.ended(name, code)

    @rule(number=st.integers(0, 20))
    def fail(self, number: int) -> None:
        name = self.pick(number, Phase.RUNNING, Phase.SAVING)
        if name:
            self.stage.rank_failed(name)

    @rule(number=st.integers(0, 20), step=st.integers(1, 99))
    def save(self, number: int, step: int) -> None:
        name = self.pick(number, Phase.RUNNING, Phase.SAVING, Phase.STOPPING)
        if name:
            self.stage.saved(name, step)

    @rule(number=st.integers(0, 20))
    def cancel(self, number: int) -> None:
        name = self.pick(number, *Phase)
        if name:
            self.stage.cancel(name)

    @rule(seconds=st.sampled_from([0.5, 5.0, 30.0]))
    def wait(self, seconds: float) -> None:
        self.stage.wait(seconds)

    @rule(node=st.sampled_from(["n0", "n1", "n2", "n3"]))
    def lose(self, node: str) -> None:
        self.stage.tell(NodeLost, node=node)

    @rule(node=st.sampled_from(["n0", "n1", "n2", "n3"]))
    def return_(self, node: str) -> None:
        self.stage.tell(NodeReturned, node=node)

    @rule(number=st.integers(0, 20), attempt=st.integers(0, 3))
    def tell_old_news(self, number: int, attempt: int) -> None:
        name = self.pick(number, *Phase)
        if name and attempt < self.stage.state(name).attempt:
            before = dict(self.stage.phases())
            self.stage.tell(GangEnded, job=name, attempt=attempt, exit_code=0)
            self.stage.tell(
                MemberLost, job=name, attempt=attempt, role="worker", member=0, reason="old"
            )
            assert self.stage.phases() == before

    def teardown(self) -> None:
        """With all nodes back and every gang ending well, every job that can fit comes to its end."""
        for node in ("n0", "n1", "n2", "n3"):
            self.stage.tell(NodeReturned, node=node)
        for _ in range(20 * (self.names + 1)):
            holding = list(self.stage.scheduler.ledger.holding)
            if not holding:
                self.stage.wait(400)
                holding = list(self.stage.scheduler.ledger.holding)
            if not holding and self.stage.scheduler.wake_at() is None:
                break  # time alone changes nothing any more
            for name in holding:
                self.stage.ended(name, 0)
        for name, state in self.stage.scheduler.ledger.jobs.items():
            if state.phase not in ENDED:
                refused = why(self.stage.scheduler.ledger, name, self.stage.now).refused
                assert refused is not None and refused.never, self.stage.phases()


def test_random_lives_keep_every_invariant_and_end() -> None:
    run_state_machine_as_test(
        Lives,
        settings=settings(
            max_examples=examples(10),
            stateful_step_count=30,
            phases=(Stages.generate,),  # a life cannot be shrunk within a test run's time
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_every_phase_can_be_reached_and_only_ends_are_final() -> None:
    reached, frontier = {Phase.PENDING}, [Phase.PENDING]
    while frontier:
        for phase in NEXT[frontier.pop()] - reached:
            reached.add(phase)
            frontier.append(phase)
    assert reached == set(Phase)
    assert {phase for phase, following in NEXT.items() if not following} == ENDED


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.sampled_from([1, 2, 4]), st.sampled_from(CLASSES)),
        max_size=12,
    ),
)
@settings(max_examples=examples(30), deadline=None)
def test_a_batch_decides_like_its_events_one_by_one(
    wishes: list[tuple[int, int, str]],
) -> None:
    """Without preemption the order of arrival inside a batch is all that counts."""
    same_class = [job(f"j{n}", members, gpus) for n, (members, gpus, _) in enumerate(wishes)]
    together = Stage(cluster(leaves=2, nodes=2, gpus=4))
    together.submit(*same_class)
    single = Stage(cluster(leaves=2, nodes=2, gpus=4))
    for spec in same_class:
        single.submit(spec)
    assert together.phases() == single.phases()
