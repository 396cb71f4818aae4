"""What views say of queues and of starts, from a ledger, without a daemon."""

from dataclasses import replace

from gantree.api.queue_view import queues_json
from gantree.api.start_view import when_json
from gantree.cli.queues import _owned
from gantree.core.explain import why
from gantree.model.events import NodeLost
from gantree.model.jobs import Job
from gantree.policy.rules import Policy, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage


def of(queue: str, name: str, members: int, gpus: int, **fields: object) -> Job:
    return replace(job(name, members, gpus), queue=queue, **fields)  # type: ignore[arg-type]  # as the test writes them


def test_a_user_borrows_no_more_than_its_queue() -> None:
    rules = (QueueRule("a", guarantee={"gpus": 8}), QueueRule("b"))
    stage = Stage(cluster(leaves=1, nodes=2), Policy(queues=rules, share_users=True))
    stage.submit(*(of("a", name, 1, 3, user=name) for name in ("ann", "bob")))
    assert borrowed(stage) == {}
    stage.submit(of("a", "more", 1, 4, user="ann"))
    assert borrowed(stage) == {"a": 2, "ann in a": 2, "bob in a": 2}


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
