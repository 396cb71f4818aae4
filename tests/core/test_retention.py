"""Jobs that have ended leave the ledger: which of them, and what stays."""

from dataclasses import replace

from gantree.core.snapshot.ledger_snapshot import snapshot_of
from gantree.core.snapshot.restore import restored
from gantree.model.events import EndedJobsDue, JobSubmitted
from gantree.model.facts import JobRejected
from gantree.model.phases import Phase
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.same_ledger import differences


def stage_with_ended(*names: str) -> Stage:
    """One node of eight GPUs, on which these jobs have run one after the other, ten seconds each."""
    stage = Stage(cluster())
    for name in names:
        stage.submit(job(name, gpus=8))
        stage.started(name)
        stage.now += 10.0
        stage.ended(name)
    return stage


def forget(stage: Stage, keep: int, ended_before: float = 1e9) -> None:
    stage.tell(EndedJobsDue, keep=keep, ended_before=ended_before)


def test_the_newest_are_kept_and_none_that_ended_just_now() -> None:
    stage = stage_with_ended("a", "b", "c", "d")
    forget(stage, keep=1, ended_before=25.0)
    assert list(stage.phases()) == ["c", "d"]
    forget(stage, keep=1)
    assert list(stage.phases()) == ["d"]
    assert stage.scheduler.ledger.forgotten == 3


def test_whom_a_waiting_job_comes_after_stays_known_until_that_has_ended() -> None:
    stage = stage_with_ended("data", "other")
    stage.submit(job("blocker", gpus=8))
    stage.submit(job("train", gpus=8, after=("data",)))
    forget(stage, keep=0)
    assert list(stage.phases()) == ["data", "blocker", "train"]
    stage.started("blocker")
    stage.ended("blocker")
    assert stage.phase("train") is Phase.STARTING, "it may start: data has succeeded"
    stage.started("train")
    stage.ended("train")
    forget(stage, keep=1)
    assert list(stage.phases()) == ["train"]
    forget(stage, keep=0)
    assert stage.phases() == {} and stage.scheduler.ledger.dependents == {}


def test_nobody_comes_after_a_forgotten_job() -> None:
    stage = stage_with_ended("a")
    forget(stage, keep=0)
    late = job("b", gpus=8, after=("a",))
    decision = stage.handle([stage.event(JobSubmitted, job="b", spec=late)])
    assert [type(fact) for fact in decision.facts] == [JobRejected]


def test_a_name_means_the_newest_job_of_it_that_is_known() -> None:
    stage = Stage(cluster())
    for job_id in ("a", "a-2"):
        spec = job("a", gpus=4)
        stage.handle([stage.event(JobSubmitted, job=job_id, spec=spec)])
        stage.started(job_id)
    ledger = stage.scheduler.ledger
    stage.ended("a-2")
    forget(stage, keep=0)
    assert ledger.newest_of_name == {"a": "a"}
    stage.ended("a")
    forget(stage, keep=0)
    assert ledger.newest_of_name == {}


def reject(stage: Stage, *names: str) -> None:
    """Ten seconds apart."""
    for name in names:
        late = job(name, after=("nobody",))
        stage.handle([stage.event(JobSubmitted, job=name, spec=late)])
        stage.now += 10.0


def test_those_that_were_rejected_are_forgotten_like_those_that_have_ended() -> None:
    stage = stage_with_ended("a", "b")
    reject(stage, "r1", "r2", "r3", "r4")
    ledger = stage.scheduler.ledger
    forget(stage, keep=1, ended_before=35.0)
    assert (list(stage.phases()), list(ledger.rejected)) == (["b"], ["r3", "r4"])
    forget(stage, keep=1)
    assert list(ledger.rejected) == list(ledger.rejected_at) == ["r4"]
    assert (ledger.forgotten, ledger.forgotten_rejected) == (1, 3)
    facts = len(stage.facts)
    forget(stage, keep=1)
    assert len(stage.facts) == facts, "nothing is left to be forgotten"


def test_what_nobody_asks_for_any_more_has_no_number_and_no_number_is_given_twice() -> None:
    stage = Stage(cluster())
    for gpus in (1, 2, 3):
        stage.submit(job(f"of-{gpus}", gpus=gpus))
        stage.started(f"of-{gpus}")
    stage.ended("of-1")
    stage.ended("of-2")
    forget(stage, keep=0)
    ledger = stage.scheduler.ledger
    assert list(ledger.signatures.number_of.values()) == [2]
    stage.submit(job("again", gpus=1))
    stage.submit(job("same", gpus=3))
    assert [ledger.jobs[name].signature for name in ("again", "same")] == [3, 2]
    again = restored(snapshot_of(stage.scheduler), Policy()).ledger
    assert differences(ledger, again) == []
    assert again.signatures.of(job("new", gpus=4)) == 4


def test_a_job_that_is_forgotten_before_its_time_limit_has_come_is_not_looked_for_then() -> None:
    stage = Stage(cluster())
    for name, limit_s in (("first", 60.0), ("long", 600.0)):
        stage.submit(replace(job(name, gpus=8), time_limit_s=limit_s))
        stage.started(name)
    stage.ended("long")
    stage.now += 10.0
    forget(stage, keep=0)
    assert stage.scheduler.wake_at() == 60.0
    stage.ended("first")
    stage.wait(1_000.0)
    assert list(stage.phases()) == ["first"]
