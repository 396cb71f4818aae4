"""Autoscales services: measures their loads, and decides by `services.autoscaler`; sampled by `autoscale_watch`.

Each service with targets is sampled every `every`; what is known of it comes from routers first, then from its
replicas' /metrics, from the counters of its GPUs, and from a Prometheus server for queries. A service without replicas
is looked at as soon as routers tell of a request. Only a number that differs goes on record, as
`ServiceScaleRequested`; a cluster that keeps services itself (GangServices) is told. What an autoscaler remembers is
in memory, as the HPA's, except for what was needed in earlier weeks: a daemon that takes over begins with the number
that it finds.

Arrivals are counted, not what ended: while replicas are full or start, less ends than arrives, and what a scale-up
makes of that must not look like more load. A router tells what ended, and how many requests are there now; the
difference of the latter is what arrived besides.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from gantree.control.services.engine_loads import EngineLoad, EngineLoads, scraped
from gantree.control.services.gpu_use import ReplicaGpuUse
from gantree.control.services.prometheus import ask
from gantree.control.services.route_table import speed_of
from gantree.control.services.router_reports import RouterReports, ServiceLoad
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.service_state import ServiceState
from gantree.core.ledger.state import JobState
from gantree.core.services.replicas import live_replicas, takes_requests
from gantree.model.errors import GantreeError
from gantree.model.phases import AttemptKey
from gantree.model.replicas import Endpoint
from gantree.model.services import LATENCIES, Autoscaling, ScaleTarget
from gantree.services.autoscaler import Recommendation, recommend, shared_need
from gantree.services.load import STALE_AFTER, Load, Measured, Replicas
from gantree.services.load_of_week import LoadOfWeek
from gantree.services.scaling_history import History
from gantree.telemetry.engine_metrics import EngineFigures

USUAL_START_S = 60.0
"""How long before its need a predicted replica starts, until one has been seen to start."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked outside of one sample: replicas at /metrics (none if routers tell all), and queries."""

    service: str
    scaling: Autoscaling
    endpoints: Mapping[AttemptKey, Endpoint]
    queries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: texts of replicas, and values of queries; what did not is left out. problems says why."""

    figures: Mapping[AttemptKey, EngineFigures] = field(default_factory=dict)
    queries: Mapping[str, float] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def answered(question: Question, server: str | None) -> Answer:
    """Ask replicas, and a Prometheus server for queries. It waits for them, and belongs on a thread of its own."""
    queries, problems = dict[str, float](), list[str]()
    for query in question.queries:
        try:
            if server is None:
                raise GantreeError("queries need a daemon with --prometheus URL")
            queries[query] = ask(server, query, STALE_AFTER * question.scaling.every_s)
        except GantreeError as error:
            problems.append(f"{query}: {error}")
    return Answer(scraped(question.endpoints), queries, tuple(problems))


@dataclass(slots=True)
class Scaled:
    """What is remembered of one service. latest: what was last recommended, and problems with its values then.

    present: requests that were there at the last sample. asked: a number that was requested, at asked_at, and is not on
    record yet; it counts as the wanted one for two samples. tokens_per_s: as its replicas told at the last sample, if
    they were asked. start_s: how long the newest replica, which runs since newest_at, took to be ready.
    """

    next_at: float
    history: History | None = None
    week: LoadOfWeek = field(default_factory=LoadOfWeek)
    present: Measured | None = None
    rate: Measured | None = None
    asked: int | None = None
    asked_at: float = 0.0
    start_s: float = USUAL_START_S
    newest_at: float = 0.0
    is_asking: bool = False
    latest: Recommendation | None = None
    problems: tuple[str, ...] = ()
    tokens_per_s: float | None = None


@dataclass(slots=True)
class ServiceScaling:
    """The autoscalers of all services; for the thread of the controller alone."""

    routers: RouterReports
    gpu_use: ReplicaGpuUse = field(default_factory=ReplicaGpuUse)
    engines: EngineLoads = field(default_factory=EngineLoads)
    weeks: Mapping[str, LoadOfWeek] = field(default_factory=dict)
    of_service: dict[str, Scaled] = field(default_factory=dict)

    def changed_weeks(self) -> dict[str, LoadOfWeek]:
        """Tables of services that predict, as far as they differ from `weeks`, which are those on record."""
        return {
            service: scaled.week
            for service, scaled in self.of_service.items()
            if scaled.week.samples and scaled.week != self.weeks.get(service)
        }

    def due(self, ledger: Ledger, now: float) -> list[Question]:
        """The services whose sample has come, and what is to be asked for it."""
        live = {state.service: state for state in _autoscaled(ledger)}
        for gone in self.of_service.keys() - live.keys():
            del self.of_service[gone]
        attempts = (job for state in live.values() for job in _attempts(ledger, state))
        self.engines.keep(attempts)
        return [
            self._question(ledger, state, now)
            for state in live.values()
            if self._is_due(state, now)
        ]

    def recommendations(self) -> dict[str, dict[str, Any]]:
        """What was last recommended for each service, why, what keeps it from that, and values that are not known."""
        return {
            service: asdict(scaled.latest) | {"problems": list(scaled.problems)}
            for service, scaled in self.of_service.items()
            if scaled.latest is not None
        }

    def tokens_per_s(self) -> dict[str, float]:
        """Tokens a second of the services whose replicas tell it: those that are scaled by what routers do not know."""
        tokens = {service: scaled.tokens_per_s for service, scaled in self.of_service.items()}
        return {service: told for service, told in tokens.items() if told is not None}

    def _is_due(self, state: ServiceState, now: float) -> bool:
        scaled = self._scaled(state.service, now)
        late = now - scaled.asked_at > STALE_AFTER * state.spec.scaling.every_s
        if scaled.asked == state.wanted or late:
            scaled.asked = None
        if scaled.is_asking:
            return False
        if now >= scaled.next_at:
            return True
        load = self.routers.load(state.service, now) if state.wanted == 0 else None
        return load is not None and load.queued + load.in_flight > 0

    def _scaled(self, service: str, now: float) -> Scaled:
        """What is remembered of a service; of a new one, what is on record of its weeks."""
        if service not in self.of_service:
            week = self.weeks.get(service, LoadOfWeek())
            self.of_service[service] = Scaled(now, week=week)
        return self.of_service[service]

    def _question(self, ledger: Ledger, state: ServiceState, now: float) -> Question:
        scaling, scaled = state.spec.scaling, self.of_service[state.service]
        scaled.is_asking = True
        scaled.next_at = now + scaling.every_s
        routed = self.routers.load(state.service, now)
        metrics = [target.metric for target in scaling.targets if not target.query]
        told = routed is not None and all(_of_router(each, routed) is not None for each in metrics)
        ready = {(each.job, each.attempt): each for each in _ready(ledger, state)}
        endpoints = {
            attempt: job.replica.endpoints[0]
            for attempt, job in ready.items()
            if job.replica.endpoints
        }
        queries = dict.fromkeys(target.query for target in scaling.targets if target.query)
        return Question(state.service, scaling, {} if told else endpoints, tuple(queries))

    def decide(
        self, question: Question, answer: Answer, ledger: Ledger, now: float
    ) -> Recommendation | None:
        """What one sample recommends, if it is another number than the wanted one; remembers it in any case."""
        state, scaled = ledger.services.get(question.service), self.of_service.get(question.service)
        if scaled is None:
            return None
        scaled.is_asking = False
        if state is None or state.spec.scaling != question.scaling or state.is_ending:
            return None
        scaled.problems = answer.problems
        ready = _ready(ledger, state)
        load = self._load(question, answer, ready, now)
        _note_start(scaled, ready, state.spec.ready.within_s)
        predicted = _predicted(scaled, question.scaling, load, now)
        wanted = state.wanted if scaled.asked is None else scaled.asked
        replicas = Replicas(wanted, len(ready), tuple(speed_of(ledger, each) for each in ready))
        found, scaled.history = recommend(
            question.scaling, state.spec.replicas, replicas, load, scaled.history, now, predicted,
        )  # fmt: skip
        scaled.latest = found
        if found.replicas == wanted:
            return None
        scaled.asked, scaled.asked_at = found.replicas, now
        return found

    def _load(self, question: Question, answer: Answer, ready: list[JobState], now: float) -> Load:
        """Values of all targets, the rate of arrivals, and requests that are there.

        What routers told is as of now for as long as a report counts: one comes every few seconds, and samples may be
        taken more often.
        """
        routed = self.routers.load(question.service, now)
        engine = self.engines.take(question.endpoints, answer.figures, now)
        scaled = self.of_service[question.service]
        scaled.tokens_per_s = engine.tokens_per_s
        if routed is not None:
            present = Measured(routed.in_flight + routed.queued, routed.at)
            scaled.rate = _arriving(routed.rate, present, scaled)
            scaled.present = present
        else:
            known = engine.concurrency
            scaled.present = None if known is None else Measured(known, now)
            scaled.rate = None if engine.rate is None else Measured(engine.rate, now)

        def lately(measured: Measured | None) -> Measured | None:
            return measured if measured is None or routed is None else Measured(measured.value, now)

        def value(target: ScaleTarget) -> Measured | None:
            if target.query:
                found = answer.queries.get(target.query)
                return None if found is None else Measured(found, now)
            if target.metric == "gpu_use":
                return self.gpu_use.of(ready)
            if target.metric == "rate":
                return lately(scaled.rate)
            if routed is not None:
                told = _of_router(target.metric, routed)
                if told is not None:
                    return Measured(told, now)
            told = _of_engine(target.metric, engine)
            return None if told is None else Measured(told, engine.at_s)

        values = tuple(map(value, question.scaling.targets))
        return Load(values, lately(scaled.rate), lately(scaled.present))


def _note_start(scaled: Scaled, ready: list[JobState], within_s: float) -> None:
    """Remember how long the newest replica took to be ready.

    Only the first time that it is seen ready is that: later it may have become ready again. A longer time than within_s
    is none of a start either.
    """
    newest = max(ready, key=lambda each: each.running_at or 0.0, default=None)
    if newest is None or newest.replica.since is None or not newest.running_at:
        return
    took_s = newest.replica.since - newest.running_at
    if newest.running_at > scaled.newest_at and took_s <= within_s:
        scaled.start_s = max(0.0, took_s)
    scaled.newest_at = max(scaled.newest_at, newest.running_at)


def _autoscaled(ledger: Ledger) -> Iterator[ServiceState]:
    for state in ledger.services.values():
        if state.spec.scaling.targets and state.is_live and not state.is_ending:
            yield state


def _attempts(ledger: Ledger, state: ServiceState) -> Iterator[AttemptKey]:
    return ((each.job, each.attempt) for each in live_replicas(ledger, state))


def _ready(ledger: Ledger, state: ServiceState) -> list[JobState]:
    return [each for each in live_replicas(ledger, state) if takes_requests(each)]


def _arriving(ended: float, present: Measured, scaled: Scaled) -> Measured | None:
    """Requests a second that arrived: those that ended, and by how many more are there than at the last sample."""
    before = scaled.present
    if before is None or present.at_s <= before.at_s:
        same = before is not None and present.at_s == before.at_s
        return scaled.rate if same else Measured(ended, present.at_s)
    more = (present.value - before.value) / (present.at_s - before.at_s)
    return Measured(max(0.0, ended + more), present.at_s)


def _of_router(metric: str, load: ServiceLoad) -> float | None:
    """What routers tell of a metric. Where no request ended, and none is there, there is no time to answer: 0."""
    if metric in LATENCIES:
        told: float | None = getattr(load, f"{metric}_s")
        is_idle = not (load.requests or load.in_flight or load.queued)
        return 0.0 if told is None and is_idle else told
    return {
        "concurrency": load.concurrency,
        "queue": load.queued,
        "rate": load.rate,
        "tokens_per_s": load.tokens_per_s,
    }.get(metric)


def _of_engine(metric: str, load: EngineLoad) -> float | None:
    if metric in LATENCIES:
        told: float | None = getattr(load, f"{metric}_s")
        return told
    return {
        "concurrency": load.concurrency,
        "queue": load.waiting,
        "rate": load.rate,
        "tokens_per_s": load.tokens_per_s,
    }.get(metric)


def _predicted(scaled: Scaled, scaling: Autoscaling, load: Load, now: float) -> float:
    """How many replicas the load needs by the time at which one that starts now is ready."""
    if not scaling.predict:
        return 0.0
    need = shared_need(scaling.targets, load.without_stale(scaling.every_s, now))
    if need is not None:
        scaled.week = scaled.week.noted(now, need)
    return scaled.week.predicted(now, now + scaled.start_s + scaling.every_s)
