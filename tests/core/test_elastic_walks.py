"""Random lives of elastic and movable gangs: every invariant after every event, nobody lost, nothing to and fro."""

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import Phase as Stages
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from gantree.core.cycle.growth import SETTLED_S
from gantree.model.events import DefragmentRequested, NodeLost, NodeReturned
from gantree.model.facts import Fact, GangMoving, GangPreempted, JobRequeued
from gantree.model.jobs import Checkpoint, Elastic, Job
from gantree.model.phases import ENDED, Phase, StopCause
from gantree.policy.rules import Policy, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.examples import examples
from support.lives import Life

NODES = ("n0", "n1", "n2", "n3")
MOVES = {StopCause.RESIZED, StopCause.MOVED}
POLICIES = (
    Policy(defragment="apply"),
    Policy(
        queues=(
            QueueRule("default", guarantee={"gpus": 4}),
            QueueRule("other", guarantee={"gpus": 8}, limit={"gpus": 12}),
        )
    ),
    Policy(order=("arrival",), queues=(QueueRule("other", limit={"gpus": 6}),)),
)

sizes = st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4)).map(sorted)
gangs = st.builds(
    lambda sizes, gpus, queue, priority, saves, required, limit: replace(
        job(
            "a",
            sizes[1],
            gpus,
            priority=priority,
            required=required,
            checkpoint=Checkpoint(grace_s=20) if saves else None,
            restarts=1,
            time_limit_s=limit,
        ),
        queue=queue,
        elastic=Elastic(sizes[0], sizes[2]) if sizes[0] < sizes[2] else None,
    ),
    sizes,
    st.sampled_from([1, 2, 4]),
    st.sampled_from(["default", "other"]),
    st.sampled_from(["research", "batch", "serving"]),
    st.booleans(),
    st.sampled_from([None, None, "leaf"]),
    st.sampled_from([None, 2_000.0]),
)


class Lives(RuleBasedStateMachine):
    """One cluster on which gangs shrink, grow and move, and anything else may happen meanwhile."""

    @initialize(policy=st.sampled_from(POLICIES))
    def begin(self, policy: Policy) -> None:
        self.stage = Stage(cluster(leaves=2, nodes=2, gpus=4), policy)
        self.names = 0

    def pick(self, number: int, *phases: Phase) -> str | None:
        jobs = [name for name, s in self.stage.scheduler.ledger.jobs.items() if s.phase in phases]
        return jobs[number % len(jobs)] if jobs else None

    @rule(gang=gangs)
    def submit(self, gang: Job) -> None:
        self.names += 1
        self.stage.submit(replace(gang, name=f"j{self.names}"))

    @rule()
    def start_all(self) -> None:
        for name, state in list(self.stage.scheduler.ledger.jobs.items()):
            if state.phase is Phase.STARTING:
                self.stage.started(name)

    @rule(number=st.integers(0, 20), code=st.sampled_from([0, 143]))
    def end(self, number: int, code: int) -> None:
        name = self.pick(number, Phase.RUNNING, Phase.SAVING, Phase.STOPPING)
        if name:
            self.stage.ended(name, code)

    @rule(number=st.integers(0, 20))
    def leave(self, number: int) -> None:
        name = self.pick(number, Phase.SAVING)
        if name:
            self.stage.saved(name, 5)
        name = self.pick(number, Phase.STOPPING)
        if name:
            self.stage.ended(name, 143)

    @rule(number=st.integers(0, 20))
    def fail_or_cancel(self, number: int) -> None:
        name = self.pick(number, Phase.SAVING, Phase.STOPPING)
        if name and number % 3 == 0:
            self.stage.cancel(name)
        elif name and self.stage.phase(name) is Phase.SAVING:
            self.stage.rank_failed(name)

    @rule(number=st.integers(0, 20))
    def ask_for_moves(self, number: int) -> None:
        name = self.pick(number, Phase.PENDING)
        if name:
            self.stage.tell(DefragmentRequested, job=name)

    @rule(seconds=st.sampled_from([5.0, SETTLED_S]))
    def wait(self, seconds: float) -> None:
        self.stage.wait(seconds)

    @rule(node=st.sampled_from(NODES))
    def lose(self, node: str) -> None:
        self.stage.tell(NodeLost, node=node)

    @rule(node=st.sampled_from(NODES))
    def return_(self, node: str) -> None:
        self.stage.tell(NodeReturned, node=node)

    def teardown(self) -> None:
        """Sizes were legal, moves were no evictions, and with all nodes back every gang comes to its end."""
        if not hasattr(self, "stage"):
            return
        check_moves(self.stage.facts, {n: s.spec for n, s in self.jobs().items()})
        for node in NODES:
            self.stage.tell(NodeReturned, node=node)
        for _ in range(20 * (self.names + 1)):
            if not self.stage.scheduler.ledger.holding:
                self.stage.wait(400)
            for name in list(self.stage.scheduler.ledger.holding):
                if name in self.stage.scheduler.ledger.holding:
                    self.stage.ended(name, 0)
        for name, state in self.jobs().items():
            assert state.phase in ENDED or never_fits(self.stage, name), self.stage.phases()

    def jobs(self) -> dict:  # type: ignore[type-arg]  # name -> state
        return self.stage.scheduler.ledger.jobs


def never_fits(stage: Stage, name: str) -> bool:
    """Whether a gang is larger than its queue's limit at any size: 4 nodes of 4 GPUs hold every other one."""
    spec = stage.state(name).spec
    least = spec.elastic.min if spec.elastic else spec.members
    limits = [rule.limit.get("gpus", 16) for rule in stage.policy.queues if rule.path == spec.queue]
    shape = spec.roles[0].shape.gpus
    leaf = 2 * (4 // shape)
    in_leaf = spec.topology.required == "leaf" and least > leaf
    return in_leaf or least * shape > min(limits, default=16)


def check_moves(facts: list[Fact], specs: dict[str, Job]) -> None:
    for fact in facts:
        if isinstance(fact, GangMoving):
            spec = specs[fact.job]
            size = len(fact.placement.members)
            least, most = (
                (spec.elastic.min, spec.elastic.max)
                if spec.elastic
                else (spec.members, spec.members)
            )
            assert least <= size <= most
    moved = {(f.job, f.at) for f in facts if isinstance(f, JobRequeued) and f.cause in MOVES}
    evicted = {(f.job, f.attempt) for f in facts if isinstance(f, GangPreempted)}
    moving = {(f.job, f.attempt) for f in facts if isinstance(f, GangMoving)}
    assert not evicted & moving
    assert len(moved) <= len(moving)


def test_random_elastic_lives_keep_every_invariant_and_end() -> None:
    run_state_machine_as_test(
        Lives,
        settings=settings(
            max_examples=examples(7),
            stateful_step_count=30,
            phases=(Stages.generate,),  # a life cannot be shrunk within a test run's time
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@given(st.lists(st.tuples(gangs, st.sampled_from([0.0, 700.0, 5_000.0])), min_size=1, max_size=6))
@settings(max_examples=examples(4), deadline=None, phases=(Stages.generate,))
def test_when_nothing_comes_and_nothing_ends_resizing_comes_to_rest(
    arrivals: list[tuple[Job, float]],
) -> None:
    """Who grew shrinks for nobody again, and who shrank grows for nothing."""
    life = Life(cluster(leaves=2, nodes=2, gpus=4), Policy(defragment="apply"))
    for number, (spec, pause_s) in enumerate(arrivals):
        life.submit(replace(spec, name=f"j{number}", time_limit_s=None))
        life.until(life.now + pause_s)
    last = life.now
    life.until(last + 86_400)
    assert moves_after(life, last) <= 3 * len(arrivals)
    rest = life.now
    life.until(rest + 2 * 86_400)
    assert moves_after(life, rest) == 0


def moves_after(life: Life, moment: float) -> int:
    return sum(isinstance(fact, GangMoving) and fact.at > moment for fact in life.stage.facts)
