"""What is seen of turns: spans linked by causes, log fields, counters; with a real journal and a real scheduler."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from structlog.contextvars import get_contextvars

from gantree.accounting.buckets import Bucket
from gantree.accounting.usage import UsageAmounts, UsageChange, UsageKey
from gantree.control.engine.controller import Controller
from gantree.control.metrics.metrics import SLIPS, Metrics, slip_cause
from gantree.control.metrics.sampler import FRESH_S, LedgerSampler
from gantree.control.tracing import CAUSES_KEPT, Causes
from gantree.control.turn_telemetry import causes_of
from gantree.journal.contract import InboxEntry
from gantree.journal.sqlite import SqliteJournal
from gantree.model.errors import JournalError
from gantree.model.events import GangEnded, GangStarted, TimePassed
from gantree.model.facts import GangPreempted, ReservationDropped, ReservationMade
from gantree.model.orders import StopGang
from gantree.planning.reservations.reserve import Slip
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.recording import RecordingCluster


class Tracing:
    """A tracer whose spans the test reads."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = provider.get_tracer("test")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]


@pytest.fixture
def tracing() -> Tracing:
    return Tracing()


@pytest.fixture
def controller(tmp_path: Path, tracing: Tracing) -> Iterator[Controller]:
    site = cluster(leaves=1, nodes=2)
    made = Controller(SqliteJournal(tmp_path), Policy(), RecordingCluster, site=site)
    made.causes.tracer = tracing.tracer
    made.recover()
    tracing.exporter.clear()
    yield made
    made.close()


def value(metrics: Metrics, name: str, **labels: str) -> float:
    found = metrics.registry.get_sample_value(name, labels)
    assert found is not None, f"{name} {labels}"
    return found


def test_a_turn_is_a_span_of_its_own_with_its_four_steps(
    controller: Controller, tracing: Tracing
) -> None:
    controller.submit([job("a")], None, {})
    controller.step()
    (turn,) = tracing.named("turn")
    assert turn.parent is None
    assert turn.context is not None
    steps = [span for span in tracing.exporter.get_finished_spans() if span.parent == turn.context]
    assert [step.name for step in steps] == ["read inbox", "decide", "commit", "send orders"]
    assert turn.attributes is not None
    assert turn.attributes["gantree.events"] == ("a/submitted",)
    assert turn.attributes["gantree.epoch"] == controller.epoch


def test_a_turn_links_to_the_spans_that_handed_its_events_in(
    controller: Controller, tracing: Tracing
) -> None:
    with tracing.tracer.start_as_current_span("POST /v1/jobs") as asking:
        controller.submit([job("a")], None, {})
    with tracing.tracer.start_as_current_span("another") as other:
        controller.submit([job("b")], None, {})
        controller.step()
    (turn,) = tracing.named("turn")
    linked = {
        link.attributes["gantree.event"]: link.context for link in turn.links if link.attributes
    }
    assert linked == {
        "a/submitted": asking.get_span_context(),
        "b/submitted": other.get_span_context(),
    }
    assert turn.parent is None, "it serves both, and belongs to neither"


def test_causes_forget_the_oldest_and_those_that_were_decided_about(tracing: Tracing) -> None:
    causes = Causes(tracing.tracer)
    with tracing.tracer.start_as_current_span("x"):
        for number in range(CAUSES_KEPT + 3):
            causes.remember([TimePassed(id=f"t{number}", observed_at=0.0)])
    assert len(causes._span_of_event) == CAUSES_KEPT
    assert "t2" not in causes._span_of_event


def test_without_a_tracer_nothing_is_remembered() -> None:
    causes = Causes()
    causes.remember([TimePassed(id="t", observed_at=0.0)])
    assert causes._span_of_event == {}


def test_lines_of_an_order_carry_job_attempt_cause_turn_and_epoch(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(
        controller.cluster, "carry_out", lambda order: seen.append(get_contextvars())
    )
    controller.submit([job("a")], None, {})
    controller.step()
    first = controller.journal.turns()
    controller.inbox.enqueue(GangStarted(id="a/1/started", observed_at=0.0, job="a", attempt=1))
    controller.step()
    controller.jobs.cancel("a")
    controller.step()
    common = {"job": "a", "attempt": 1, "epoch": controller.epoch}
    assert seen == [
        {**common, "cause": "a/submitted", "turn": first},
        {**common, "cause": "a/cancel-requested", "turn": first + 2},
    ]
    assert get_contextvars() == {}


def test_an_order_that_another_job_brought_about_names_that_as_its_cause(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, str] = {}
    monkeypatch.setattr(
        controller.cluster,
        "carry_out",
        lambda order: seen.setdefault(order.id, get_contextvars()["cause"]),
    )
    controller.submit([job("a", members=2, gpus=8)], None, {})
    controller.step()
    controller.submit([job("b", gpus=8)], None, {})
    controller.step()
    started = {"b/1/start"}
    assert not started & seen.keys()
    controller.inbox.enqueue(
        GangEnded(id="a/1/ended", observed_at=0.0, job="a", attempt=1, exit_code=0)
    )
    controller.step()
    assert seen["b/1/start"] == "a/1/ended"


def test_of_a_batch_the_newest_event_about_the_job_is_the_cause_else_the_newest() -> None:
    events = [
        GangStarted(id="a/1/started", observed_at=0.0, job="a", attempt=1),
        GangStarted(id="b/1/started", observed_at=0.0, job="b", attempt=1),
        TimePassed(id="late", observed_at=0.0),
    ]
    cause_of = causes_of([InboxEntry(seq, event) for seq, event in enumerate(events, 1)])
    found = {job: cause_of(StopGang(id="x", job=job, attempt=1, grace_s=1.0)) for job in "abc"}
    assert found == {"a": "a/1/started", "b": "b/1/started", "c": "late"}


def test_a_failing_batch_says_its_cause_and_counts_what_was_set_aside(
    controller: Controller, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    causes = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            causes.append(get_contextvars().get("cause"))

    logger = logging.getLogger("gantree.control.turn")
    monkeypatch.setattr(logger, "handlers", [*logger.handlers, Keep()])
    controller.inbox.append([TimePassed(id="poison", observed_at=controller.clock())])

    def broken(events: object) -> None:
        raise AssertionError("broken")

    monkeypatch.setattr(controller.turn_runner.scheduler, "handle", broken)
    controller.step()
    assert causes == ["poison", "poison"]
    assert value(controller.metrics, "gantree_events_set_aside_total") == 1


def test_events_facts_orders_and_times_are_counted_once_they_are_durable(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = controller.metrics
    controller.submit([job("a")], None, {})
    before = value(metrics, "gantree_turn_seconds_count")
    commit = controller.journal.commit_turn

    def full(*_: object) -> None:
        raise JournalError("disk full")

    monkeypatch.setattr(controller.journal, "commit_turn", full)
    with pytest.raises(JournalError):
        controller.step()
    assert value(metrics, "gantree_facts_total", kind="GangPlaced") == 0
    monkeypatch.setattr(controller.journal, "commit_turn", commit)
    controller.step()
    assert value(metrics, "gantree_events_total", kind="JobSubmitted") == 1
    assert value(metrics, "gantree_facts_total", kind="GangPlaced") == 1
    assert value(metrics, "gantree_orders_total", kind="StartGang") == 1
    assert value(metrics, "gantree_turn_seconds_count") == before + 1
    assert value(metrics, "gantree_journal_commit_seconds_count", transaction="inbox") >= 2


def test_evictions_and_reservations_are_counted_by_cause() -> None:
    metrics, stage = Metrics(), Stage(cluster(leaves=1, nodes=1))
    stage.submit(job("a", gpus=8, time_limit_s=3600))
    stage.started("a")
    stage.submit(job("b", gpus=8, time_limit_s=60))
    metrics.decided([], stage.facts)
    assert value(metrics, "gantree_reservations_told_total", kind="promised") == 1
    reasons = ["node n0 was lost", "a runs longer than it was to", "it starts", "who knows"]
    metrics.decided([], [ReservationDropped(at=0.0, job="b", reason=reason) for reason in reasons])
    metrics.decided([], [GangPreempted(at=0.0, job="a", attempt=1, by="b", cause="reclaim")])
    slipped = {cause: value(metrics, "gantree_reservations_slipped_total", cause=cause)
               for cause in (*SLIPS, "other")}  # fmt: skip
    assert {cause: n for cause, n in slipped.items() if n} == {
        "node-lost": 1,
        "late": 1,
        "other": 1,
    }
    assert value(metrics, "gantree_evictions_total", cause="reclaim") == 1
    assert any(isinstance(fact, ReservationMade) for fact in stage.facts)


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (Slip("node", "n-0").sentence, "node-lost"),
        (Slip("late", "a job-2").sentence, "late"),
        (Slip("taken", "other").sentence, "taken"),
        ("a, b is late to leave", "late"),
        ("what was claimed is late to leave", "late"),
        ("its queue does not admit it", "quota"),
        ("the cluster has changed", "cluster-changed"),
        ("urgent goes first", "passed-on"),
    ],
)
def test_every_reason_that_the_core_gives_has_its_cause(reason: str, cause: str) -> None:
    assert slip_cause(reason) == cause


def test_figures_are_taken_at_most_every_few_seconds(controller: Controller) -> None:
    now, walks = [100.0], []
    sampler = LedgerSampler(controller.metrics, controller.epoch, lambda: now[0])

    def look() -> None:
        sampler.sample(controller.ledger, controller.journal, 0, now[0])
        walks.append(value(controller.metrics, "gantree_figures_timestamp_seconds"))

    look()
    now[0] += FRESH_S / 2
    look()
    now[0] += FRESH_S
    look()
    assert walks == [100.0, 100.0, 100.0 + 1.5 * FRESH_S]


def test_the_backlog_and_the_epoch_are_told(controller: Controller) -> None:
    controller.inbox.append([TimePassed(id="t", observed_at=controller.clock())])
    controller.sample_metrics()
    assert value(controller.metrics, "gantree_inbox_backlog_events") == 1
    assert value(controller.metrics, "gantree_epoch") == controller.epoch
    assert value(controller.metrics, "gantree_gpus", use="free") == 16


def test_gpu_time_is_counted_by_purpose_and_what_is_taken_back_is_not() -> None:
    metrics, key = Metrics(), UsageKey("q", "ann", "H100-80GB")
    rows = [
        UsageAmounts(allocated_gpu_s=80.0, useful_gpu_s=60.0, held_gpu_s=8.0),
        UsageAmounts(lost_gpu_s=20.0, useful_gpu_s=-20.0),
    ]
    usage = {(Bucket(60, 60 * number), key): row for number, row in enumerate(rows)}
    metrics.used(UsageChange(usage, {}, {}, 0.0, is_minute_over=False))
    metrics.used(None)
    found = {
        purpose: value(metrics, "gantree_gpu_seconds_total", purpose=purpose)
        for purpose in ("allocated", "useful", "claimed", "lost", "idle")
    }
    assert found == {"allocated": 80.0, "useful": 60.0, "claimed": 8.0, "lost": 20.0, "idle": 0.0}
