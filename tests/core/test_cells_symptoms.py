"""What went wrong with cells in whole schedulers, each as it showed itself."""

from dataclasses import replace
from typing import Any, Literal

import pytest

from gantree.core.explain.explain import when, why
from gantree.core.scheduler import Scheduler
from gantree.model.cluster import Cluster
from gantree.model.events import ClusterObserved, JobSubmitted, NodeLost, TimePassed
from gantree.model.facts import ClaimDropped, GangPlaced, GangPreempted, RoomClaimed
from gantree.model.jobs import Checkpoint, Job, Role, Shape
from gantree.model.phases import Phase
from gantree.model.verdicts import Gate
from gantree.policy.rules import Backfill, Policy, Preemption, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage

ONE_NODE = QueueRule("a", cells=(("node", 1),))
TWO_NODES = QueueRule("a", cells=(("node", 2),))
GUESTS = QueueRule("c")
Defragment = Literal["off", "plan", "apply"]


def site(nodes: int) -> Cluster:
    return cluster(leaves=1, nodes=nodes, gpus=4)


def of(queue: str, name: str, members: int = 1, gpus: int = 4, **fields: Any) -> Job:
    return replace(job(name, members, gpus, **fields), queue=queue)


def forever(queue: str, name: str, members: int, gpus: int = 4) -> Job:
    """A job of a high class that may never be stopped."""
    return replace(of(queue, name, members, gpus, priority="serving"), preemptible=False)


def share(queue: str, name: str, part: float = 0.25) -> Job:
    role = Role("worker", 1, Shape(gpu_share=part), run=("true",))
    return Job(name, (role,), queue=queue)


def submitted(stage: Stage, *jobs: Job) -> None:
    """Hand jobs in one after the other; whatever has a place runs."""
    for spec in jobs:
        stage.submit(spec)
        run(stage)


def run(stage: Stage) -> None:
    ledger = stage.scheduler.ledger
    for name in [name for name, state in ledger.jobs.items() if state.phase is Phase.STARTING]:
        stage.started(name)


def play(stage: Stage, rounds: int = 20) -> None:
    """Let time pass; one gang that was told to leave is gone after each step."""
    for _ in range(rounds):
        leaving = list(stage.scheduler.ledger.leaving)
        if leaving:
            stage.ended(leaving[0], 143)
        stage.wait(10.0)
        run(stage)


def preemptions(stage: Stage) -> list[str]:
    return [fact.job for fact in stage.facts if isinstance(fact, GangPreempted)]


def attempts(stage: Stage, name: str) -> int:
    return sum(isinstance(fact, GangPlaced) and fact.job == name for fact in stage.facts)


# ----- a queue's own order


@pytest.mark.parametrize("by", ["priority", "order"])
def test_a_stopped_gang_does_not_go_home_into_what_it_was_stopped_for(
    by: Literal["priority", "order"],
) -> None:
    stage = Stage(site(2), Policy(queues=(ONE_NODE,), preemption=Preemption(by=by)))
    submitted(stage, of("a", "lo1"), of("a", "lo2"), of("a", "hi", 2, priority="serving"))
    play(stage)
    assert stage.phase("hi") is Phase.RUNNING
    assert sorted(preemptions(stage)) == ["lo1", "lo2"]


def test_a_gang_does_not_go_home_over_one_of_its_queue_that_would_stop_it_again() -> None:
    stage = Stage(site(2), Policy(queues=(ONE_NODE,)))
    submitted(stage, of("a", "hi", 2, priority="serving"), of("a", "lo"))
    play(stage)
    assert stage.phases() == {"hi": "running", "lo": "pending"}
    assert preemptions(stage) == []


@pytest.mark.parametrize("limited", [{"limit": {"gpus": 4}}, {"most_running": 1}])
@pytest.mark.parametrize("overtake", ["none", "promised"])
def test_a_job_does_not_go_home_above_the_limit_of_its_queue(
    limited: dict[str, Any], overtake: Literal["none", "promised"]
) -> None:
    queue = replace(TWO_NODES, **limited)
    stage = Stage(site(3), Policy(queues=(queue,), backfill=Backfill(overtake=overtake)))
    large = of("a", "large", 2) if "limit" in limited else of("a", "large", 9)
    submitted(stage, of("a", "one"), of("a", "two"), large)
    assert stage.phases() == {"one": "running", "two": "pending", "large": "pending"}
    told = why(stage.scheduler.ledger, "two", stage.now)
    assert told.refused is not None
    assert told.refused.gate is Gate.LIMIT
    stage.ended("one", 0)
    assert stage.phase("two") is Phase.STARTING


def test_users_of_a_queue_go_home_in_its_order_whoever_began_to_wait_first() -> None:
    stage = Stage(site(1), Policy(queues=(ONE_NODE, GUESTS), share_users=True))
    submitted(stage, of("a", "home", priority="serving"))
    submitted(stage, replace(of("a", "bobs"), user="bob"))
    submitted(stage, replace(of("a", "anns", priority="production"), user="ann"))
    stage.ended("home")
    assert stage.phase("anns") is Phase.STARTING
    assert stage.phase("bobs") is Phase.PENDING


def test_who_runs_at_home_only_is_told_of_the_limit_of_its_queue() -> None:
    queue = replace(TWO_NODES, limit={"gpus": 4})
    stage = Stage(site(3), Policy(queues=(queue,)))
    submitted(stage, of("a", "one"), forever("a", "two", 1), forever("a", "large", 2))
    refused = [why(stage.scheduler.ledger, name, stage.now).refused for name in ("two", "large")]
    assert [(each.gate, each.never) for each in refused if each] == [
        (Gate.LIMIT, False),
        (Gate.LIMIT, True),
    ]


@pytest.mark.parametrize(
    ("queue", "name", "never", "words"),
    [
        (ONE_NODE, "large", True, "(node: 1), and these would not hold it if they were empty"),
        (ONE_NODE, "second", False, "(node: 1), and these have no room for it now"),
        (
            replace(ONE_NODE, limit={"gpus": 8}),
            "second",
            False,
            "(node: 1), and these have no room",
        ),
    ],
)
def test_who_runs_at_home_or_not_at_all_is_not_told_that_it_fits_elsewhere(
    queue: QueueRule, name: str, never: bool, words: str
) -> None:
    other = QueueRule("b", guarantee={"gpus": 4})
    stage = Stage(site(4), Policy(queues=(queue, other, GUESTS)))
    submitted(stage, forever("a", "first", 1), forever("a", "second", 1), forever("a", "large", 2))
    ledger = stage.scheduler.ledger
    explained = why(ledger, name, stage.now)
    assert explained.sentence.startswith("Waiting: is never preempted, so it runs in the cells of")
    assert words in explained.sentence
    assert explained.refused is not None and explained.refused.never == never
    assert when(ledger, name, stage.now) is None


def test_a_later_job_does_not_go_home_into_what_an_earlier_one_of_its_queue_has_claimed() -> None:
    stage = Stage(site(2), Policy(queues=(ONE_NODE, GUESTS)))
    submitted(stage, of("a", "runs"), of("c", "leaves"))
    stage.cancel("leaves")
    submitted(stage, of("a", "first"), of("a", "second"))
    assert list(stage.scheduler.ledger.claims) == ["first"]
    stage.tell(NodeLost, node="n0", reason="gone")
    stage.ended("runs", 1)
    assert list(stage.scheduler.ledger.claims) == ["first"]
    stage.ended("leaves")
    assert stage.phase("first") is Phase.STARTING and stage.state("first").at_home


def test_a_gang_goes_home_over_one_of_its_queue_that_is_only_beyond_its_cells() -> None:
    stage = Stage(site(2), Policy(queues=(ONE_NODE,)))
    submitted(stage, of("a", "large", 2), of("a", "small"))
    play(stage)
    assert stage.phase("small") is Phase.RUNNING
    assert preemptions(stage) == ["large"]


def test_a_gang_that_never_fits_its_cells_keeps_nobody_from_going_home() -> None:
    policy = Policy(order=("arrival",), queues=(ONE_NODE, GUESTS), backfill=Backfill("none"))
    stage = Stage(site(2), policy)
    submitted(stage, of("c", "guest", 2), of("a", "large", 2), of("a", "small"))
    play(stage)
    assert stage.phase("small") is Phase.RUNNING


def test_a_gang_that_moves_home_waits_for_a_guest_that_takes_longer_to_leave() -> None:
    leaf = QueueRule("b", cells=(("leaf", 1),))
    stage = Stage(cluster(leaves=2, nodes=2, gpus=4), Policy(queues=(ONE_NODE, leaf, GUESTS)))
    slow = of("c", "slow", 1, 1, checkpoint=Checkpoint(grace_s=100.0))
    submitted(stage, of("b", "theirs"), of("a", "runs", 1, 3), slow)
    stage.tell(NodeLost, node="n3", reason="gone")
    submitted(stage, of("a", "moves"))
    assert stage.nodes("moves") == ["n1"] and not stage.state("moves").at_home
    stage.ended("runs")
    stage.ended("moves", 143)
    assert stage.phase("slow") is Phase.SAVING and stage.phase("moves") is Phase.PENDING
    assert not any(isinstance(fact, ClaimDropped) for fact in stage.facts)
    stage.saved("slow", 1)
    stage.ended("slow", 143)
    assert stage.nodes("moves") == ["n2"] and stage.state("moves").at_home


# ----- gangs that may never be stopped


def test_a_claim_at_home_names_only_those_who_leave_its_place() -> None:
    """A guest that leaves the cell of another queue has nothing to do with it."""
    queues = (ONE_NODE, QueueRule("b", cells=(("node", 1),)), GUESTS)
    stage = Stage(site(2), Policy(queues=queues))
    submitted(stage, of("c", "guest1"), of("c", "guest2"), of("a", "first"), of("b", "second"))
    claims = stage.scheduler.ledger.claims
    assert sorted(claims["first"].victims + claims["second"].victims) == ["guest1", "guest2"]


@pytest.mark.parametrize("defragment", ["off", "plan", "apply"])
def test_who_may_run_at_home_only_stops_nobody_for_a_place_elsewhere(
    defragment: Defragment,
) -> None:
    policy = Policy(queues=(ONE_NODE, GUESTS), defragment=defragment)
    stage = Stage(site(2), policy)
    submitted(stage, of("c", "guest", 1, 2), forever("a", "never", 2))
    play(stage)
    assert stage.phases() == {"guest": "running", "never": "pending"}
    assert preemptions(stage) == [] and attempts(stage, "guest") == 1


@pytest.mark.parametrize("defragment", ["off", "plan", "apply"])
def test_who_may_run_at_home_only_claims_no_idle_room_elsewhere(defragment: Defragment) -> None:
    stage = Stage(site(3), Policy(queues=(ONE_NODE, GUESTS), defragment=defragment))
    submitted(stage, *(of("c", f"guest{n}", 1, 2) for n in range(3)))
    submitted(stage, forever("a", "never", 2))
    play(stage)
    submitted(stage, of("c", "small"))
    assert stage.phase("small") is Phase.RUNNING
    assert stage.scheduler.ledger.claims == {}
    assert "its room is held" not in why(stage.scheduler.ledger, "never", stage.now).sentence


def test_who_may_never_be_stopped_does_not_break_up_the_cells_of_another_queue() -> None:
    other = QueueRule("b", cells=(("node", 2),))
    stage = Stage(site(3), Policy(queues=(ONE_NODE, other, GUESTS)))
    submitted(stage, *(of("c", f"guest{n}", 1, 2) for n in range(3)))
    submitted(stage, forever("a", "never", 2), of("b", "home", 2, priority="serving"))
    play(stage)
    assert stage.phase("home") is Phase.RUNNING and stage.state("home").at_home


@pytest.mark.parametrize("defragment", ["off", "apply"])
def test_who_owns_nothing_and_may_never_be_stopped_gets_room_that_no_cell_needs(
    defragment: Defragment,
) -> None:
    stage = Stage(site(3), Policy(queues=(TWO_NODES, GUESTS), defragment=defragment))
    submitted(stage, *(of("c", f"guest{n}", 1, 4) for n in range(3)))
    submitted(stage, forever("c", "stays", 1))
    play(stage)
    submitted(stage, of("a", "home", 2, priority="serving"))
    play(stage)
    assert stage.phase("stays") is Phase.RUNNING
    assert stage.phase("home") is Phase.RUNNING and stage.state("home").at_home


def test_who_may_never_be_stopped_stops_nobody_where_cells_need_every_node() -> None:
    stage = Stage(site(2), Policy(queues=(TWO_NODES, GUESTS)))
    submitted(stage, of("c", "guest0"), of("c", "guest1"), forever("c", "never", 1))
    play(stage)
    assert stage.phase("never") is Phase.PENDING
    assert preemptions(stage) == []


def test_who_may_never_be_stopped_goes_where_it_costs_more_but_breaks_up_no_cell() -> None:
    leaf = QueueRule("a", cells=(("leaf", 1),))
    stage = Stage(cluster(leaves=2, nodes=2, gpus=4), Policy(queues=(leaf, GUESTS)))
    submitted(stage, forever("c", "early", 1), of("c", "long"))
    assert stage.nodes("long") == ["n1"]
    stage.wait(1000.0)
    submitted(stage, of("c", "short0"), of("c", "short1"))
    stage.wait(10.0)
    submitted(stage, forever("c", "late", 1))
    play(stage)
    assert preemptions(stage) == ["long"] and stage.nodes("late") == ["n1"]


# ----- parts of GPUs


@pytest.mark.parametrize("cells", [(("gpus", 2),), (("gpu", 2),)])
def test_a_part_of_a_gpu_at_home_is_not_one_of_a_gpu_elsewhere(
    cells: tuple[tuple[str, int], ...],
) -> None:
    stage = Stage(
        site(2), Policy(queues=(QueueRule("a", cells=cells), QueueRule("b", cells=cells)))
    )
    submitted(stage, share("b", "theirs"), share("a", "mine"))
    assert stage.state("theirs").at_home and stage.state("mine").at_home


def test_home_jobs_share_a_gpu_of_their_cell() -> None:
    queues = (QueueRule("a", cells=(("gpus", 1),)), GUESTS)
    stage = Stage(cluster(leaves=1, nodes=1, gpus=2), Policy(queues=queues))
    names = [f"part{n}" for n in range(4)]
    submitted(stage, of("c", "guest", 1, 1), *(share("a", name) for name in names))
    assert all(stage.state(name).at_home for name in names)
    submitted(stage, share("a", "fifth"))
    assert not stage.state("fifth").at_home


# ----- what wakes homes


def test_a_home_job_is_sent_home_when_its_backoff_is_over() -> None:
    stage = Stage(site(1), Policy(queues=(ONE_NODE, GUESTS), min_run_s=1e6))
    submitted(stage, of("a", "home", 1, 4, restarts=3, backoff_s=5.0))
    stage.ended("home", 1)
    submitted(stage, of("c", "guest"))
    assert stage.phase("guest") is Phase.RUNNING
    stage.wait(1.0)
    assert stage.scheduler.wake_at() == 5.0
    stage.wait(4.0)
    assert preemptions(stage) == ["guest"]


def test_a_home_job_goes_home_when_the_one_before_it_is_cancelled() -> None:
    policy = Policy(queues=(TWO_NODES, GUESTS), backfill=Backfill("none"), min_run_s=1e6)
    stage = Stage(site(3), policy)
    submitted(stage, of("a", "runs"), of("c", "guest", 2), of("a", "first", 2), of("a", "second"))
    assert stage.phase("second") is Phase.PENDING
    stage.cancel("first")
    assert preemptions(stage) == ["guest"] and "second" in stage.scheduler.ledger.claims


def test_a_home_job_starts_at_once_on_idle_room_that_is_only_reserved() -> None:
    stage = Stage(site(3), Policy(queues=(TWO_NODES, GUESTS)))
    submitted(stage, of("c", "guest"), of("c", "big", 3), of("a", "home1"), of("a", "home2"))
    assert stage.phase("home1") is stage.phase("home2") is Phase.RUNNING
    assert not any(isinstance(fact, RoomClaimed) for fact in stage.facts)


def test_nobody_takes_the_place_at_home_of_a_gang_that_was_evicted_and_still_stops() -> None:
    other = QueueRule("b", cells=(("node", 2),))
    stage = Stage(site(3), Policy(queues=(ONE_NODE, other), backfill=Backfill("none")))
    submitted(stage, of("a", "runs"), of("a", "first"), of("b", "theirs", 2), of("a", "second"))
    assert stage.phase("first") is Phase.STOPPING
    stage.ended("runs")
    assert not stage.state("second").at_home
    stage.ended("first", 143)
    play(stage)
    assert stage.phase("first") is Phase.RUNNING and stage.state("first").at_home


def test_a_job_at_home_in_its_cells_is_not_taken_back_for_a_guarantee_in_counts() -> None:
    """It was sent home again at once, by stopping the one it had been stopped for: for ever, at one moment."""
    queues = (
        QueueRule("research", guarantee={"gpus": 4}),
        QueueRule("product", cells=(("node", 1),)),
        QueueRule("interns"),
    )
    stage = Stage(cluster(leaves=1, nodes=2, gpus=4), Policy(queues=queues))
    stage.submit(
        replace(job("intern", gpus=4, priority="serving"), queue="interns"),
        replace(job("release", gpus=4), queue="product"),
    )
    stage.started("intern", "release")
    stage.submit(replace(job("study", gpus=4), queue="research"))
    assert stage.phases() == {"intern": "stopping", "release": "running", "study": "pending"}


def test_who_may_only_run_in_its_cells_is_told_no_start_outside() -> None:
    """It was told one, which came in vain, and another one, for ever."""
    stage = Stage(site(3), Policy(queues=(ONE_NODE, GUESTS)))
    stage.submit(of("c", "guest", members=3, time_limit_s=100.0))
    stage.started("guest")
    stage.submit(forever("a", "stays", 2))
    assert not stage.scheduler.ledger.reservations


@pytest.mark.parametrize("queue", ["a", "c"])
def test_a_gang_that_runs_at_home_only_keeps_nobody_alike_from_starting_elsewhere(
    queue: str,
) -> None:
    stage = Stage(site(3), Policy(queues=(ONE_NODE, GUESTS)))
    submitted(stage, replace(of("a", "large", 2), preemptible=False), of(queue, "alike", 2))
    assert stage.phase("alike") is Phase.RUNNING


def test_a_gang_without_gpus_that_is_never_preempted_starts_beside_the_cells_of_its_queue() -> None:
    """No cell could hold it, and it takes nothing of one."""
    stage = Stage(site(1), Policy(queues=(ONE_NODE,)))
    role = Role("worker", 1, Shape(cpus=1.0), run=("true",))
    submitted(stage, Job("light", (role,), queue="a", preemptible=False), of("a", "whole"))
    assert stage.phases() == {"light": "running", "whole": "running"}


def test_who_turns_out_to_be_at_home_takes_one_that_goes_before_it_along_at_once() -> None:
    """On a site with spares the node of a guest is no spare any more once it is at home: the other has the rest of it.

    It waited for one more event: nobody was asked again in that moment.
    """
    spared = replace(site(nodes=2), spares={"leaf": 1})
    scheduler = Scheduler(Policy(queues=(QueueRule("own", cells=(("node", 1),)),)))
    scheduler.handle([ClusterObserved(id="site", observed_at=0.0, cluster=spared)])
    first = replace(job("first", gpus=1, priority="production"), queue="own", preemptible=False)
    for spec in (first, replace(job("guest", gpus=1), queue="own")):
        scheduler.handle([JobSubmitted(id=spec.name, observed_at=0.0, job=spec.name, spec=spec)])
    scheduler.handle([TimePassed(id="later", observed_at=1.0)])
    assert all(scheduler.ledger.jobs[name].at_home for name in ("first", "guest"))


@pytest.mark.parametrize("preemptible", [True, False])
def test_a_queue_has_its_cell_where_nodes_are_kept_as_spares(preemptible: bool) -> None:
    """The last free node is kept, not the last free one of the cell."""
    stage = Stage(replace(site(3), spares={"leaf": 1}), Policy(queues=(ONE_NODE,)))
    stage.submit(replace(of("a", "x", gpus=1), preemptible=preemptible))
    assert stage.nodes("x") == ["n0"] and stage.state("x").at_home


def test_a_guest_has_another_leave_beside_the_cell_where_nodes_are_kept_as_spares() -> None:
    """n2 is free, but needed for the owner's leaf; n3 is kept, so n1 need not be when it is empty."""
    queues = (QueueRule("a", cells=(("leaf", 1),)), GUESTS)
    two_leaves = replace(cluster(leaves=2, nodes=2, gpus=4), spares={"spine": 1})
    stage = Stage(two_leaves, Policy(queues=queues, backfill=Backfill("any")))
    stage.submit(forever("c", "first", 1), of("c", "low", priority="research"))
    stage.started("first", "low")
    assert (stage.nodes("first"), stage.nodes("low")) == (["n0"], ["n1"])
    stage.submit(forever("c", "second", 1))
    assert stage.phase("low") is Phase.STOPPING
