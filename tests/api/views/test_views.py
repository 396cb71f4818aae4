"""What views say of queues and of starts, from a ledger, without a daemon."""

from dataclasses import replace

from gantree.api.views.queue_view import queues_json
from gantree.api.views.start_view import when_json
from gantree.cli.queues.queues import _cells, _owned
from gantree.core.explain.explain import why
from gantree.core.scheduler import Scheduler
from gantree.model.events import GangEnded, NodeLost
from gantree.model.jobs import Job
from gantree.policy.rules import Policy, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage


def of(queue: str, name: str, members: int, gpus: int, **fields: object) -> Job:
    return replace(job(name, members, gpus), queue=queue, **fields)  # type: ignore[arg-type]  # as the test writes them


def test_a_user_borrows_no_more_than_its_queue_and_what_its_own_jobs_are_not_owed() -> None:
    rules = (QueueRule("a", guarantee={"gpus": 8}), QueueRule("b"))
    stage = Stage(cluster(leaves=1, nodes=2), Policy(queues=rules, share_users=True))
    stage.submit(*(of("a", name, 1, 3, user=name) for name in ("ann", "bob")))
    assert borrowed(stage) == {}
    stage.submit(of("a", "more", 1, 4, user="ann"))
    assert borrowed(stage) == {"a": 2, "ann in a": 2}


def test_what_a_guarantee_above_covers_is_not_borrowed() -> None:
    rules = (
        QueueRule("org", guarantee={"gpus": 8}),
        *(QueueRule(f"org/{name}") for name in "ab"),
        QueueRule("other"),
    )
    stage = Stage(cluster(leaves=1, nodes=3), Policy(queues=rules))
    stage.submit(of("org/a", "first", 1, 6))
    assert borrowed(stage) == {}
    stage.submit(of("org/b", "second", 1, 6))
    assert borrowed(stage) == {"org": 4, "org/b": 4}
    stage.submit(of("other", "third", 1, 5))
    assert borrowed(stage) == {"org": 4, "org/b": 4, "other": 5}


def test_what_is_held_in_cells_of_its_own_is_not_borrowed() -> None:
    """Whoever is counted has GPUs guaranteed; queues with cells have none in amounts."""
    rules = (QueueRule("a", cells=(("node", 1),)), QueueRule("b", guarantee={"gpus": 8}))
    stage = Stage(cluster(leaves=1, nodes=3), Policy(queues=rules))
    stage.submit(of("a", "home", 1, 8))
    assert stage.state("home").at_home
    assert borrowed(stage) == {}
    stage.submit(of("a", "guest", 1, 8))
    assert borrowed(stage) == {"a": 8}


def test_a_queue_that_the_policy_lacks_is_marked_with_its_users() -> None:
    stage = Stage(cluster(), Policy(queues=(QueueRule("old"), QueueRule("new"))))
    stage.submit(of("old", "left", 1, 1, user="ann"))
    after = Scheduler(Policy(queues=(QueueRule("new"),), share_users=True))
    after.recover(stage.facts)
    rows = queues_json(after.ledger, 0)
    lacking = [row["name"] for row in rows if not row.get("in_policy", True)]
    assert lacking == ["old", "ann in old"]
    cells = {row["name"]: _cells(row)[0].strip() for row in rows}
    assert cells["old"] == "old (not in the policy)"
    assert cells["new"] == "new"
    after.handle([GangEnded(id="e", observed_at=0.0, job="left", attempt=1, exit_code=0)])
    assert [row["queue"] for row in queues_json(after.ledger, 0)] == [None, "new"]


def borrowed(stage: Stage) -> dict[str, float]:
    rows = queues_json(stage.scheduler.ledger, stage.now)
    return {row["name"]: row["borrowed"]["gpus"] for row in rows if row["borrowed"]}


def test_a_cell_without_a_place_is_told_in_the_table_and_to_those_who_wait() -> None:
    rules = (QueueRule("a", cells=(("leaf", 1),)), QueueRule("b", cells=(("leaf", 1),)))
    stage = Stage(cluster(leaves=2, nodes=2), Policy(queues=rules))
    assert cells(stage) == {"a": "1 leaf", "b": "1 leaf"}
    stage.tell(NodeLost, node="n3")
    assert cells(stage) == {"a": "1 leaf", "b": "1 leaf: 1 has no place"}
    stage.submit(of("a", "mine", 2, 8), of("b", "theirs", 2, 8))
    told = {name: why(stage.scheduler.ledger, name, 0).sentence for name in ("mine", "theirs")}
    lost = "Its queue's cell leaf 1 has no place now (out of use: n3)."
    assert told["theirs"].endswith(lost) and lost not in told["mine"]


def cells(stage: Stage) -> dict[str, str]:
    rows = queues_json(stage.scheduler.ledger, stage.now)
    return {row["name"]: _owned(row["cells"]) for row in rows if row["kind"] == "queue"}


def test_a_start_after_another_told_start_names_its_job_and_its_end() -> None:
    """What is held for a job is no name that anybody handed in."""
    stage = Stage(cluster(leaves=1, nodes=1), Policy(grace_s=10))
    for name in ("first", "second", "third"):
        stage.submit(replace(job(name, gpus=8), time_limit_s=100.0))
    stage.started("first")
    told = when_json(stage.scheduler.ledger, "third", 0)
    assert told["start"]["waits_for"] == ["first", "second"]
    ends = [(end["job"], end["ends_at"], end["enforced"]) for end in told["hangs_on"]]
    assert ends == [("first", 110, True), ("second", 220, True)]


def test_the_ends_that_a_promise_hangs_on_are_the_enforced_ones() -> None:
    stage = Stage(cluster(leaves=1, nodes=1), Policy(grace_s=10))
    stage.submit(replace(job("runs", gpus=8), time_limit_s=100.0, expected_s=20.0))
    stage.started("runs")
    stage.submit(replace(job("waits", gpus=8), time_limit_s=100.0))
    told = when_json(stage.scheduler.ledger, "waits", 0)
    assert (told["start"]["promised"], told["start"]["starts_at"]) == (True, 110)
    assert [(end["ends_at"], end["enforced"]) for end in told["hangs_on"]] == [(110, True)]


def test_a_guess_and_the_ends_that_it_hangs_on_agree() -> None:
    """Nothing is reserved for a job that is held by hand: all of what is said of it is what is probable."""
    stage = Stage(cluster(leaves=1, nodes=1), Policy(grace_s=10))
    stage.submit(replace(job("runs", gpus=8), time_limit_s=100.0, expected_s=20.0))
    stage.started("runs")
    stage.submit(replace(job("waits", gpus=8), held=True))
    told = when_json(stage.scheduler.ledger, "waits", 0)
    assert (told["start"]["reserved"], told["start"]["starts_at"]) == (False, 20)
    assert [(end["ends_at"], end["enforced"]) for end in told["hangs_on"]] == [(20, False)]
