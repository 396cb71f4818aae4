"""The policy while jobs run: adopted in a turn, kept as versions, equal to a restart with it, tried without a trace."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gantree.control.engine.controller import Controller
from gantree.control.requests.policy_text import PolicyText
from gantree.control.requests.policy_versions import tried, version_of
from gantree.core.ledger.invariants import check
from gantree.executors.inventory import Status
from gantree.formats import read_policy
from gantree.journal.sqlite import SqliteJournal
from gantree.model.cluster import Cluster
from gantree.model.errors import BadFields, BadInput, NotFound
from gantree.model.events import Event, GangStarted, JobSubmitted
from gantree.model.facts import Fact, PolicyAdopted
from gantree.model.jobs import Job
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from support.recording import RecordingCluster
from support.same_ledger import differences

SITE = cluster(leaves=1, nodes=2)
OPEN = "preset: gantree\n"
TWO_QUEUES = """\
preset: gantree
queues:
  - {name: a, guarantee: {gpus: {any: 8}}}
  - {name: b, guarantee: {gpus: {any: 8}}}
"""
ALL_FOR_B = """\
preset: gantree
queues:
  - {name: a}
  - {name: b, guarantee: {gpus: {any: 16}}}
"""


RUNS: dict[Path, dict[tuple[str, int], Status]] = {}
"""What runs in the world beside each state directory."""


class Time:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def start(place: Path, text: str | None, time: Time | None = None) -> Iterator[Controller]:
    """A control plane on a state directory; text is the policy that its start names."""
    clock = time or Time()

    def build(
        site: Cluster, emit: Callable[[Event], None], tell_time: Callable[[], float]
    ) -> RecordingCluster:
        built = RecordingCluster(site, emit, tell_time)
        built.logs, built.attempts = place / "runs", RUNS.setdefault(place, {})
        return built

    controller = Controller(
        SqliteJournal(place),
        Policy() if text is None else read_policy(text, "p.yaml"),
        build,
        site=SITE,
        make_clock=lambda not_before: clock,
        policy_text=None if text is None else PolicyText(text, "p.yaml"),
    )
    try:
        controller.recover()
        yield controller
        check(controller.ledger)
    finally:
        controller.close()


def submit(controller: Controller, *jobs: Job) -> None:
    controller.submit(jobs, "/", {})
    controller.step()
    for each in jobs:
        state = controller.ledger.jobs[each.name]
        if state.placement is not None and state.running_at is None:
            started = GangStarted(
                id=f"{each.name}/on", observed_at=controller.clock(), job=each.name, attempt=1
            )
            controller.inbox.enqueue(started)
            assert isinstance(controller.cluster, RecordingCluster)
            controller.cluster.attempts[each.name, 1] = "running"
    controller.step()


def of_queue(name: str, queue: str, gpus: int = 8) -> Job:
    return replace(job(name, 1, gpus), queue=queue)


def adopt(controller: Controller, text: str, by: str = "") -> PolicyAdopted:
    return controller.adopt_policy(PolicyText(text, "p.yaml"), by)


def versions(controller: Controller) -> list[tuple[int, str, str]]:
    return [(each.number, each.text, each.by) for each in controller.ledger.policies]


def test_a_policy_rules_from_the_turn_on_that_comes_to_it(tmp_path: Path) -> None:
    time = Time()
    with start(tmp_path, TWO_QUEUES, time) as controller:
        submit(controller, of_queue("a1", "a"), of_queue("a2", "a"), of_queue("b1", "b"))
        time.now += 3600
        controller.step()
        assert controller.ledger.leaving == {}
        version = adopt(controller, ALL_FOR_B, by="ann")
        assert (version.number, version.by) == (2, "ann")
        assert controller.policy == read_policy(ALL_FOR_B, "p.yaml")
        assert controller.ledger.policy == controller.policy
        check(controller.ledger)


def test_switching_while_jobs_run_comes_to_the_same_as_a_restart_with_that_policy(
    tmp_path: Path,
) -> None:
    def live(place: Path, *, restarts: bool) -> tuple[list[Fact], Controller]:
        time = Time()
        jobs = [of_queue(f"{q}{n}", q, 4) for n in range(3) for q in ("a", "b")]
        with start(place, TWO_QUEUES, time) as controller:
            submit(controller, *jobs)
            time.now += 7200
            controller.step()
            if not restarts:
                adopt(controller, ALL_FOR_B)
        with start(place, ALL_FOR_B if restarts else None, time) as controller:
            time.now += 60
            submit(controller, of_queue("late", "b", 8))
            facts = [each.fact for each in controller.journal.facts()]
            return facts, controller

    switched, one = live(tmp_path / "live", restarts=False)
    restarted, other = live(tmp_path / "restart", restarts=True)
    assert switched == restarted
    assert differences(one.ledger, other.ledger) == []


def test_a_live_ledger_is_what_a_fold_under_the_new_policy_gives(tmp_path: Path) -> None:
    time = Time()
    with start(tmp_path, TWO_QUEUES, time) as controller:
        submit(controller, of_queue("a1", "a"), of_queue("b1", "b", 4))
        time.now += 7200
        adopt(controller, ALL_FOR_B)
        again = controller._fold_under(controller.policy)
        assert differences(controller.ledger, again.ledger) == []


def test_the_newest_version_rules_after_a_restart_unless_the_start_names_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with start(tmp_path, OPEN) as controller:
        adopt(controller, TWO_QUEUES, by="ann")
    with start(tmp_path, None) as controller:
        assert controller.policy == read_policy(TWO_QUEUES, "p.yaml")
        assert versions(controller) == [(1, OPEN, ""), (2, TWO_QUEUES, "ann")]
    with start(tmp_path, ALL_FOR_B) as controller:
        assert controller.policy == read_policy(ALL_FOR_B, "p.yaml")
        assert versions(controller)[2:] == [(3, ALL_FOR_B, "")]
    assert "instead of version 2 on record" in caplog.text
    caplog.clear()
    with start(tmp_path, ALL_FOR_B) as controller:
        assert len(versions(controller)) == 3
    assert caplog.text == ""


def test_the_policy_in_force_is_no_new_version_and_a_rollback_is_one(tmp_path: Path) -> None:
    with start(tmp_path, OPEN) as controller:
        assert adopt(controller, OPEN).number == 1
        adopt(controller, TWO_QUEUES)
        assert adopt(controller, version_of(controller.ledger, 1).text).number == 3
        assert controller.policy == read_policy(OPEN, "p.yaml")
        with pytest.raises(NotFound, match="only 1 to 3"):
            version_of(controller.ledger, 4)


def test_a_policy_that_is_wrong_or_does_not_suit_is_refused_and_nothing_changes(
    tmp_path: Path,
) -> None:
    with start(tmp_path, TWO_QUEUES) as controller:
        submit(controller, of_queue("a1", "a"))
        facts = list(controller.journal.facts())
        with pytest.raises(BadFields, match=r"p\.yaml"):
            adopt(controller, "presett: fair\n")
        with pytest.raises(BadInput, match="guaranteed altogether"):
            adopt(controller, TWO_QUEUES.replace("8", "80"))
        assert list(controller.journal.facts()) == facts
        assert controller.policy == read_policy(TWO_QUEUES, "p.yaml")


def test_a_policy_that_suits_no_more_when_its_turn_comes_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with start(tmp_path, OPEN) as controller:
        wrong = PolicyText(TWO_QUEUES.replace("8", "80"), "p.yaml")
        controller.inbox.append([controller.policies.event(wrong, "", "late")])
        controller.step()
        assert len(versions(controller)) == 1
        assert "was not adopted" in caplog.text
        submit(controller, job("x"))
        assert controller.ledger.jobs["x"].phase == "running"


def test_a_policy_that_breaks_the_switch_is_set_aside_and_the_old_one_rules_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start(tmp_path, OPEN) as controller:
        text = PolicyText(TWO_QUEUES, "p.yaml")
        controller.inbox.append([controller.policies.event(text, "", "late")])
        controller.submit([job("j")], None, {})
        with monkeypatch.context() as broken:
            broken.setattr("gantree.control.requests.policy_versions.check_fit", _break)
            controller.step()
        (aside,) = controller.journal.all_set_aside()
        assert "AssertionError: broken" in aside.error
        assert "j" in controller.ledger.jobs
        assert not controller.policy.queues


def _break(*_: object) -> Policy:
    raise AssertionError("broken")


def test_a_policy_between_other_events_rules_what_comes_after_it(tmp_path: Path) -> None:
    with start(tmp_path, OPEN) as controller:
        before, after = (
            JobSubmitted(id=name, observed_at=0.0, job=name, spec=of_queue(name, "elsewhere", 1))
            for name in ("before", "after")
        )
        policy = controller.policies.event(PolicyText(TWO_QUEUES, "p.yaml"), "", "policy")
        controller.inbox.append([before, policy, after])
        controller.step()
        assert controller.policy == read_policy(TWO_QUEUES, "p.yaml")
        assert "before" in controller.ledger.jobs
        assert "after" in controller.ledger.rejected


def test_numbers_of_classes_are_those_of_the_policy_in_force(tmp_path: Path) -> None:
    with start(tmp_path, OPEN) as controller:
        submit(controller, job("x", priority="batch"))
        adopt(controller, OPEN + "priorities: {batch: 777}\n")
        assert controller.ledger.jobs["x"].priority == 777


def test_a_trial_says_what_would_change_and_leaves_no_trace(tmp_path: Path) -> None:
    time = Time()
    with start(tmp_path, TWO_QUEUES, time) as controller:
        submit(controller, of_queue("a1", "a"), of_queue("b1", "b"), of_queue("b2", "b"))
        time.now += 3600
        controller.step()
        facts = list(controller.journal.facts())
        trial = tried(controller.read_view(), PolicyText(ALL_FOR_B, "p.yaml"))
        told = {each.rule: (each.before, each.after) for each in trial.rules}
        assert told["queues.b.guarantee.gpus"] == (8.0, 16.0)
        assert told["queues.a.guarantee.gpus"] == (8.0, None)
        assert trial.loses_guarantee == ("a1",)
        assert [(each.job, each.by, each.cause) for each in trial.stops] == [
            ("a1", "b2", "reclaim")
        ]
        assert list(controller.journal.facts()) == facts
        assert controller.policy == read_policy(TWO_QUEUES, "p.yaml")
        check(controller.ledger)
        adopt(controller, ALL_FOR_B)
        assert list(controller.ledger.leaving) == ["a1"]


def test_who_would_start_and_whose_queue_would_be_gone_is_said(tmp_path: Path) -> None:
    limited = "preset: gantree\nqueues:\n  - {name: a, limit: {gpus: {any: 4}}}\n"
    with start(tmp_path, limited) as controller:
        submit(controller, of_queue("a1", "a"))
        assert controller.ledger.jobs["a1"].phase == "pending"
        trial = tried(controller.read_view(), PolicyText(OPEN, "p"))
        assert trial.starts == ("a1",)
        other = PolicyText(limited.replace("name: a", "name: z"), "p")
        trial = tried(controller.read_view(), other)
        assert trial.without_queue == {"a": ("a1",)}


def test_a_policy_that_waits_in_the_inbox_is_not_handed_in_again(tmp_path: Path) -> None:
    time = Time()
    with start(tmp_path, None, time) as controller:  # as one that was killed before its turn
        event = controller.policies.event(PolicyText(OPEN, "p.yaml"), "", "policy-submitted/before")
        controller.inbox.append([event])
    for _ in range(2):
        with start(tmp_path, OPEN, time) as controller:
            assert versions(controller) == [(1, OPEN, "")]
