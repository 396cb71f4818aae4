"""Submission: ids, checks, paths; and what a user may ask of a job afterwards."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.control.engine.controller import Controller
from gantree.control.requests import predecessors
from gantree.control.requests.job_ids import JobIds, Submitted
from gantree.control.requests.predecessors import with_predecessors
from gantree.control.requests.submission_checks import Receipt, completed, overridden
from gantree.control.requests.submissions import JobSubmission, Key
from gantree.core.ledger.ledger import Ledger
from gantree.journal.sqlite import SqliteJournal
from gantree.model.errors import BadInput, Conflict, NotFound
from gantree.model.events import CancelRequested, JobSubmitted
from gantree.model.jobs import Checkpoint, Job
from gantree.model.phases import Phase
from gantree.policy.rules import Policy, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.recording import RecordingCluster


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    journal = SqliteJournal(tmp_path)
    site = cluster(leaves=1, nodes=2)
    controller = Controller(journal, Policy(), RecordingCluster, site=site)
    controller.recover()
    yield controller
    controller.close()


def submit(controller: Controller, *jobs: Job, **overrides: Any) -> list[str]:
    receipt = controller.submit(jobs, None, overrides)
    controller.step()
    return [submitted.job for submitted in receipt.jobs]


@given(st.lists(st.lists(st.sampled_from(["a", "b", "a-2", "a-3", "b-2"]), max_size=5), max_size=5))
def test_an_id_is_never_given_twice_and_begins_with_the_name(rounds: list[list[str]]) -> None:
    used: set[str] = set()
    ids = JobIds(used.__contains__, lambda elements: not used.isdisjoint(elements))
    for names in rounds:
        chosen = [submitted.job for submitted in ids.choose([job(name) for name in names])]
        assert not used & set(chosen)
        assert len(set(chosen)) == len(names)
        assert all(
            job_id == name or job_id.startswith(f"{name}-")
            for job_id, name in zip(chosen, names, strict=True)
        )
        used |= set(chosen)


def test_ids_count_up_over_restarts_and_after_the_end_of_a_job(tmp_path: Path) -> None:
    given_ids = []
    for _ in range(3):
        journal = SqliteJournal(tmp_path)
        controller = Controller(journal, Policy(), RecordingCluster, site=cluster())
        controller.recover()
        given_ids += submit(controller, job("a"))
        controller.jobs.cancel("a")
        controller.step()
        controller.close()
    assert given_ids == ["a", "a-2", "a-3"]


def test_a_submission_is_durable_before_any_step(controller: Controller) -> None:
    controller.submit([job("a")], None, {})
    entries = controller.journal.read_inbox(0, 10)
    assert entries[-1].event.id == "a/submitted"


def test_a_name_means_the_newest_job_of_that_name_unless_it_is_an_id(
    controller: Controller,
) -> None:
    assert submit(controller, job("a"), job("a")) == ["a", "a-2"]
    assert submit(controller, job("b-2"), job("b"), job("b")) == ["b-2", "b", "b-3"]
    assert controller.resolve("a") == "a"
    assert controller.resolve("a-2") == "a-2"
    with pytest.raises(NotFound, match="there is no job zzz"):
        controller.resolve("zzz")


def test_after_names_become_ids(controller: Controller) -> None:
    submit(controller, job("prepare"))
    ids = submit(controller, job("prepare"), job("train", after=("prepare",)))
    assert ids == ["prepare-2", "train"]
    assert controller.ledger.jobs["train"].spec.after == ("prepare-2",)
    assert submit(controller, job("test", after=("train",))) == ["test"]


def test_after_may_name_an_older_job_of_the_same_name(controller: Controller) -> None:
    submit(controller, job("nightly"))
    assert submit(controller, job("nightly", after=("nightly",))) == ["nightly-2"]
    assert controller.ledger.jobs["nightly-2"].spec.after == ("nightly",)


def test_after_may_name_an_array_handed_in_earlier_and_means_all_of_the_newest(
    controller: Controller,
) -> None:
    def array(size: int) -> list[Job]:
        return [replace(job(f"shard-{n}", gpus=9), array_index=n) for n in range(size)]

    submit(controller, *array(3))
    assert submit(controller, *array(2)) == ["shard-0-2", "shard-1-2"]
    submit(controller, job("lookalike-0"), job("merge", after=("shard",)))
    controller.step()
    assert controller.ledger.jobs["merge"].spec.after == ("shard-0-2", "shard-1-2")
    with pytest.raises(BadInput, match="no job lookalike"):
        controller.submit([job("x", after=("lookalike",))], None, {})
    controller.jobs.cancel("shard-1-2")
    controller.step()
    with pytest.raises(BadInput, match="of which shard-1-2 has ended: cancelled"):
        controller.submit([job("x", after=("shard",))], None, {})


def test_what_comes_after_must_stand_below_and_must_not_have_failed(controller: Controller) -> None:
    submit(controller, job("prepare"))
    with pytest.raises(BadInput, match="stands below it"):
        controller.submit([job("train", after=("prepare",)), job("prepare")], None, {})
    submit(controller, job("doomed", gpus=9))
    controller.jobs.cancel("doomed")
    controller.step()
    with pytest.raises(BadInput, match="doomed, which has ended: cancelled"):
        controller.submit([job("train", after=("doomed",))], None, {})


@pytest.mark.parametrize(
    ("jobs", "told"),
    [
        ({"a": "b", "b": "a"}, "job a: after: a and b wait for each other; remove one `after`"),
        ({"z": "", "a": "c", "b": "a", "c": "b"}, "job a: after: a, c and b wait for each other; remove one"),
        ({"a": "bcd", "b": "", "c": "d", "d": "a"}, "job a: after: b stands below it; write it above"),
        ({"a": "b", "b": "c", "c": "b"}, "job a: after: b stands below it"),
        ({chr(97 + n): chr(97 + (n + 1) % 26) for n in range(26)},
         "job a: after: a, b, c, d, e, f, ... and z wait for each other"),
    ],
)  # fmt: skip
def test_jobs_that_wait_for_each_other_are_told_so(
    controller: Controller, jobs: dict[str, str], told: str
) -> None:
    with pytest.raises(BadInput, match=f"^{told}"):
        controller.submit([job(name, after=tuple(after)) for name, after in jobs.items()], None, {})


def test_the_job_that_was_probably_meant_is_named(controller: Controller) -> None:
    submit(controller, job("prepare"))
    with pytest.raises(
        BadInput, match=r"job x: after: there is no job prepair\. Did you mean `prepare`"
    ):
        controller.submit([job("x", after=("prepair",))], None, {})
    with pytest.raises(BadInput, match=r"no job tokens\. Did you mean `token`"):
        controller.submit([job("token"), job("x", after=("tokens",))], None, {})


def test_a_job_that_names_no_queue_is_told_how_to_name_one(tmp_path: Path) -> None:
    policy = Policy(queues=(QueueRule("research"), QueueRule("product")))
    controller = Controller(SqliteJournal(tmp_path), policy, RecordingCluster, site=cluster())
    controller.recover()
    for queue, told in (
        ("default", r"product\. A job that names no queue is one of `default`: name one with `queue:` or --queue$"),
        ("produkt", r"queues are research, product\. Did you mean `product`\?$"),
    ):  # fmt: skip
        with pytest.raises(BadInput, match=f"^job a: queue: there is no queue `{queue}`; .*{told}"):
            controller.submit([replace(job("a"), queue=queue)], None, {})
    controller.close()


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        (job("x", priority="bacth"), BadInput, "^job x: priority: .*batch"),
        (job("x", required="lief"), BadInput, "^job x: topology.required: .*leaf"),
        (job("x", after=("ghost",)), BadInput, "^job x: after: there is no job ghost"),
        (
            replace(job("x"), roles=(replace(job("x").roles[0], workdir="here"),)),
            BadInput,
            "^job x: here",
        ),
    ],
)
def test_what_is_known_to_be_wrong_is_refused_before_it_is_taken(
    controller: Controller, wrong: Job, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        controller.submit([job("good"), wrong], None, {})
    controller.step()
    assert controller.ledger.jobs == {}
    assert controller.journal.all_set_aside() == ()


def test_a_wish_that_contradicts_itself_is_refused_before_it_is_taken(
    controller: Controller,
) -> None:
    plain = job("x")
    shape = replace(plain.roles[0].shape, mig="3g.40gb")
    with pytest.raises(BadInput, match=r"each\.gpus and each\.mig"):
        controller.submit([replace(plain, roles=(replace(plain.roles[0], shape=shape),))], None, {})


def test_a_job_that_can_never_start_is_taken_with_a_warning(controller: Controller) -> None:
    receipt = controller.submit([job("a", gpus=9), job("b", gpus=8)], None, {})
    (warning,) = receipt.warnings
    assert warning.startswith("a: ")
    controller.step()
    assert controller.ledger.jobs["a"].phase is Phase.PENDING


def test_who_hands_a_job_in_is_told_that_its_queue_is_full(tmp_path: Path) -> None:
    policy = Policy(queues=(QueueRule("q", most_waiting=1),))
    controller = Controller(
        SqliteJournal(tmp_path), policy, RecordingCluster, site=cluster(leaves=1, nodes=1)
    )
    controller.recover()
    jobs = [replace(job(name, gpus=8), queue="q") for name in ("runs", "waits", "comes")]
    told = []
    for each in jobs:
        told.append(controller.submit([each], None, {}).warnings)
        controller.step()
    assert told[:2] == [(), ()]
    (warning,) = told[2]
    assert warning.startswith("comes: it will be rejected, unless fewer wait by then: queue q")
    assert "comes" in controller.ledger.rejected
    controller.close()


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"members": 3}, "allowed: name, queue, priority"),
        ({"name": "../etc"}, "name"),
        ({"queue": "a//b"}, "queue"),
        ({"queue": 3}, "queue"),
        ({"name": "x" * 64}, "name"),
        ({"priority": 10**9 + 1}, "priority"),
    ],
)
def test_overrides_are_as_strict_as_a_job_file(overrides: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        overridden(job("a"), overrides)


def test_overrides_replace_fields(controller: Controller) -> None:
    submit(controller, job("a"), name="b", queue="research/nlp", priority=7)
    state = controller.ledger.jobs["b"]
    assert (state.spec.queue, state.priority) == ("research/nlp", 7)
    with pytest.raises(BadInput, match="2 jobs"):
        controller.submit([job("a"), job("b")], None, {"name": "c"})


def test_a_role_that_runs_nothing_is_refused_at_once(controller: Controller) -> None:
    idle = replace(job("a").roles[0], run=())
    with pytest.raises(
        BadInput, match=r"^job a: gang: role worker has nothing to run; give it `run`"
    ):
        controller.submit([job("b"), replace(job("a"), roles=(idle,))], None, {})
    assert controller.ledger.jobs == {}
    with_image = replace(idle, image="registry/train:1")
    assert submit(controller, replace(job("a"), roles=(with_image,))) == ["a"]


@pytest.mark.parametrize(
    ("workdir", "base", "expected"),
    [
        (None, None, None),
        (None, "/home/u", "/home/u"),
        ("/data", None, "/data"),
        ("/data", "/home/u", "/data"),
        ("run", "/home/u", "/home/u/run"),
    ],
)
def test_directories_start_from_the_base(
    workdir: str | None, base: str | None, expected: str | None
) -> None:
    plain = job("a", checkpoint=Checkpoint(path=workdir))
    asked = replace(plain, roles=(replace(plain.roles[0], workdir=workdir),))
    resolved = completed(asked, "", base)
    assert resolved.roles[0].workdir == expected
    assert resolved.checkpoint is not None
    assert resolved.checkpoint.path == (expected if workdir else None)


@pytest.mark.parametrize("base", ["rel", "", "/a\0b"])
def test_a_base_that_can_be_no_directory_is_refused(base: str) -> None:
    with pytest.raises(BadInput, match=r"base_dir: found .*; allowed: an absolute path"):
        completed(job("a"), "", base)


def test_cancelling_twice_is_cancelling_once_and_the_ended_cannot_be_cancelled(
    controller: Controller,
) -> None:
    submit(controller, job("a", gpus=9))
    before = len(controller.journal.read_inbox(0, 99))
    assert [controller.jobs.cancel("a"), controller.jobs.cancel("a")] == ["a", "a"]
    assert len(controller.journal.read_inbox(0, 99)) == before + 1
    controller.step()
    with pytest.raises(Conflict, match="a has ended: cancelled"):
        controller.jobs.cancel("a")
    with pytest.raises(NotFound):
        controller.jobs.cancel("b")


def test_an_array_that_comes_after_another_looks_for_it_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(cluster(leaves=1))
    walks: list[str] = []
    for index in range(3):
        spec = replace(job(f"before-{index}"), array_index=index)
        stage.tell(JobSubmitted, job=spec.name, spec=spec)
    looked_for = predecessors.array_of

    def counted(ledger: Ledger, name: str) -> tuple[str, ...]:
        walks.append(name)
        return looked_for(ledger, name)

    monkeypatch.setattr(predecessors, "array_of", counted)
    jobs = [replace(job(f"then-{index}"), after=("before",)) for index in range(50)]
    chosen = [Submitted(each.name, each.name) for each in jobs]
    resolved = with_predecessors(jobs, chosen, stage.scheduler.ledger)
    assert {each.after for each in resolved} == {("before-0", "before-1", "before-2")}
    assert len(walks) == 1


def test_what_cannot_be_written_down_is_refused_to_all_who_hand_it_in_under_one_key(
    controller: Controller,
) -> None:
    role = replace(job("a").roles[0], env=(("X", "\ud800"),))
    unwritable = JobSubmission([replace(job("a"), roles=(role,))], key=Key("ada", "k", "digest"))
    good = JobSubmission([job("b")], key=Key("ada", "other", "digest"))
    first, second, third = controller.submit_batch([unwritable, unwritable, good])
    assert isinstance(first, BadInput) and isinstance(second, BadInput)
    assert isinstance(third, Receipt)
    controller.step()
    assert list(controller.ledger.jobs) == ["b"]


def test_a_submission_under_the_id_of_another_event_is_refused_and_others_are_taken(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = CancelRequested(id="a/submitted", observed_at=0.0, job="b")
    controller.journal.append_inbox([theirs], controller.epoch)
    monkeypatch.setattr(controller.journal, "seen", lambda ids: frozenset())
    refused, taken = controller.submit_batch([JobSubmission([job("a")]), JobSubmission([job("b")])])
    assert isinstance(refused, Conflict) and "JobSubmitted a/submitted" in str(refused)
    assert isinstance(taken, Receipt)
    controller.step()
    assert list(controller.ledger.jobs) == ["b"]
