"""The main figures of all variants, and how they differ from the first. What people and programs get is made of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gantree.sim.compare.intervals import METHOD, NO_INTERVAL, Estimate, difference, estimate
from gantree.sim.compare.variants import Variant

FIGURES = (
    "finished", "wait_s", "jct_s", "makespan_s", "gpu_utilisation", "goodput", "stretch", "ettr", "domains_spanned",
    "free_gpus_in_whole_domains", "jain_index", "preemptions", "failures", "gpu_hours_lost", "energy_kWh", "cost_USD",
)  # fmt: skip
"""Keys of summary.json; of an object, each of its numbers is a figure."""

DIGITS = 6


@dataclass(frozen=True, slots=True)
class Entry:
    """One figure of one variant: over its seeds, and less the first variant's; None where nothing is known."""

    value: Estimate | None
    difference: Estimate | None
    percent: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """All figures of all variants: entries[figure][variant]."""

    variants: tuple[Variant, ...]
    figures: tuple[str, ...]
    entries: tuple[tuple[Entry, ...], ...]

    @property
    def note(self) -> str:
        """How intervals were made, or why there are none."""
        seeds = max(len(variant.runs) for variant in self.variants)
        return METHOD if seeds > 1 else NO_INTERVAL

    def document(self) -> dict[str, Any]:
        """The object of `gantree compare --json`."""
        inputs = self.variants[0].inputs
        return {
            "cluster": inputs["cluster"],
            "trace": inputs["trace"],
            "method": self.note,
            "variants": [_variant(variant) for variant in self.variants],
            "figures": [
                {"name": figure, "values": [_entry(entry) for entry in entries]}
                for figure, entries in zip(self.figures, self.entries, strict=True)
            ],
        }


def compare(variants: Sequence[Variant]) -> Comparison:
    """Compare variants with the first of them, figure by figure."""
    values = [
        {run.seed: dict(_numbers(run.summary)) for run in variant.runs} for variant in variants
    ]
    figures = tuple(
        dict.fromkeys(name for of_seed in values for told in of_seed.values() for name in told)
    )
    ordered = tuple(sorted(figures, key=lambda figure: FIGURES.index(figure.split()[0])))
    entries = tuple(_row(figure, values) for figure in ordered)
    return Comparison(tuple(variants), ordered, entries)


def _row(
    figure: str, values: Sequence[Mapping[int | None, Mapping[str, float]]]
) -> tuple[Entry, ...]:
    told = [
        {seed: each[figure] for seed, each in of_seed.items() if figure in each}
        for of_seed in values
    ]
    entries = []
    for number, of_seed in enumerate(told):
        less = difference(told[0], of_seed) if number else None
        base = estimate([told[0][seed] for seed in told[0] if seed in of_seed])
        percent = 100 * less.mean / base.mean if less and base and base.mean else None
        entries.append(Entry(estimate(list(of_seed.values())), less, percent))
    return tuple(entries)


def _numbers(summary: Mapping[str, Any]) -> list[tuple[str, float]]:
    """The figures of a summary with their names, "wait_s mean"; None is none."""
    found = []
    for key in FIGURES:
        told = summary.get(key)
        parts = told.items() if isinstance(told, Mapping) else [("", told)]
        for part, value in parts:
            if isinstance(value, int | float) and not isinstance(value, bool):
                found.append((f"{key} {part}".strip(), float(value)))
    return found


def _variant(variant: Variant) -> dict[str, Any]:
    return {
        "name": variant.name,
        "policy": variant.inputs["policy"],
        "options": variant.inputs["options"],
        "seeds": variant.seeds,
        "directories": [str(run.path) for run in variant.runs],
    }


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "value": _estimate(entry.value),
        "difference": _estimate(entry.difference),
        "percent": None if entry.percent is None else round(entry.percent, DIGITS),
    }


def _estimate(told: Estimate | None) -> dict[str, Any] | None:
    if told is None:
        return None
    return {
        "mean": round(told.mean, DIGITS),
        "low": None if told.low is None else round(told.low, DIGITS),
        "high": None if told.high is None else round(told.high, DIGITS),
        "seeds": told.count,
    }
