"""Directories of results as `gantree simulate` writes them: read, checked, and that they belong together."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gantree.model.errors import BadInput

SUMMARY, TIMELINE, JOBS = "summary.json", "timeline.csv", "jobs.csv"


@dataclass(frozen=True, slots=True)
class Run:
    """One directory of results. summary is the object of summary.json, inputs what it says was run."""

    path: Path
    summary: Mapping[str, Any]

    @property
    def inputs(self) -> Mapping[str, Any]:
        """What was run: cluster, trace, policy, options, seed, version."""
        inputs: Mapping[str, Any] = self.summary["inputs"]
        return inputs

    @property
    def seed(self) -> int | None:
        """The seed; None for a run that draws nothing."""
        seed: int | None = self.inputs["seed"]
        return seed

    def timeline(self) -> list[dict[str, float | None]]:
        """The rows of timeline.csv; None for an empty cell. Raises BadInput where it cannot be read."""
        return [
            {name: _number(cell, self.path / TIMELINE) for name, cell in row.items()}
            for row in self._rows(TIMELINE, ("from_s", "to_s", "gpus", "held_gpus", "waiting_jobs"))
        ]

    def job_times(self) -> list[tuple[float | None, float | None]]:
        """(wait_s, jct_s) of each job, jct_s of finished ones alone. Raises BadInput where jobs.csv cannot be read."""
        rows = self._rows(JOBS, ("wait_s", "jct_s", "outcome"))
        file = self.path / JOBS
        return [
            (
                _number(row["wait_s"], file),
                _number(row["jct_s"], file) if row["outcome"] == "succeeded" else None,
            )
            for row in rows
        ]

    def _rows(self, name: str, needed: Sequence[str]) -> list[dict[str, str]]:
        path = self.path / name
        try:
            with path.open(encoding="utf-8", newline="") as file:
                reader = csv.DictReader(file)
                missing = [column for column in needed if column not in (reader.fieldnames or ())]
                if missing:
                    raise BadInput(f"{path}: has no column {missing[0]}; run the simulation again")
                return list(reader)
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise BadInput(f"{path}: cannot be read: {error}") from None


def read_runs(paths: Sequence[Path]) -> list[Run]:
    """The runs in these directories. Raises BadInput for one that is none, and for runs that cannot be compared.

    They can if all are of one trace on one cluster, by their digests.
    """
    runs = [read_run(path) for path in paths]
    for run in runs[1:]:
        for what in ("cluster", "trace"):
            _check_same(what, runs[0], run)
    return runs


def read_run(path: Path) -> Run:
    """The run in a directory. Raises BadInput where there is none, and for one that does not name its inputs."""
    file = path / SUMMARY
    try:
        summary = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BadInput(
            f"{file}: {reason}; allowed: a directory of gantree simulate --out"
        ) from None
    except ValueError as error:
        raise BadInput(f"{file}: no JSON: {error}") from None
    try:
        inputs = summary["inputs"]
        for what in ("cluster", "trace", "policy"):
            inputs[what]["name"], inputs[what]["digest"]
        inputs["options"], inputs["seed"], inputs["version"]
    except (KeyError, TypeError):
        raise BadInput(
            f"{file}: does not say what was run (inputs); run gantree simulate again with this version"
        ) from None
    return Run(path, summary)


def _check_same(what: str, first: Run, other: Run) -> None:
    mine, yours = first.inputs[what], other.inputs[what]
    if mine["digest"] != yours["digest"]:
        raise BadInput(
            f"{other.path}: is of {what} {yours['name']} (digest {yours['digest']}), but {first.path} of {what} "
            f"{mine['name']} ({mine['digest']}); allowed: results of one {what}"
        )


def _number(cell: str, file: Path) -> float | None:
    try:
        return float(cell) if cell else None
    except ValueError:
        raise BadInput(f"{file}: found {cell!r}; allowed: a number") from None
