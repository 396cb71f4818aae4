"""Runs experiments on the cores of this machine and writes their pages."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from os import cpu_count
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from gantree.model.errors import BadInput
from gantree.sim.experiments.experiment import Bench, Experiment, Outcome, Serial
from gantree.sim.experiments.page import document, index, markdown

FIRST_LINE = "| experiment |"
"""How the table of experiments begins."""

Item = TypeVar("Item")
Found = TypeVar("Found")

NO_OPTIONS: Mapping[str, str] = MappingProxyType({})


class Cores:
    """Runs items in processes, one a core. Results do not depend on how many there are."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def map(self, function: Callable[[Item], Found], items: Iterable[Item]) -> list[Found]:
        """Return the results, in the order of the items."""
        return list(self._pool.map(function, items))


def run(
    experiment: Experiment,
    seeds: tuple[int, ...],
    processes: int | None = None,
    options: Mapping[str, str] = NO_OPTIONS,
) -> Outcome:
    """Run an experiment with these seeds and options on so many processes (None: all cores)."""
    processes = processes or cpu_count() or 1
    if processes == 1:
        return experiment.run(Bench(Serial(), seeds, options))
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return experiment.run(Bench(Cores(pool), seeds, options))


def write(experiment: Experiment, outcome: Outcome, out: Path) -> None:
    """Write NAME.md, NAME.json and the plots into a directory. Raises BadInput where that cannot be."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{experiment.name}.md").write_text(markdown(experiment, outcome), encoding="utf-8")
        text = json.dumps(document(experiment, outcome), indent=1) + "\n"
        (out / f"{experiment.name}.json").write_text(text, encoding="utf-8")
        for plot in outcome.plots:
            (out / f"{plot.name}.svg").write_text(plot.svg, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{out}: results cannot be written there: {error.strerror}") from error


def write_index(found: Sequence[tuple[Experiment, Outcome]], out: Path) -> None:
    """Put the table of experiments into README.md of a directory, in place of the one there. BadInput as `write`."""
    path = out / "README.md"
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else "# Experiments\n\n"
        before, _, after = text.partition(FIRST_LINE)
        rest = after.partition("\n\n")[2]
        table = index(found)
        path.write_text(
            f"{before.rstrip()}\n\n{table}" + (f"\n{rest}" if rest else ""), encoding="utf-8"
        )
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {error.strerror}") from error
