"""When one who was stopped for a gang has left, and all that it held is claimed, nobody else need be asked."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from gantree.core.cycle.awake import Awake
from gantree.core.cycle.fronts import FRONT
from gantree.core.ledger.decision_builder import Draft
from gantree.model.cluster import Cluster, Machine, Node
from gantree.model.events import CordonRequested, HoldRequested, NodeLost, SuspendRequested
from gantree.model.facts import AttemptEnded, GangPlaced
from gantree.model.jobs import Job, Role
from gantree.model.phases import Phase, StopCause
from gantree.policy.rules import Backfill, Policy, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Of each walk, whether it looked only at queues in which somebody has come or gone."""
    told: list[bool] = []

    class Tells(Awake):
        def begin(self, draft: Draft) -> None:
            super().begin(draft)
            told.append(self.sleeps)

    monkeypatch.setattr("gantree.core.cycle.cycle.Awake", Tells)
    yield told


def stopped(policy: Policy, site: Cluster, *, gpus: int) -> Stage:
    """A gang of four members with so many GPUs each claims the room of four that leave; others wait behind it."""
    stage = Stage(site, policy)
    for number in range(4):
        stage.submit(replace(job(f"r{number}", gpus=4, priority="research"), queue="a"))
        stage.started(f"r{number}")
    stage.submit(replace(job("big", 4, gpus, priority="production"), queue="b"))
    stage.submit(replace(job("waits", 4, 4, priority="research"), queue="c"))
    assert all(stage.phase(f"r{number}") is Phase.STOPPING for number in range(4))
    return stage


ANY = Backfill("any")
QUEUES = (QueueRule("a"), QueueRule("b"), QueueRule("c"))


def test_who_leaves_room_that_is_all_claimed_wakes_nobody(slept: list[bool]) -> None:
    stage = stopped(Policy(queues=QUEUES, backfill=ANY), cluster(leaves=1, nodes=4, gpus=4), gpus=4)
    slept.clear()
    stage.ended("r0")
    assert slept[0] is True
    stage.ended("r1")
    stage.ended("r2")
    stage.ended("r3")
    assert stage.phase("big") is Phase.STARTING


def test_who_leaves_more_than_is_claimed_wakes_those_who_wait(slept: list[bool]) -> None:
    stage = stopped(Policy(queues=QUEUES, backfill=ANY), cluster(leaves=1, nodes=4, gpus=4), gpus=3)
    slept.clear()
    stage.ended("r0")
    assert slept[0] is False


def test_where_nodes_are_kept_as_spares_more_is_free_than_on_the_nodes_of_who_has_left(
    slept: list[bool],
) -> None:
    spares = replace(cluster(leaves=1, nodes=5, gpus=4), spares={"leaf": 1})
    stage = stopped(Policy(queues=QUEUES, backfill=ANY), spares, gpus=4)
    slept.clear()
    stage.ended("r0")
    assert slept[0] is False


def test_where_queues_own_cells_who_leaves_changes_more_than_what_is_free_on_its_nodes(
    slept: list[bool],
) -> None:
    rules = (*QUEUES, QueueRule("owner", cells=(("node", 1),)))
    stage = stopped(Policy(queues=rules, backfill=ANY), cluster(leaves=1, nodes=4, gpus=4), gpus=4)
    slept.clear()
    stage.ended("r0")
    assert slept[0] is False


def test_who_leaves_so_as_to_go_on_elsewhere_frees_room_that_nobody_could_count_on() -> None:
    """Its claim is its own, and others looked for none of its room before it was gone."""
    stage = Stage(cluster(leaves=1, nodes=2, gpus=4))
    stage.submit(job("moves", gpus=4))
    stage.started("moves")
    (node,) = stage.nodes("moves")
    stage.tell(CordonRequested, node=node, drain=True)
    state, ledger = stage.state("moves"), stage.scheduler.ledger
    assert (state.phase, state.moving) == (Phase.STOPPING, StopCause.MOVED)
    before = ledger.holders_version
    ledger.apply(AttemptEnded(at=stage.now, job="moves", attempt=1, exit_code=143))
    assert ledger.holders_version > before


H, A = "H100-80GB", "A100-80GB"


def site_of_two_models() -> Cluster:
    """Three nodes of one model, one of another."""
    machines = {model: Machine(model, 8, model) for model in (H, A)}
    nodes = (*(Node(f"h{number}", H) for number in range(3)), Node("a0", A))
    return Cluster("site", ("node",), machines, nodes)


def waits_for_quota(waits: Job, limit: dict[str, float]) -> Stage:
    """r and s leave h0 and h1, all of which is claimed; h2 has half of its GPUs free, and is what waits needs.

    Queue a, above those of r and of what waits, has used up its limit. A whole front of others stands before it, so it
    makes no claim of its own.
    """
    rules = (QueueRule("a", limit=limit), QueueRule("a/1"), QueueRule("a/2"), QueueRule("b"))
    stage = Stage(site_of_two_models(), Policy(queues=rules, backfill=ANY))
    for name, queue, gpus, model in (
        ("r", "a/1", 8, H),
        ("s", "b", 8, H),
        ("half", "b", 4, H),
        ("all", "b", 8, A),
    ):
        priority = "research" if name in "rs" else "serving"
        stage.submit(on(replace(job(name, gpus=gpus, priority=priority), queue=queue), model))
        stage.started(name)
    for number in range(FRONT):
        in_front = on(job(f"front{number}", gpus=8, priority="research"), A)
        role = shaped(in_front.roles[0], number % 5, (A,))
        stage.submit(replace(in_front, queue="a/2", roles=(role,)))
    stage.submit(replace(waits, priority="research", queue="a/2"))
    assert stage.phase(waits.name) is Phase.PENDING
    stage.submit(on(replace(job("big", 2, 8, priority="production"), queue="b"), H))
    assert stage.phase("r") is stage.phase("s") is Phase.STOPPING
    return stage


def on(spec: Job, *models: str) -> Job:
    """The same job on GPUs of these models."""
    return replace(spec, roles=(shaped(spec.roles[0], models=models),))


def shaped(role: Role, cpus: float = 0.0, models: tuple[str, ...] = (H,)) -> Role:
    """The same role with other members; jobs that ask for other CPUs are of other signatures."""
    return replace(role, shape=replace(role.shape, cpus=cpus, models=models))


@pytest.mark.parametrize(("models", "limit"), [((H,), {"gpus": 8.0}), ((A, H), {f"gpus/{H}": 8.0})])
def test_who_fits_and_waits_for_the_quota_of_who_has_left_starts_at_once(
    models: tuple[str, ...], limit: dict[str, float], slept: list[bool]
) -> None:
    stage = waits_for_quota(on(job("waits", gpus=4), *models), limit)
    slept.clear()
    stage.ended("r")
    assert slept[0] is False
    assert stage.phase("waits") is Phase.STARTING


def test_who_may_use_reserved_room_is_asked_when_one_has_left_it(slept: list[bool]) -> None:
    """While another gang claims room elsewhere: what has come free is reserved, and no claim of anybody's."""
    policy = Policy(backfill=Backfill("promised", 1))
    stage = Stage(cluster(leaves=1, nodes=3, gpus=4), policy)
    for name, priority, limit_s in (
        ("late", "serving", 100.0),
        ("long", "serving", 1000.0),
        ("low", "research", None),
    ):
        stage.submit(job(name, gpus=4, priority=priority, time_limit_s=limit_s))
        stage.started(name)
    stage.submit(job("told", 2, 4, priority="research"))
    stage.submit(job("short", gpus=4, priority="research", time_limit_s=50.0))
    stage.submit(job("big", gpus=4, priority="production"))
    ledger = stage.scheduler.ledger
    assert (list(ledger.bookings), list(ledger.claims)) == (["told"], ["big"])
    stage.wait(101.0)
    assert stage.phase("late") is Phase.STOPPING
    slept.clear()
    stage.ended("late")
    assert slept[0] is False
    assert stage.phase("short") is Phase.STARTING


@pytest.mark.parametrize(
    ("members", "node", "stays", "is_news"),
    [
        (4, "n0", True, False),
        (4, "n0", False, True),
        (4, "n1", True, True),
        (4, "n4", True, True),
        (0, "n1", True, False),
        (0, "n4", True, True),
    ],
)
def test_whoever_begins_on_a_node_that_is_kept_as_a_spare_leaves_the_rest_of_it_to_others(
    members: int, node: str, stays: bool, is_news: bool
) -> None:
    """n0 is in use, and would be kept for who has that gang stopped; n4 is kept. All others are held for one that was
    told a start, to whom one is a spare; or free.
    """
    stage = Stage(replace(cluster(leaves=1, nodes=5, gpus=4), spares={"leaf": 1}))
    stage.submit(replace(job("runs", gpus=2, time_limit_s=100.0), preemptible=not stays))
    stage.started("runs")
    if members:
        stage.submit(job("told", members, 4, time_limit_s=100.0))
    stage.submit(replace(job("begins", gpus=2), held=True))
    ledger, placed = stage.scheduler.ledger, stage.state("runs").placement
    assert placed is not None and len(ledger.bookings) == (members > 0)
    there = replace(placed.members[0], node=node, gpus=(2, 3))
    before = ledger.free_version, ledger.holders_version
    ledger.apply(
        GangPlaced(at=0.0, job="begins", attempt=1, placement=replace(placed, members=(there,)))
    )
    assert ((ledger.free_version, ledger.holders_version) != before) == is_news


def test_where_jobs_go_in_turn_one_who_leaves_the_line_lets_another_user_of_the_queue_go() -> None:
    policy = Policy(queues=QUEUES, backfill=Backfill("none"), share_users=True)
    stage = Stage(cluster(leaves=1, nodes=2, gpus=4), policy)
    stage.submit(replace(job("runs", gpus=4), queue="a"))
    stage.submit(replace(job("first", 2, 4), queue="b", user="ann"))
    stage.submit(replace(job("next", gpus=4), queue="b", user="bob"))
    assert stage.phase("next") is Phase.PENDING
    stage.tell(HoldRequested, job="first")
    assert stage.phase("next") is Phase.STARTING


def test_a_node_that_is_lost_lets_those_be_asked_whom_a_cell_kept_out() -> None:
    """A gang that is never preempted keeps clear of what a cell needs: a whole leaf, and there is none any more."""
    queues = (QueueRule("owner", cells=(("leaf", 1),)), QueueRule("guest"))
    stage = Stage(cluster(leaves=1, nodes=2, gpus=4), Policy(queues=queues))
    stage.submit(replace(job("stays", gpus=4), queue="guest", preemptible=False))
    assert stage.phase("stays") is Phase.PENDING
    stage.tell(NodeLost, node="n0")
    assert stage.phase("stays") is Phase.STARTING


def test_who_waits_is_asked_when_another_begins_on_a_node_that_would_be_a_spare_once_it_is_left() -> (
    None
):
    """Both are empty when `leaves` is gone, and n1 is cordoned: n0 would be kept, were it not for who begins there."""
    stage = Stage(
        replace(cluster(leaves=1, nodes=2, gpus=4), spares={"leaf": 1}), Policy(backfill=ANY)
    )
    stage.submit(job("leaves", gpus=2))
    stage.started("leaves")
    stage.tell(CordonRequested, node="n1")
    stage.submit(job("waits", gpus=3))
    stage.tell(SuspendRequested, job="leaves")
    assert "waits" not in stage.scheduler.ledger.claims
    stage.submit(job("begins", gpus=1))
    assert stage.nodes("begins") == ["n0"]
    assert "waits" in stage.scheduler.ledger.claims


def test_who_may_not_pass_a_told_start_any_more_begins_on_the_rest_of_its_node() -> None:
    """Before, it would be gone by then: so to it that node was empty, and the last one, which is kept as a spare."""
    site = replace(cluster(leaves=1, nodes=3, gpus=4), spares={"leaf": 1})
    stage = Stage(site, Policy(backfill=Backfill("promised", 1)))
    stage.submit(job("runs", gpus=4, time_limit_s=1_000.0))
    stage.started("runs")
    stage.submit(job("told", 2, 3))
    stage.tell(CordonRequested, node="n2")
    stage.submit(job("short", gpus=1, time_limit_s=500.0))
    stage.wait(400.0)
    assert stage.phase("short") is Phase.PENDING
    stage.wait(200.0)
    assert stage.nodes("short") == ["n1"]


def test_who_is_owed_what_a_gang_has_left_takes_over_what_is_claimed_as_owed() -> None:
    """While `ends` is there, `late` alone is within the guarantee; then `first` is, too, which goes before it."""
    queues = (QueueRule("a", guarantee={"gpus": 8}), QueueRule("b"))
    two, pool = cluster(leaves=1, nodes=2, gpus=4), (("pool", "second"),)
    two = replace(two, nodes=(two.nodes[0], replace(two.nodes[1], labels=pool)))
    stage = Stage(two, Policy(queues=queues, backfill=ANY))
    stage.submit(replace(job("ends", gpus=2, time_limit_s=100.0), queue="a"))
    stage.submit(replace(job("guest", gpus=4), queue="b"))
    stage.started("ends", "guest")
    late, (role,) = job("late"), job("late", gpus=4).roles
    there = replace(role, shape=replace(role.shape, labels=pool))
    stage.submit(replace(job("first", 2, 4), queue="a"))
    stage.submit(replace(late, queue="a", roles=(there,)))
    assert list(stage.scheduler.ledger.claims) == ["late"]
    stage.wait(100.0)
    assert stage.phase("ends") is Phase.STOPPING
    stage.ended("ends")
    assert list(stage.scheduler.ledger.claims) == ["first"]
