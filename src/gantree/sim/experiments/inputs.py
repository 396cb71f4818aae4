"""Reads the frozen inputs of the experiments: traces, models, mixes, clusters, figures."""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gantree.formats import read_cluster
from gantree.formats.traces import TraceJob, read_trace
from gantree.formats.trained_models import read_mixes, read_models
from gantree.model.cluster import Cluster
from gantree.model.jobs import Job
from gantree.model.trained_models import ModelMix, TrainedModel
from gantree.sim.drawn_models import training
from gantree.sim.lingjun.subfabric import first_hosts, read_fabric

INPUTS = Path(__file__).parent / "inputs"
MIXES = ("light", "measured", "heavy")


@cache
def models() -> dict[str, TrainedModel]:
    """Models by name."""
    path = INPUTS / "models.yaml"
    return read_models(path.read_text(encoding="utf-8"), str(path))


@cache
def mixes() -> dict[str, ModelMix]:
    """Mixes of models by name: those of MIXES."""
    path = INPUTS / "mixes.yaml"
    return read_mixes(path.read_text(encoding="utf-8"), str(path), models())


@cache
def cluster(name: str) -> Cluster:
    """A cluster of `inputs/clusters`, by the name of its file."""
    path = INPUTS / "clusters" / f"{name}.yaml"
    return read_cluster(path.read_text(encoding="utf-8"), str(path))


@cache
def lingjun(hosts: int) -> Cluster:
    """The first hosts of Lingjun."""
    return first_hosts(read_fabric(INPUTS / "lingjun-topo.csv.gz"), hosts)


@cache
def trace(name: str) -> tuple[TraceJob, ...]:
    """A trace of `inputs`, by the name of its file without endings."""
    return tuple(read_trace(INPUTS / f"{name}.csv.gz"))


def drawn_from(mix: str, job: Job, seed: int, gpu: str | None = None) -> Job:
    """Return a job that trains the model which a mix gives it, of those that fit into the memory of the GPUs."""
    return training(job, mixes()[mix], models(), seed, gpu)


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of an input file: what is most likely, and the range that it is in."""

    low: float
    value: float
    high: float
    unit: str
    source: str


@cache
def figures(name: str) -> dict[str, Figure]:
    """Figures of `inputs/NAME.csv` by name."""
    with (INPUTS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return {
            row["name"]: Figure(
                float(row["low"]),
                float(row["value"]),
                float(row["high"]),
                row["unit"],
                row["source"],
            )
            for row in csv.DictReader(file)
        }
