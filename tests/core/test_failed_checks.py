"""A job whose check before the start named who is at fault is placed anew, at no cost, a few times in a row."""

from dataclasses import replace

from gantree.core.lifecycle.launch import MOST_FAILED_CHECKS
from gantree.model.events import GangEnded, GangStartFailed, HealthObserved
from gantree.model.jobs import Check, Job, Restarts
from gantree.model.orders import StartGang
from gantree.model.phases import Phase
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage

REASON = (
    "node n0 failed the check: its all-reduces with each other member reach 12% of those without it"
)


def checked(name: str = "j") -> Job:
    """Two members of 8 GPUs, without any restart to spare."""
    asked = job(name, members=2, gpus=8)
    return replace(asked, check=Check(60.0), restarts=Restarts(limit=0))


def fail_check(stage: Stage, node: str = "", *, ends: bool = True) -> None:
    """The check of the current attempt names somebody; node is marked first, as executors do."""
    attempt = stage.state("j").attempt
    if node:
        stage.tell(HealthObserved, node=node, source="check", reason=REASON)
    stage.tell(GangStartFailed, job="j", attempt=attempt, reason=REASON, check_failed=True)
    if ends:
        stage.tell(GangEnded, job="j", attempt=attempt, exit_code=126)


def starts(stage: Stage) -> list[StartGang]:
    return [order for order in stage.orders if isinstance(order, StartGang)]


def nodes(stage: Stage) -> set[str]:
    placement = stage.state("j").placement
    return set() if placement is None else set(placement.nodes)


def test_it_starts_elsewhere_at_once_and_no_restart_is_counted() -> None:
    stage = Stage(cluster(leaves=1, nodes=3))
    stage.submit(checked())
    assert starts(stage)[0].check == Check(60.0)
    (bad, *_) = sorted(nodes(stage))
    fail_check(stage, bad)
    state = stage.state("j")
    assert (state.phase, state.attempt, state.failures) == (Phase.STARTING, 2, 0)
    assert bad not in nodes(stage)
    assert state.last_failure == ""


def test_while_no_other_place_is_free_it_says_why_it_waits_again() -> None:
    stage = Stage(cluster(leaves=1, nodes=2))
    stage.submit(checked())
    fail_check(stage, "n0")
    state = stage.state("j")
    assert (state.phase, state.reason) == (Phase.PENDING, REASON)


def test_after_some_in_a_row_a_check_only_warns_until_the_job_has_run() -> None:
    stage = Stage(cluster(leaves=1, nodes=3))
    stage.submit(checked())
    for _ in range(MOST_FAILED_CHECKS):
        assert starts(stage)[-1].check_replaces
        fail_check(stage)
    assert not starts(stage)[-1].check_replaces
    stage.started("j")
    assert stage.state("j").failed_checks == 0


def test_a_cancelled_job_is_not_placed_anew() -> None:
    stage = Stage(cluster(leaves=1, nodes=3))
    stage.submit(checked())
    fail_check(stage, ends=False)
    stage.cancel("j")
    stage.tell(GangEnded, job="j", attempt=1, exit_code=126)
    assert stage.phase("j") is Phase.CANCELLED


def test_another_failure_to_start_counts() -> None:
    stage = Stage(cluster(leaves=1, nodes=3))
    stage.submit(checked())
    stage.tell(GangStartFailed, job="j", attempt=1, reason="no such file")
    stage.tell(GangEnded, job="j", attempt=1, exit_code=126)
    assert stage.phase("j") is Phase.FAILED
