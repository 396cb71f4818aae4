"""Variants: runs with the same policy and options, which differ in their seed alone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gantree.model.errors import BadInput
from gantree.sim.compare.directories import Run


@dataclass(frozen=True, slots=True)
class Variant:
    """Runs of one policy with one set of options. name tells it from the others; runs are in the order given."""

    name: str
    runs: tuple[Run, ...]

    @property
    def seeds(self) -> list[int | None]:
        """The seed of each run."""
        return [run.seed for run in self.runs]

    @property
    def inputs(self) -> Mapping[str, Any]:
        """What was run, of the first run."""
        return self.runs[0].inputs


def variants_of(runs: Sequence[Run]) -> list[Variant]:
    """The variants in the order of their first runs. Raises BadInput for two runs that are the same run."""
    by_key: dict[str, list[Run]] = {}
    for run in runs:
        by_key.setdefault(_key(run), []).append(run)
    for same in by_key.values():
        seen: dict[int | None, Run] = {}
        for run in same:
            if run.seed in seen:
                raise BadInput(
                    f"{run.path}: is of the same policy, options and seed as {seen[run.seed].path}; "
                    "allowed: each run once"
                )
            seen[run.seed] = run
    names = _names([same[0].inputs for same in by_key.values()])
    return [Variant(name, tuple(same)) for name, same in zip(names, by_key.values(), strict=True)]


def _key(run: Run) -> str:
    policy = run.inputs["policy"]
    return repr((policy["name"], policy["digest"], sorted(_flat(run.inputs["options"]))))


def _names(inputs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The policy's name; with the options that differ, and at last the digest, where that is not enough."""
    names = [str(each["policy"]["name"]) for each in inputs]
    options = [dict(_flat(each["options"])) for each in inputs]
    differing = sorted(
        name
        for name in {name for told in options for name in told}
        if len({told.get(name) for told in options}) > 1
    )
    if differing:
        told = [", ".join(f"{n}={each[n]}" for n in differing if n in each) for each in options]
        names = [
            f"{name} ({text})" if text else name for name, text in zip(names, told, strict=True)
        ]
    return [
        f"{name} [{each['policy']['digest'][:6]}]" if names.count(name) > 1 else name
        for name, each in zip(names, inputs, strict=True)
    ]


def _flat(options: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value)
