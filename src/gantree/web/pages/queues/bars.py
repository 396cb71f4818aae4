"""Bars for the numbers of a queue: a resource from zero to its largest relevant amount, with marks. Pure.

Lengths are parts of the bar's width, between 0 and 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
GPUS = "gpus"


@dataclass(frozen=True, slots=True)
class AmountBar:
    """One resource of a queue. own is used and not borrowed, borrowed follows it, lent is at the end of the guarantee.

    guarantee and limit are None where there is none.
    """

    resource: str
    used: float
    borrowed: float
    lent: float
    guarantee: float | None
    limit: float | None
    own_part: float
    borrowed_part: float
    lent_part: float
    guarantee_at: float | None
    limit_at: float | None

    @property
    def words(self) -> str:
        """The bar as text, for screen readers."""
        parts = [f"{_amount(self.used)} in use"]
        parts += [f"{_amount(self.borrowed)} of it borrowed"] if self.borrowed else []
        parts += [f"{_amount(self.guarantee)} guaranteed"] if self.guarantee is not None else []
        parts += [f"{_amount(self.lent)} of it lent"] if self.lent else []
        parts += [f"at most {_amount(self.limit)}"] if self.limit is not None else []
        return f"{self.resource}: " + ", ".join(parts)


@dataclass(frozen=True, slots=True)
class ShareBar:
    """Real share over the half-life against the fair one; both parts of the cluster, and of the bar."""

    real: float
    fair: float

    @property
    def words(self) -> str:
        """Both in one sentence."""
        return f"used {100 * self.real:.1f} % recently, fair share {100 * self.fair:.1f} %"


def amount_bars(row: Json, of_cluster: Json) -> tuple[AmountBar, ...]:
    """The resources of a row of the queue tree: GPUs, then those that are guaranteed to it or limited.

    Where nothing limits it, a bar is as long as what the cluster has.
    """
    named = dict.fromkeys((*row["guarantee"], *row["used"], *row["limit"], *row["lent"]))
    bounded = set(row["used"]) if row["kind"] == "cluster" else {*row["guarantee"], *row["limit"]}
    shown = [name for name in named if name == GPUS or name in bounded]
    ordered = sorted(shown, key=lambda name: (name != GPUS, name))
    return tuple(_bar(row, name, of_cluster["limit"].get(name, 0.0)) for name in ordered)


def _bar(row: Json, name: str, of_cluster: float) -> AmountBar:
    used, borrowed = row["used"].get(name, 0.0), row["borrowed"].get(name, 0.0)
    lent = row["lent"].get(name, 0.0)
    guarantee, limit = row["guarantee"].get(name), row["limit"].get(name)
    most = max(used, guarantee or 0.0, of_cluster if limit is None else limit) or 1.0
    return AmountBar(
        name,
        used,
        borrowed,
        lent,
        guarantee,
        limit,
        own_part=(used - borrowed) / most,
        borrowed_part=borrowed / most,
        lent_part=min(lent, guarantee or 0.0) / most,
        guarantee_at=None if guarantee is None else guarantee / most,
        limit_at=None if limit is None else limit / most,
    )


def share_bars(rows: Sequence[Json]) -> list[ShareBar | None]:
    """For each row its real and its fair part of the cluster: weights count among those below the same parent.

    A row whose parent is not told counts as one of its nearest relatives above. None for the cluster.
    """
    parents = _parents(rows)
    fair: list[float] = []
    for number, row in enumerate(rows):
        parent = parents[number]
        if parent is None:
            fair.append(1.0)
            continue
        siblings = sum(other["weight"] for at, other in enumerate(rows) if parents[at] == parent)
        fair.append(fair[parent] * row["weight"] / siblings if siblings else 0.0)
    return [
        None if row["kind"] == "cluster" else ShareBar(row["used_part"], fair[number])
        for number, row in enumerate(rows)
    ]


def _parents(rows: Sequence[Json]) -> list[int | None]:
    """The row that each row is in: the nearest before it that is less deep."""
    path: list[int] = []
    found: list[int | None] = []
    for number, row in enumerate(rows):
        del path[row["depth"] :]
        found.append(path[-1] if path else None)
        path.append(number)
    return found


def _amount(value: float | None) -> str:
    return "none" if value is None else f"{value:,.6g}"
