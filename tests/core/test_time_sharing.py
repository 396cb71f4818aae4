"""Time-sharing through the whole scheduler: gangs on shared GPUs, time that passes, and what must always hold."""

from itertools import combinations
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gantree.core.ledger.state import JobState
from gantree.core.lifecycle.time_slicing import shared_gpus
from gantree.model.events import ReleaseRequested
from gantree.model.facts import Fact, GangResumed, GangSuspended
from gantree.model.jobs import Checkpoint, Job, Role, Shape
from gantree.model.orders import ResumeGang, SuspendGang
from gantree.model.phases import HOLDING, Phase
from gantree.model.replicas import ReplicaOf
from gantree.policy.rules import Policy, TimeSharing
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.examples import examples

RULES = TimeSharing(("notebook",), 60.0)
PRIORITIES = {"notebook": 150, "batch": 200}
POLICY = Policy(priorities=PRIORITIES, order=("priority", "arrival"), time_sharing=RULES)
CHECKPOINT = Checkpoint(grace_s=30.0)


def notebook(name: str, members: int = 1, share: float = 0.25, **fields: Any) -> Job:
    """A job that asks for shares of GPUs, of which all fit on one."""
    shape = Shape(gpu_share=share, gpu_memory_GiB=10.0, isolation="time-slicing", neighbours=True)
    role = Role("worker", members, shape, run=("true",))
    return Job(name, (role,), **{"priority": "notebook", **fields})


def stage_of(gpus: int = 1, nodes: int = 1, policy: Policy = POLICY) -> Stage:
    return Stage(cluster(leaves=1, nodes=nodes, gpus=gpus), policy)


def started(stage: Stage, *jobs: Job) -> Stage:
    stage.submit(*jobs)
    stage.started(*(each.name for each in jobs))
    return stage


def suspended(stage: Stage) -> list[str]:
    return [job for job, state in stage.scheduler.ledger.holding.items() if state.suspended]


def told(stage: Stage, kind: type[Fact]) -> list[str]:
    return [fact.job for fact in stage.facts if isinstance(fact, kind) and hasattr(fact, "job")]


def test_three_notebooks_on_one_gpu_take_turns_of_a_quantum_each() -> None:
    stage = started(stage_of(), notebook("a"), notebook("b"), notebook("c"))
    cell_view = []
    for _ in range(6):
        cell_view.append("".join(sorted({"a", "b", "c"} - set(suspended(stage)))))
        wake_at = stage.scheduler.wake_at()
        assert wake_at == stage.now + 60.0
        stage.wait(60.0)
    assert cell_view == ["a", "b", "c", "a", "b", "c"]


def test_orders_count_up_so_that_a_late_one_is_known_as_old() -> None:
    stage = started(stage_of(), notebook("a"), notebook("b"))
    stage.wait(60.0)
    stage.wait(60.0)
    turns = [
        (type(order), order.turn)
        for order in stage.orders
        if isinstance(order, SuspendGang | ResumeGang) and order.job == "b"
    ]
    assert turns == [(SuspendGang, 1), (ResumeGang, 2), (SuspendGang, 3)]
    standing = [each for each in stage.scheduler.standing_orders() if each.job == "b"]
    assert isinstance(standing[-1], SuspendGang) and standing[-1].turn == 3


def test_who_is_suspended_in_one_moment_is_told_so_in_the_order_of_handing_in() -> None:
    """Not in that in which they were placed: a scheduler that has recovered knows them in another one."""
    stage = stage_of(gpus=2)
    stage.submit(notebook("a", share=0.75, held=True))
    started(stage, notebook("b", share=0.75))
    stage.tell(ReleaseRequested, job="a")
    stage.started("a")
    started(stage, notebook("both", members=2))
    stage.wait(60.0)
    assert told(stage, GangSuspended) == ["both", "a", "b"]


def test_a_notebook_alone_on_its_gpu_is_never_suspended_and_wakes_nobody() -> None:
    stage = started(stage_of(gpus=2), notebook("a", share=0.75), notebook("b", share=0.75))
    stage.wait(1000.0)
    assert told(stage, GangSuspended) == told(stage, GangResumed) == []
    assert stage.scheduler.wake_at() is None


def test_jobs_of_other_classes_on_the_same_gpu_are_no_party_to_turns() -> None:
    stage = started(stage_of(), notebook("a"), notebook("b", priority="batch"))
    stage.wait(1000.0)
    assert suspended(stage) == []


def test_a_replica_of_a_service_is_no_party_to_turns_as_it_has_to_answer() -> None:
    stage = started(stage_of(), notebook("a"), notebook("chat.1", service=ReplicaOf("chat", 1, 1)))
    stage.wait(60.0)
    assert told(stage, GangSuspended) == []


def test_when_the_one_that_computes_ends_the_next_is_resumed_at_once() -> None:
    stage = started(stage_of(), notebook("a"), notebook("b"))
    stage.now += 10.0
    stage.ended("a")
    assert suspended(stage) == []
    assert stage.scheduler.wake_at() is None


def test_a_suspended_notebook_that_is_cancelled_is_resumed_to_hear_of_it() -> None:
    stage = started(stage_of(), notebook("a"), notebook("b"))
    stage.cancel("b")
    assert suspended(stage) == []
    assert told(stage, GangResumed)[-1] == "b"
    stage.ended("b", 143)
    assert stage.phases() == {"a": "running", "b": "cancelled"}


def test_a_suspended_notebook_that_is_preempted_saves_first_while_its_rivals_wait() -> None:
    policy = Policy(priorities=PRIORITIES, order=("priority", "arrival"), time_sharing=RULES)
    stage = started(stage_of(policy=policy), notebook("a", checkpoint=CHECKPOINT))
    started(stage, notebook("b", checkpoint=CHECKPOINT))
    stage.submit(job("big", gpus=1))
    assert {stage.phase("a"), stage.phase("b")} == {Phase.SAVING}
    assert suspended(stage) == []


def test_suspended_seconds_do_not_count_against_a_time_limit() -> None:
    stage = started(stage_of(), notebook("a", time_limit_s=90.0), notebook("b"))
    stage.wait(60.0)
    stage.wait(60.0)
    assert stage.phase("a") is Phase.RUNNING
    stage.wait(29.0)
    assert stage.phase("a") is Phase.RUNNING
    stage.wait(1.0)
    assert stage.phase("a") is Phase.STOPPING


def test_a_policy_without_time_sharing_lets_everybody_go_on_after_a_restart() -> None:
    stage = started(stage_of(), notebook("a"), notebook("b"))
    facts = tuple(stage.facts)
    stage = stage_of(policy=Policy(priorities=PRIORITIES, order=("priority", "arrival")))
    stage.facts = list(facts)
    stage.scheduler.recover(facts[1:])
    assert stage.scheduler.wake_at() == 0.0
    stage.wait(0.0)
    assert suspended(stage) == []


# ----- any walk


class Sharing(RuleBasedStateMachine):
    """Notebooks and gangs of notebooks come, go, fail and are cancelled while time passes."""

    @initialize(gpus=st.integers(1, 3))
    def begin(self, gpus: int) -> None:
        self.stage = stage_of(gpus, nodes=2)
        self.number = 0

    @rule(members=st.integers(1, 2), share=st.sampled_from([0.25, 0.5]), saves=st.booleans())
    def submit(self, members: int, share: float, *, saves: bool) -> None:
        self.number += 1
        checkpoint = CHECKPOINT if saves else None
        self.stage.submit(notebook(f"j{self.number}", members, share, checkpoint=checkpoint))

    def _some(self, data: st.DataObject, *phases: Phase) -> str | None:
        ledger = self.stage.scheduler.ledger
        jobs = [job for job, state in ledger.jobs.items() if state.phase in phases]
        return data.draw(st.sampled_from(jobs)) if jobs else None

    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        name = self._some(data, Phase.STARTING)
        if name is not None:
            self.stage.started(name)

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        name = self._some(data, *HOLDING)
        if name is not None:
            self.stage.ended(name, 0)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        name = self._some(data, *HOLDING, Phase.PENDING)
        if name is not None:
            self.stage.cancel(name)

    @rule(seconds=st.sampled_from([0.0, 1.0, 17.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.stage.wait(seconds)

    @precondition(lambda self: self.stage.scheduler.wake_at() is not None)
    @rule()
    def wait_for_the_alarm(self) -> None:
        wake_at = self.stage.scheduler.wake_at()
        assert wake_at is not None
        self.stage.wait(max(0.0, wake_at - self.stage.now))

    @invariant()
    def no_two_rivals_compute(self) -> None:
        if not hasattr(self, "stage"):
            return
        holding = self.stage.scheduler.ledger.holding.values()
        for one, other in combinations([each for each in holding if not each.suspended], 2):
            free = Phase.SAVING, Phase.STOPPING
            shares = not shared_gpus(one, RULES).isdisjoint(shared_gpus(other, RULES))
            assert not shares or one.phase in free or other.phase in free

    @invariant()
    def whoever_waits_has_a_rival_and_hears_of_its_turn(self) -> None:
        if not hasattr(self, "stage"):
            return
        ledger, waiting = self.stage.scheduler.ledger, suspended(self.stage)
        for name in waiting:
            state = ledger.jobs[name]
            assert state.phase in (Phase.STARTING, Phase.RUNNING)
            assert any(_are_rivals(state, each) for each in ledger.holding.values())
        if waiting and not any(state.leaving for state in ledger.holding.values()):
            assert self.stage.scheduler.wake_at() is not None


def _are_rivals(one: JobState, other: JobState) -> bool:
    return one is not other and not shared_gpus(one, RULES).isdisjoint(shared_gpus(other, RULES))


TestSharing = Sharing.TestCase
TestSharing.settings = settings(max_examples=examples(10), stateful_step_count=30, deadline=None)


def test_a_start_behind_gangs_that_take_turns_is_an_estimate() -> None:
    """Whose turn it is not loses no time of its limit, so its end is nobody's promise."""
    stage = started(stage_of(), notebook("turns", share=0.5, time_limit_s=100.0))
    stage.submit(job("big", gpus=1, priority="notebook", time_limit_s=100.0))
    assert not stage.scheduler.ledger.reservations["big"].promised
