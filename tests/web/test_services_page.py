"""The pages of services: what is drawn of replicas over time and in space, and what a request costs."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gantree.control.requests.read_view import ReadView
from gantree.core.ledger.ledger import Ledger
from gantree.journal.contract import RecordedFact
from gantree.model.events import GangStarted, ReplicaReadinessChanged, ServiceSubmitted
from gantree.model.facts import AttemptEnded, Fact
from gantree.model.phases import Phase
from gantree.model.replicas import Endpoint
from gantree.model.service_facts import ReplicaReadinessNoted, ServiceEnding, ServiceScaled
from gantree.model.services import ReplicaCount, ServiceSpec
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from gantree.topology.hardware.prices import LIST_PRICES
from gantree.web.pages.services.chart import replicas_chart
from gantree.web.pages.services.cost import add_cost, cost
from gantree.web.pages.services.history import LATELY_S, ServiceHistory, history_of
from gantree.web.pages.services.map import replica_map
from gantree.web.pages.services.replicas import held, replica_state

HOUR = 3600.0


def served(replicas: int = 2, gpus: int = 4) -> Stage:
    """A service on one node of 8 GPUs, whose first replica is ready."""
    stage = Stage(cluster(leaves=1, nodes=1))
    spec = ServiceSpec("chat", job("chat", 1, gpus), ReplicaCount(replicas, replicas))
    stage.tell(ServiceSubmitted, service="chat", spec=spec)
    at = (Endpoint("worker", 0, "127.0.0.1", 40001),)
    stage.tell(GangStarted, job="chat.1", attempt=1, endpoints=at)
    stage.tell(ReplicaReadinessChanged, job="chat.1", attempt=1, ready=True)
    return stage


def view_of(ledger: Ledger, facts: Sequence[Fact], now: float) -> ReadView:
    """A view of a ledger with these facts on record, of which the first is number 1."""
    recorded = [RecordedFact(seq, fact) for seq, fact in enumerate(facts, 1)]

    def about(name: str, after: int, to: int) -> list[RecordedFact]:
        named = [each for each in recorded if getattr(each.fact, "service", None) == name]
        return [each for each in named if after < each.seq <= to]

    journal = SimpleNamespace(
        compacted_to=lambda: 0,
        last_fact=lambda: len(recorded),
        facts_before=lambda at: sum(each.fact.at < at for each in recorded),
        facts_about=about,
        facts_of=lambda kind, after: [
            each for each in recorded if type(each.fact) is kind and each.seq > after
        ],
    )
    return cast(ReadView, SimpleNamespace(ledger=ledger, journal=journal, now=now))


def history(ledger: Ledger, facts: Sequence[Fact], now: float) -> ServiceHistory:
    return history_of(view_of(ledger, facts, now), ledger.services["chat"])


def scaled(at: float, before: int, replicas: int, **more: Any) -> ServiceScaled:
    return ServiceScaled(at=at, service="chat", before=before, replicas=replicas, **more)


def ready(at: float, number: int, is_ready: bool = True) -> ReplicaReadinessNoted:
    return ReplicaReadinessNoted(at=at, job=f"chat.{number}", attempt=1, ready=is_ready)


def ended(at: float, name: str) -> AttemptEnded:
    return AttemptEnded(at=at, job=name, attempt=1, exit_code=0)


def test_wanted_and_ready_replicas_are_what_the_facts_say() -> None:
    stage = served()
    told = history(stage.scheduler.ledger, stage.facts, stage.now)
    assert [number for _, number in told.wanted] == [2]
    assert [number for _, number in told.ready] == [0, 1]
    assert [row["kind"] for row in told.rows] == ["ServiceAccepted"]


def test_a_replica_is_not_ready_after_its_attempt_and_those_of_others_do_not_count() -> None:
    ledger = served().scheduler.ledger
    other = ReplicaReadinessNoted(at=55, job="chatty.1", attempt=1, ready=True)
    facts = [
        ready(10, 7), ended(20, "chat.7"), ended(30, "chat.7"), ended(40, "chat.x"), other,
        ready(60, 8), ready(70, 8, False), ready(80, 8),
    ]  # fmt: skip
    told = history(ledger, facts, 100.0)
    steps = [(at, number) for at, number in told.ready]
    assert steps == [(0.0, 1), (10, 2), (20, 1), (60, 2), (70, 1), (80, 2)], "chat.1 is ready"


def test_one_that_ceases_to_be_ready_was_so_before_the_day_on_record() -> None:
    now = LATELY_S + 100.0
    told = history(served().scheduler.ledger, [ready(1, 5), ready(now - 50, 5, False)], now)
    assert told.since == 100.0
    assert told.ready == ((100.0, 2), (now - 50, 1))


def test_before_the_first_change_so_many_were_wanted_as_it_changed() -> None:
    now = LATELY_S + 1000.0
    facts = [
        scaled(1, 1, 3),
        scaled(now - 60, 3, 5, reason="concurrency 12 of 8"),
        scaled(now, 5, 2),
    ]
    told = history(served().scheduler.ledger, facts, now)
    assert told.wanted == ((1000.0, 3), (now - 60, 5), (now, 2))
    assert "from 3 to 5 replicas: concurrency 12 of 8" in told.rows[1]["sentence"]
    ending = history(
        served().scheduler.ledger, [*facts, ServiceEnding(service="chat", reason="", at=now)], now
    )
    assert ending.wanted[-1] == (now, 0)
    quiet = history(served().scheduler.ledger, [], now)
    assert quiet.wanted == ((1000.0, 2),), "nothing on record: as many as now"


def test_the_chart_has_a_step_for_each_change() -> None:
    told = ServiceHistory(0.0, [], ((0.0, 1), (50.0, 4)), ((0.0, 0), (60.0, 4), (90.0, 2)))
    chart = replicas_chart(told, 100.0)
    assert chart is not None
    ready, wanted = chart.shapes
    assert wanted.path == "M62.0,128.5 307.0,128.5 307.0,10.0 552.0,10.0"
    assert ready.path.startswith(
        "M62.0,168.0 62.0,168.0 356.0,168.0 356.0,10.0 503.0,10.0 503.0,89.0"
    )
    assert [text for _, text in chart.y_ticks] == ["0", "1", "2", "3", "4"]
    assert chart.words == "2 ready of 4 wanted; at most 4 were wanted"


def test_what_is_on_nobodys_record_is_not_drawn() -> None:
    """Of a GangService, when its pods were ready; of pods of other controllers, anything."""
    chart = replicas_chart(ServiceHistory(0.0, [], ((0.0, 1), (50.0, 4)), ()), 100.0)
    assert chart is not None
    assert [shape.name for shape in chart.shapes] == ["wanted"]
    assert chart.words == "4 wanted; at most 4 were wanted"
    assert replicas_chart(ServiceHistory(0.0, [], (), ()), 100.0) is None


@pytest.mark.parametrize(
    ("highest", "texts"), [(0, "0 1"), (1, "0 1"), (7, "0 2 4 6"), (40, "0 10 20 30 40")]
)
def test_numbers_of_replicas_are_whole_and_few(highest: int, texts: str) -> None:
    chart = replicas_chart(ServiceHistory(0.0, [], ((0.0, highest),), ((0.0, 0),)), 5.0)
    assert chart is not None
    assert [text for _, text in chart.y_ticks] == texts.split()
    assert not re.search("nan|inf", " ".join(shape.path for shape in chart.shapes))


def test_the_map_says_which_replica_is_on_which_gpu() -> None:
    ledger = served(replicas=3, gpus=3).scheduler.ledger
    (node,) = replica_map(ledger, ledger.services["chat"])["nodes"]
    cells = [[(each["number"], each["look"]) for each in cell] for cell in node["cells"]]
    counted = Counter(str(cell) for cell in cells)
    assert counted == {"[(1, 'mine')]": 3, "[(2, 'coming')]": 3, "[]": 2}, "3 has no room"


def test_a_part_of_a_gpu_is_a_cell_of_several_replicas() -> None:
    stage = Stage(cluster(leaves=1, nodes=1))
    whole = job("chat", 1, 1)
    (role,) = whole.roles
    half = replace(role, shape=replace(role.shape, gpus=0, gpu_share=0.5, neighbours=True))
    spec = ServiceSpec("chat", replace(whole, roles=(half,)), ReplicaCount(2, 2))
    stage.tell(ServiceSubmitted, service="chat", spec=spec)
    ledger = stage.scheduler.ledger
    (node,) = replica_map(ledger, ledger.services["chat"])["nodes"]
    assert [each["number"] for each in node["cells"][0]] == [1, 2]


def test_what_replicas_hold_has_a_price() -> None:
    stage = served(replicas=3, gpus=3)
    ledger = stage.scheduler.ledger
    states = [replica_state(ledger.jobs[f"chat.{number}"]) for number in (1, 2, 3)]
    assert states == ["ready", "starting", "pending"]
    found = held(ledger, ledger.services["chat"], LIST_PRICES)
    quote = LIST_PRICES.quote("H100-80GB", "on_demand")
    assert quote is not None
    assert found == {"held_gpus": 6, "USD_per_hour": pytest.approx(6 * quote.USD_per_hour)}
    assert stage.state("chat.3").phase is Phase.PENDING


def test_a_request_costs_what_the_hour_costs_over_its_requests() -> None:
    assert cost(36.0, 2.0) == pytest.approx(0.005)
    assert (cost(None, 2.0), cost(36.0, 0.0), cost(36.0, None)) == (None, None, None)
    load = {"rate": 10.0, "tokens_per_s": 1000.0}
    rows: list[dict[str, Any]] = [
        {"USD_per_hour": HOUR, "load": load}, {"USD_per_hour": HOUR, "load": None},
    ]  # fmt: skip
    add_cost(rows)
    assert (rows[0]["USD_per_request"], rows[0]["USD_per_million_tokens"]) == (0.1, 1000.0)
    assert (rows[1]["USD_per_request"], rows[1]["USD_per_million_tokens"]) == (None, None)
