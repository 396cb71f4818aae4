"""Services are sampled and scaled: from what routers tell, from replicas' /metrics, GPUs, and a Prometheus server."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from gantree.control.engine.controller import Controller
from gantree.control.engine.loop import Loop
from gantree.control.services.autoscale_watch import autoscale, keep_weeks, read_weeks
from gantree.control.services.autoscaling import Answer, ServiceScaling, answered
from gantree.control.services.gpu_use import ReplicaGpuUse
from gantree.control.services.prometheus import ask
from gantree.control.services.router_reports import RouterReport, RouterReports, ServiceReport
from gantree.core.ledger.job_parts import ReplicaState
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.service_state import ServiceState
from gantree.core.ledger.state import JobState
from gantree.executors.served_services import ServedService
from gantree.journal.service_week_store import ServiceWeekStore
from gantree.journal.sqlite import SqliteJournal
from gantree.model.errors import GantreeError
from gantree.model.events import Event, ServiceScaleRequested
from gantree.model.jobs import AlternativeShape, Job, Role, Shape
from gantree.model.phases import Phase
from gantree.model.placements import Domain, MemberPlacement, Placement, Predicted
from gantree.model.replicas import Endpoint
from gantree.model.services import (
    Autoscaling,
    ReplicaCount,
    ScaleSteps,
    ScaleTarget,
    ServiceSpec,
)
from gantree.services.autoscaler import Recommendation
from gantree.services.load import Measured
from gantree.services.load_of_week import LoadOfWeek
from support.serving import serving

TEMPLATE = Job("chat", (Role("worker", 1, Shape(gpus=2)),))
AT_ONCE = ScaleSteps()
TO_TEN = ReplicaCount(1, 10)


def told(**values: Any) -> ServiceReport:
    """What a router tells of the service: ten requests that ended, one a second, unless said otherwise."""
    return ServiceReport("chat", **{"requests": 10, "rate": 1.0, **values})


@dataclass
class Site:
    """A service with ready replicas, its autoscaler, and the ledger that follows what it says."""

    targets: tuple[ScaleTarget, ...]
    wanted: int = 1
    bounds: ReplicaCount = TO_TEN
    ports: tuple[int, ...] = ()
    routers: RouterReports = field(default_factory=RouterReports)
    now: float = 0.0

    def __post_init__(self) -> None:
        scaling = Autoscaling(self.targets, 15.0, down=AT_ONCE)
        spec = ServiceSpec("chat", TEMPLATE, self.bounds, scaling=scaling)
        self.ledger = Ledger()
        self.service = ServiceState("chat", spec, 1, self.wanted, 0.0, 0.0)
        self.ledger.services["chat"] = self.service
        self.scaling = ServiceScaling(self.routers)
        for number in range(self.wanted):
            self.add(number)

    def add(self, number: int) -> None:
        port = self.ports[number] if number < len(self.ports) else 1
        name = f"chat.{number + 1}"
        replica = ReplicaState((Endpoint("worker", 0, "127.0.0.1", port),), ready=True, since=5.0)
        member = MemberPlacement("worker", 0, f"n{number}", (0, 1), ())
        self.ledger.jobs[name] = JobState(
            name, TEMPLATE, 0, number, 0, 0.0, attempt=1, running_at=1.0, replica=replica, phase=Phase.RUNNING,
            placement=Placement((member,), Domain("node", f"n{number}"), Predicted(0.0, ())),
        )  # fmt: skip
        self.service.replicas[name] = None

    def sample(
        self, report: ServiceReport | None = None, server: str | None = None
    ) -> Recommendation | None:
        """Let a sample's time pass, and ask."""
        self.now += 15.0
        return self.look(report, server)

    def look(
        self, report: ServiceReport | None = None, server: str | None = None
    ) -> Recommendation | None:
        if report is not None:
            self.routers.take(RouterReport("r1", 5.0, self.now, (report,)))
        due = self.scaling.due(self.ledger, self.now)
        if not due:
            return None
        (question,) = due
        return self.scaling.decide(question, answered(question, server), self.ledger, self.now)


CONCURRENCY = ScaleTarget("concurrency", 8)


def test_a_number_that_differs_is_said_once_within_one_sample_and_with_its_reason() -> None:
    site = Site((CONCURRENCY,))
    assert site.sample(told(concurrency=7.0, in_flight=7)) is None
    found = site.sample(told(concurrency=31.0, in_flight=31))
    assert found == Recommendation(4, "concurrency 31 on 1 replica, target 8")
    site.now += 1.0
    assert site.look(told(concurrency=31.0, in_flight=31)) is None, "its sample has not come"
    site.service.wanted = 4
    assert site.sample(told(concurrency=31.0, in_flight=31)) is None
    assert site.scaling.of_service["chat"].latest == Recommendation(
        4, "concurrency 31 over 4 replicas, target 8"
    )


def test_a_replica_in_a_slower_shape_bears_its_part_of_the_target() -> None:
    site = Site((CONCURRENCY,))
    whole, half = Role("worker", 1, Shape(gpus=4)), AlternativeShape("worker", Shape(gpus=2), 0.5)
    site.ledger.jobs["chat.1"].spec = replace(TEMPLATE, roles=(whole,), alternatives=(half,))
    found = site.sample(told(concurrency=16.0, in_flight=16))
    assert found is not None
    assert found.replicas == 3


def test_samples_that_are_taken_more_often_than_routers_report_scale_down_too() -> None:
    site = Site((CONCURRENCY,), wanted=4)
    scaling = Autoscaling((CONCURRENCY,), 1.0, down=ScaleSteps(stabilise_s=6.0))
    site.service.spec = replace(site.service.spec, scaling=scaling)
    quiet, found = told(requests=0, rate=0.0), []
    for second in range(12):
        site.now += 1.0
        found.append(site.look(quiet if second % 5 == 0 else None))
    assert [each.replicas for each in found if each] == [1]
    site.service.wanted = 4
    site.now += 60.0
    assert site.look() is None, "no router has reported lately: nothing is known"


def test_a_number_that_is_not_on_record_yet_counts_and_is_said_again_after_two_samples() -> None:
    site = Site((CONCURRENCY,))
    full = told(concurrency=31.0, in_flight=31)
    found = [site.sample(full) for _ in range(5)]
    assert [each.replicas if each else None for each in found] == [4, None, None, 4, None]


def test_without_a_replica_the_first_request_is_seen_at_once_and_asked_for_once() -> None:
    site = Site((CONCURRENCY,), wanted=0, bounds=ReplicaCount(0, 4))
    assert site.sample(told(requests=0, rate=0.0)) is None
    site.now += 0.5
    assert site.look(told(requests=0, rate=0.0)) is None
    site.now += 0.5
    found = site.look(told(requests=0, rate=0.0, queued=1, concurrency=0.1))
    assert found is not None
    assert found.replicas == 1
    site.now += 0.5
    assert site.look(told(requests=0, rate=0.0, queued=1, concurrency=0.1)) is None


def test_the_rate_is_that_of_arrivals_not_of_what_ended() -> None:
    """A replica ends two a second while ten arrive: eight a second wait, until none does any more."""
    site = Site((ScaleTarget("rate", 2),), bounds=ReplicaCount(1, 100))
    found = [
        site.sample(told(rate=2.0, in_flight=1, queued=120 * sample, concurrency=1))
        for sample in range(3)
    ]
    assert [each.replicas if each else None for each in found] == [None, 5, None]
    assert site.scaling.of_service["chat"].rate is not None


def test_idle_services_have_no_time_to_answer_that_is_too_long() -> None:
    site = Site((ScaleTarget("ttft_p99", 0.5),), wanted=3)
    found = site.sample(told(requests=0, rate=0.0))
    assert found is not None
    assert found.replicas == 2
    assert Site((ScaleTarget("ttft_p99", 0.5),), wanted=3).sample(told(in_flight=2)) is None


@pytest.mark.parametrize("drains", [True, False])
def test_replicas_that_drain_or_stop_are_not_asked_and_not_counted(drains: bool) -> None:
    site = Site((ScaleTarget("latency_p99", 0.5),), wanted=2)
    state = site.ledger.jobs["chat.2"]
    if drains:
        state.replica = replace(state.replica, drain_ends_at=99.0)
    else:
        state.phase = Phase.STOPPING
    assert site.sample(told(latency_p99_s=5.0)) is None, "one of two is ready"


def test_a_service_that_ends_or_has_no_targets_is_not_sampled() -> None:
    assert Site(()).sample(told()) is None
    site = Site((CONCURRENCY,))
    site.service.ending_at = 3.0
    assert not site.scaling.due(site.ledger, 100.0)


def test_a_prediction_starts_replicas_as_long_before_as_the_last_one_took_to_be_ready() -> None:
    """Each hour needs its number of the day; the replica took four seconds, a sample is fifteen."""
    site = Site((CONCURRENCY,))
    spec = site.service.spec
    site.service.spec = replace(spec, scaling=replace(spec.scaling, predict=True))
    site.sample(told(concurrency=1.0))
    scaled = site.scaling.of_service["chat"]
    assert scaled.start_s == 4.0
    again = site.ledger.jobs["chat.1"]
    again.replica = replace(again.replica, since=400.0)
    site.sample(told(concurrency=1.0))
    assert scaled.start_s == 4.0, "it was ready again, and did not start"
    again.running_at, within_s = 2.0, site.service.spec.ready.within_s
    again.replica = replace(again.replica, since=2.0 + within_s + 1.0)
    site.sample(told(concurrency=1.0))
    assert scaled.start_s == 4.0, "a start that takes longer than `within` is stopped"
    scaled.week = LoadOfWeek(tuple(float(hour % 24) for hour in range(168)))
    site.now = 4.4 * 3600.0
    found = site.sample(told(concurrency=1.0))
    assert found == Recommendation(4, "the load of this hour in earlier weeks")
    site.now = 4.5 * 3600.0 - 20.0
    site.service.wanted = 4
    found = site.sample(told(concurrency=1.0))
    assert found is not None
    assert found.replicas == 5, "at half past, and then it needs more than four"


# ----- replicas' own /metrics


@dataclass
class Engine:
    """A model server of which only /metrics matters, written by Prometheus' client library under vLLM's names."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        self.running = Gauge("vllm:num_requests_running", "", registry=self.registry)
        self.waiting = Gauge("vllm:num_requests_waiting", "", registry=self.registry)
        self.done = Counter("vllm:request_success", "", registry=self.registry)
        self.tokens = Counter("vllm:generation_tokens", "", registry=self.registry)


@contextmanager
def answering(answer: bytes | Engine, asked: list[str]) -> Iterator[int]:
    """A server of the standard library that answers all with one text; the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = generate_latest(answer.registry) if isinstance(answer, Engine) else answer
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        yield server.server_address[1]


def test_what_routers_do_not_tell_is_read_from_the_replicas() -> None:
    first, second, asked = Engine(), Engine(), list[str]()
    with answering(first, asked) as one, answering(second, asked) as other:
        site = Site((ScaleTarget("tokens_per_s", 100),), wanted=2, ports=(one, other))
        assert site.sample(told()) is None, "one text tells no rate"
        first.tokens.inc(6000)
        second.tokens.inc(3000)
        found = site.sample(told())
        assert found == Recommendation(6, "tokens_per_s 600 over 2 replicas, target 100")
        assert site.scaling.tokens_per_s() == {"chat": 600.0}
        before = len(asked)
        site.sample(told(tokens_per_s=150.0))
        assert len(asked) == before, "routers tell it, so nobody is asked"
        assert site.scaling.tokens_per_s() == {}
    assert set(asked) == {"/metrics"}


def test_a_replica_that_does_not_answer_leaves_sums_unknown() -> None:
    engine = Engine()
    engine.running.set(100)
    with answering(engine, []) as port, answering(b"<html>\n", []) as wrong:
        alone = Site((CONCURRENCY,), wanted=1, ports=(port,))
        assert alone.sample() is not None
        for other in (1, wrong):
            assert Site((CONCURRENCY,), wanted=2, ports=(port, other)).sample() is None


def test_without_routers_the_rate_is_what_ended_and_came_at_the_replicas() -> None:
    engine = Engine()
    with answering(engine, []) as port:
        site = Site((ScaleTarget("rate", 2),), ports=(port,))
        site.sample()
        engine.done.inc(30)
        engine.waiting.set(45)
        found = site.sample()
        assert found is not None
        assert found.replicas == 3


# ----- GPUs


def test_the_use_of_gpus_is_the_mean_over_the_replicas() -> None:
    site = Site((ScaleTarget("gpu_use", 0.5),), wanted=2)
    use = site.scaling.gpu_use
    busy = {gpu: {"DCGM_FI_DEV_GPU_UTIL": 90.0} for gpu in (0, 1)}
    assert site.sample(told()) is None, "nothing is known"
    site.now += 15.0
    use.events(use.judge({"n0": busy, "n1": busy}, None, site.now), site.ledger, site.now, 1)
    found = site.look(told())
    assert found is not None
    assert found.replicas == 4
    use.events(use.judge({"n0": busy}, None, site.now), site.ledger, site.now, 1)
    assert use.of(site.ledger.jobs.values()) is None, "n1 did not answer"
    half = {"n0": busy, "n1": {0: busy[0]}}
    use.events(use.judge(half, None, site.now), site.ledger, site.now, 1)
    assert use.of(site.ledger.jobs.values()) is None, "one GPU of n1 did not answer"
    assert use.of([site.ledger.jobs["chat.1"]]) == Measured(0.9, site.now)
    assert ReplicaGpuUse().of([]) is None


# ----- Prometheus


@contextmanager
def prometheus(result: object, asked: list[dict[str, list[str]]]) -> Iterator[str]:
    paths: list[str] = []
    body = json.dumps(result).encode()
    with answering(body, paths) as port:
        yield f"http://127.0.0.1:{port}/"
    asked += [parse_qs(urlsplit(path).query) for path in paths]


def vector(*values: str) -> dict[str, object]:
    series = [{"metric": {}, "value": [1.5, value]} for value in values]
    return {"status": "success", "data": {"resultType": "vector", "result": series}}


QUERY = ScaleTarget("", 10, "sum by (pod) (x)")


def test_a_query_is_asked_of_prometheus_and_summed() -> None:
    asked: list[dict[str, list[str]]] = []
    with prometheus(vector("20.5", "14"), asked) as server:
        found = Site((QUERY,)).sample(told(), server)
    assert found == Recommendation(4, "sum by (pod) (x) 34.5 on 1 replica, target 10")
    assert asked == [{"query": ["sum by (pod) (x)"], "lookback_delta": ["30"]}]


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (vector(), "has no value now"),
        (vector("NaN"), "has no value now"),
        ({"status": "success", "data": {"resultType": "matrix", "result": []}}, "is a matrix"),
        ({"data": 3}, "answers as no Prometheus does"),
        ([], "answers as no Prometheus does"),
    ],
)
def test_a_query_without_a_value_is_not_known_and_says_why(result: object, says: str) -> None:
    with prometheus(result, []) as server:
        site = Site((QUERY,), wanted=3)
        assert site.sample(told(), server) is None
    (problem,) = site.scaling.of_service["chat"].problems
    assert says in problem
    assert "sum by (pod) (x) is not known" in str(site.scaling.of_service["chat"].latest)


def test_a_scalar_is_a_value_and_no_server_is_a_problem() -> None:
    scalar = {"status": "success", "data": {"resultType": "scalar", "result": [1.0, "7"]}}
    with prometheus(scalar, []) as server:
        assert ask(server, "7", 30.0) == 7.0
    with pytest.raises(GantreeError, match="does not answer"):
        ask("http://127.0.0.1:1", "7", 30.0)
    site = Site((QUERY,))
    assert site.sample(told()) is None
    assert "--prometheus" in site.scaling.of_service["chat"].problems[0]


def test_an_answer_for_a_description_that_has_changed_is_passed_over() -> None:
    site = Site((CONCURRENCY,))
    site.routers.take(RouterReport("r1", 5.0, 15.0, (told(concurrency=80.0),)))
    (question,) = site.scaling.due(site.ledger, 15.0)
    spec = site.service.spec
    site.service.spec = replace(spec, scaling=replace(spec.scaling, targets=(QUERY,)))
    assert site.scaling.decide(question, Answer(), site.ledger, 15.0) is None


class AtOnce:
    """The thread of a controller, which is this one."""

    async def call(self, function: Callable[[], Any]) -> Any:
        return function()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ServiceWeekStore]:
    journal = SqliteJournal(tmp_path)
    yield ServiceWeekStore(journal.database)
    journal.close()


def test_what_was_needed_by_hour_of_the_week_outlives_a_daemon(store: ServiceWeekStore) -> None:
    site, loop = Site((CONCURRENCY,)), cast("Loop", AtOnce())
    leading = cast("Controller", SimpleNamespace(ledger=site.ledger, cluster_services=None))
    site.service.spec = replace(
        site.service.spec, scaling=replace(site.service.spec.scaling, predict=True)
    )
    hours = tuple(None if hour % 2 else hour / 3 for hour in range(168))
    site.scaling.due(site.ledger, 0.0)
    week = LoadOfWeek(hours, 5, 2.5, 2)
    site.scaling.of_service["chat"].week = week
    asyncio.run(keep_weeks(loop, leading, site.scaling, store))
    later = ServiceScaling(site.routers)
    asyncio.run(read_weeks(loop, later, store))
    later.due(site.ledger, 0.0)
    assert later.of_service["chat"].week == week
    assert later.changed_weeks() == {}
    later.of_service["chat"].week = week.noted(5 * 3600.0, 1.0)
    store.write({"gone": week}, ["chat", "gone"])
    asyncio.run(keep_weeks(loop, leading, later, store))
    assert store.read() == {"chat": LoadOfWeek(hours, 5, 3.5, 3)}, "and none of services that ended"


@pytest.mark.parametrize("keeps", [True, False])
def test_a_cluster_that_keeps_services_itself_is_told_and_others_get_an_event(
    keeps: bool, store: ServiceWeekStore
) -> None:
    site, asked, events = Site((CONCURRENCY,), wanted=1), list[object](), list[Event]()
    site.routers.take(RouterReport("r1", 5.0, 0.0, (told(concurrency=31.0),)))
    own = SimpleNamespace(
        served=(ServedService(site.service.spec, 1, ()),),
        changes=1,
        scale=lambda *words, automatic: asked.append((*words, automatic)),
    )
    controller = SimpleNamespace(
        ledger=site.ledger,
        clock=lambda: 0.0,
        epoch=7,
        cluster_services=own if keeps else None,
        inbox=SimpleNamespace(enqueue=events.append),
    )

    async def until_told() -> None:
        loop, leading = cast("Loop", AtOnce()), cast("Controller", controller)
        task = asyncio.create_task(autoscale(loop, leading, site.scaling, None, store))
        while not (asked or events):
            await asyncio.sleep(0.01)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(until_told())
    reason = "concurrency 31 on 1 replica, target 8"
    if keeps:
        assert (asked, events) == ([("chat", 4, reason, True)], [])
    else:
        (event,) = events
        assert isinstance(event, ServiceScaleRequested)
        assert (event.service, event.replicas, event.reason, event.automatic) == ("chat", 4, reason, True)  # fmt: skip
