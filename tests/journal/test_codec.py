"""The codec: every kind comes back equal, old versions are brought up to date, nothing is guessed."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.journal.encoding.codec import EVENT_CODEC, FACT_CODEC, ORDER_CODEC, Codec, Encoded
from gantree.model.cluster import Allocation, Cluster, Link, Machine, Node
from gantree.model.errors import JournalError
from gantree.model.events import EVENTS, Event
from gantree.model.fact_kinds import FACTS
from gantree.model.facts import Fact, GpuUseNoted
from gantree.model.gpu_activity import NOTHING_DRAWN, MeasuredUse
from gantree.model.orders import ORDERS, Order
from support.examples import examples

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)  # surrogates are refused
NUMBERS = st.floats(allow_nan=False)  # a NaN equals nothing
MACHINES = st.builds(
    Machine,
    name=TEXTS,
    gpus=st.integers(0, 9),
    gpu=st.none() | TEXTS,
    memory_GiB=st.none() | NUMBERS,
)
CLUSTERS = st.builds(
    Cluster,
    name=TEXTS,
    tiers=st.tuples(TEXTS, TEXTS),
    machines=st.dictionaries(TEXTS, MACHINES, max_size=2).map(MappingProxyType),
    nodes=st.tuples(st.builds(Node, name=TEXTS, machine=TEXTS, at=st.tuples(TEXTS))),
    links=st.dictionaries(
        TEXTS, st.builds(Link, NUMBERS, NUMBERS, st.none() | NUMBERS), max_size=2
    ),
    allocations=st.tuples(
        st.builds(Allocation, job=TEXTS, node=TEXTS, gpus=st.tuples(st.integers()))
    ),
)


@pytest.fixture(autouse=True, scope="module")
def strategies() -> Iterator[None]:
    for plain, strategy in ((str, TEXTS), (float, NUMBERS), (Cluster, CLUSTERS)):
        st.register_type_strategy(plain, strategy)
    yield


@settings(max_examples=examples(25), deadline=None)
@given(st.sampled_from(list(EVENTS.values())).flatmap(st.from_type))
def test_every_event_comes_back_equal(event: Event) -> None:
    assert EVENT_CODEC.decode(EVENT_CODEC.encode(event)) == event


@settings(max_examples=examples(25), deadline=None)
@given(st.sampled_from(list(FACTS.values())).flatmap(st.from_type))
def test_every_fact_comes_back_equal(fact: Fact) -> None:
    assert FACT_CODEC.decode(FACT_CODEC.encode(fact)) == fact


@settings(max_examples=examples(25), deadline=None)
@given(st.sampled_from(list(ORDERS.values())).flatmap(st.from_type))
def test_every_order_comes_back_equal(order: Order) -> None:
    assert ORDER_CODEC.decode(ORDER_CODEC.encode(order)) == order


@dataclass(frozen=True, slots=True)
class Moved:
    """A fact in its third version: version 1 said `x`, version 2 `metres`, version 3 a unit as well."""

    VERSION: ClassVar[int] = 3
    distance: float
    unit: str


def renamed(data: dict[str, Any]) -> dict[str, Any]:
    return {"metres": data["x"]}


def with_unit(data: dict[str, Any]) -> dict[str, Any]:
    return {"distance": data["metres"], "unit": "m"}


MOVED: Codec[Moved] = Codec({"Moved": Moved}, {("Moved", 1): renamed, ("Moved", 2): with_unit})


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (1, {"x": 2.5}),
        (2, {"metres": 2.5}),
        (3, {"distance": 2.5, "unit": "m"}),
    ],
)
def test_old_versions_climb_one_step_at_a_time(version: int, data: dict[str, Any]) -> None:
    assert MOVED.decode(Encoded("Moved", version, json.dumps(data))) == Moved(2.5, "m")


def test_use_that_was_told_with_the_names_of_its_fields_is_read() -> None:
    """As a gantree wrote it that knew of no energy."""
    used = {"job": "j", "attempt": 2, "useful_gpu_s": 3.5, "idle_gpu_s": 0.5, "ran": [[1.0, 2.0]]}
    data = {"at": 9.0, "since": 1.0, "until": 9.0, "gangs": [used]}
    fact = FACT_CODEC.decode(Encoded("GpuUseNoted", 1, json.dumps(data)))
    assert isinstance(fact, GpuUseNoted)
    assert fact.gangs == (MeasuredUse("j", 2, 3.5, 0.5, ((1.0, 2.0),), NOTHING_DRAWN),)
    named = json.loads(FACT_CODEC.encode(fact).data)["gangs"]
    assert named == [["j", 2, 3.5, 0.5, [[1.0, 2.0]], [0.0, 0.0, 0.0, 0.0]]]


def test_what_is_damaged_is_named_by_its_field() -> None:
    with pytest.raises(JournalError, match="Moved in the journal is damaged: unit: Field required"):
        MOVED.decode(Encoded("Moved", 3, '{"distance": 1}'))


@pytest.mark.parametrize(
    "encoded",
    [
        Encoded("Moved", 4, "{}"),
        Encoded("Sung", 1, "{}"),
        Encoded("Moved", 1, "{}"),
        Encoded("Moved", 1, "not json"),
        Encoded("Moved", 3, '{"distance": 1}'),
        Encoded("Moved", 0, "{}"),
    ],
)
def test_what_cannot_be_read_is_a_journal_error(encoded: Encoded) -> None:
    with pytest.raises(JournalError):
        MOVED.decode(encoded)
