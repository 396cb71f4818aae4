"""Values that are made quickly are what the dataclass of the same fields is: frozen, equal, with the same signature."""

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any

import pytest

from gantree.model.events import EVENTS
from gantree.model.fact_kinds import FACTS
from gantree.model.jobs import Job
from gantree.model.orders import ORDERS, MemberLaunch
from gantree.model.placements import MemberPlacement, Placement
from gantree.model.values import MADE_HERE, quick


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    id: str
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Plain(Base):
    job: str
    amounts: tuple[int, ...] = (1, 2)
    cell_view: int = field(default=3, kw_only=True)

    def __post_init__(self) -> None:
        assert self.epoch >= 0, "before the big bang"


def told(kind: type[Any]) -> list[Any]:
    return [
        kind("a", id="x"),
        kind(job="a", amounts=(), id="y", epoch=2, cell_view=4),
        replace(kind("a", id="x"), cell_view=9),
        copy.copy(kind("b", (7,), id="z")),
    ]


@pytest.fixture
def swift() -> type[Any]:
    """The same class, made quickly."""
    return quick(dataclass(frozen=True, slots=True)(type("Swift", (Base,), dict(_NAMESPACE))))


_NAMESPACE = {
    "__annotations__": {"job": str, "amounts": tuple[int, ...], "cell_view": int},
    "amounts": (1, 2),
    "cell_view": field(default=3, kw_only=True),
    "__post_init__": Plain.__post_init__,
}


def test_it_has_the_fields_and_the_signature_of_the_class_that_it_was(swift: type[Any]) -> None:
    assert inspect.signature(swift) == inspect.signature(Plain)
    for plain, quickly in zip(told(Plain), told(swift), strict=True):
        assert type(quickly) is swift
        assert [getattr(quickly, each.name) for each in fields(swift)] == [
            getattr(plain, each.name) for each in fields(Plain)
        ]
    with pytest.raises(AssertionError, match="before the big bang"):
        swift("a", id="x", epoch=-1)
    with pytest.raises(TypeError):
        swift("a")


def test_nothing_of_it_can_be_set_or_deleted(swift: type[Any]) -> None:
    value = swift("a", id="x")
    with pytest.raises(FrozenInstanceError):
        value.job = "b"
    with pytest.raises(FrozenInstanceError):
        del value.job
    assert value == swift("a", id="x")
    assert hash(value) == hash(swift("a", id="x"))
    assert not hasattr(value, "__dict__")


QUICK = [
    kind
    for kind in (
        *EVENTS.values(),
        *FACTS.values(),
        *ORDERS.values(),
        Job,
        MemberLaunch,
        MemberPlacement,
        Placement,
    )
    if vars(kind)["__init__"].__code__.co_filename == MADE_HERE
]


def test_what_every_job_brings_is_made_quickly() -> None:
    names = {kind.__name__ for kind in QUICK}
    assert {
        "JobSubmitted",
        "JobAccepted",
        "GangPlaced",
        "StartGang",
        "Job",
        "MemberLaunch",
    } <= names


@pytest.mark.parametrize("kind", QUICK)
def test_each_is_frozen_and_survives_being_sent(kind: Any) -> None:
    value = kind(**dict.fromkeys((each.name for each in fields(kind)), "a"))
    assert type(value) is kind
    assert pickle.loads(pickle.dumps(value)) == value
    with pytest.raises(FrozenInstanceError):
        setattr(value, fields(kind)[0].name, "b")


def test_a_class_with_default_factories_is_refused() -> None:
    @dataclass(frozen=True, slots=True)
    class Made:
        names: list[str] = field(default_factory=list)

    with pytest.raises(AssertionError):
        quick(Made)
