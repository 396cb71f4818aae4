"""What an experiment is: a claim of the field, a set-up, a result, and a verdict on each part of the claim."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Found = TypeVar("Found")

Cell = str | int | float | None
"""A cell of a table: a text as it is, a number, None for nothing."""


class Judgement(StrEnum):
    """What an experiment says of a claim."""

    HOLDS = "holds"
    PARTLY = "holds in part"
    MISSED = "missed"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A part of a claim, what was measured, the judgement, and why where it does not hold."""

    claim: str
    measured: str
    judgement: Judgement
    why: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a result. Numbers are printed with at most four digits that matter."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot: an SVG, what it shows, and the name of its file without the ending."""

    name: str
    caption: str
    svg: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an experiment found. notes are sentences with figures."""

    verdicts: tuple[Verdict, ...]
    tables: tuple[Table, ...] = ()
    plots: tuple[Plot, ...] = ()
    notes: tuple[str, ...] = ()


class Workers(Protocol):
    """Runs a function of a module on items, on as many cores as there are; results in the order of the items."""

    def map(self, function: Callable[[Item], Found], items: Iterable[Item]) -> list[Found]:
        """Return the results."""
        ...


class Serial:
    """Runs one after the other in this process."""

    def map(self, function: Callable[[Item], Found], items: Iterable[Item]) -> list[Found]:
        """Return the results."""
        return [function(item) for item in items]


@dataclass(frozen=True, slots=True)
class Bench:
    """What an experiment runs on: cores, the seeds to repeat it with, and options of its own."""

    workers: Workers = field(default_factory=Serial)
    seeds: tuple[int, ...] = (1, 2, 3)
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Experiment:
    """One experiment: who claims what, what is compared with what on which inputs, and the function that does it.

    notes are paragraphs: what does not follow from the claim's own numbers, and what the set-up leaves out.
    """

    name: str
    title: str
    claim: str
    source: str
    set_up: str
    notes: tuple[str, ...]
    run: Callable[[Bench], Outcome]


def at_least(claim: str, measured: float, needed: float, unit: str = "", why: str = "") -> Verdict:
    """Return the verdict on a claim that a figure reaches a bound."""
    judgement = Judgement.HOLDS if measured >= needed else Judgement.MISSED
    text = f"{measured:.3g}{unit}"
    return Verdict(claim, text, judgement, "" if judgement is Judgement.HOLDS else why)


def at_most(claim: str, measured: float, allowed: float, unit: str = "", why: str = "") -> Verdict:
    """Return the verdict on a claim that a figure stays below a bound."""
    judgement = Judgement.HOLDS if measured <= allowed else Judgement.MISSED
    text = f"{measured:.3g}{unit}"
    return Verdict(claim, text, judgement, "" if judgement is Judgement.HOLDS else why)


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean of at least one value."""
    return sum(values) / len(values)
