"""The openb lists: nodes, pods, the arrival order of pods, and the order of equally good nodes.

All are CSV with a header, plain or gzipped; columns that are not named here are passed over, so every list of the
trace can be read (`gpu_spec` is absent from some). GPU models become numbers in the order of their names.

    nodes      sn, cpu_milli, memory_mib, gpu, model
    pods       name, cpu_milli, memory_mib, num_gpu, gpu_milli [, gpu_spec: models joined by "|"]
    order      seed, pos, pod      a pod may come more than once
    tie-break  seed, sn, rank      the lowest rank wins
"""

import csv
import gzip
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import numpy as np

from gantree.model.errors import BadInput, NotFound
from gantree.placement.scoring.share_prices import WHOLE_MILLI
from gantree.text.records import Report
from gantree.text.words import plural, shortened
from gantree.topology.fabric.fabric import IntArray

MAX_BYTES = 256 << 20
MAX_GPUS_OF_NODE = 64
GZIP_MAGIC = b"\x1f\x8b"
_WHOLE = re.compile(r"[0-9]{1,15}", re.ASCII)

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Nodes:
    """The cluster, empty: name, cpu_milli, memory_MiB, gpus and model of each node, as arrays by node."""

    names: tuple[str, ...]
    cpu_milli: IntArray
    memory_MiB: IntArray
    gpus: IntArray
    model: IntArray
    models: tuple[str, ...]

    @property
    def gpu_milli(self) -> int:
        """Milli GPUs of the whole cluster."""
        return int(self.gpus.sum()) * WHOLE_MILLI


@dataclass(frozen=True, slots=True, order=True)
class PodShape:
    """What a pod asks for; models are names, empty for any. gpu_milli is per GPU, below WHOLE_MILLI for a share."""

    cpu_milli: int
    memory_MiB: int
    gpus: int
    gpu_milli: int
    models: tuple[str, ...] = ()

    @property
    def asked_milli(self) -> int:
        """Milli GPUs in all."""
        return self.gpus * self.gpu_milli

    @property
    def is_share(self) -> bool:
        """Whether it asks for a part of one GPU."""
        return self.gpus == 1 and self.gpu_milli < WHOLE_MILLI


@dataclass(frozen=True, slots=True)
class Workload:
    """Shapes with the number of pods of each in the list, and the shapes of the pods that arrive, by index."""

    shapes: tuple[PodShape, ...]
    pods_of_shape: tuple[int, ...]
    arrivals: tuple[int, ...]


def read_nodes(path: Path) -> Nodes:
    """The nodes of a list. Raises BadInput."""
    report, names, numbers, models = Report(str(path)), [], [], []
    for line, row in _rows(path, ("sn", "cpu_milli", "memory_mib", "gpu", "model")):
        number = _numbers(report, line, row, ("cpu_milli", "memory_mib", "gpu"))
        if number[2] > MAX_GPUS_OF_NODE:
            report.add(line, "gpu", row["gpu"], f"up to {MAX_GPUS_OF_NODE}")
        names.append(row["sn"])
        numbers.append(number)
        models.append(row["model"])
    _check_unique(report, "sn", names)
    report.check()
    if sum(number[2] for number in numbers) == 0:
        raise BadInput(f"{path}: no node has a GPU")
    known = tuple(sorted(set(models)))
    cpu_milli, memory_MiB, gpus = np.array(numbers, dtype=np.int64).T
    model = np.array([known.index(model) for model in models], dtype=np.int64)
    return Nodes(tuple(names), cpu_milli, memory_MiB, gpus, model, known)


def read_pods(path: Path) -> dict[str, PodShape]:
    """The shape of each pod of a list, by name. Raises BadInput."""
    report, names, shapes = Report(str(path)), [], []
    columns = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
    for line, row in _rows(path, ("name", *columns)):
        cpu_milli, memory_MiB, gpus, gpu_milli = _numbers(report, line, row, columns)
        if gpus and not (gpu_milli == WHOLE_MILLI or (gpus == 1 and 0 < gpu_milli < WHOLE_MILLI)):
            allowed = f"{WHOLE_MILLI}, or less but above 0 for a pod of one GPU"
            report.add(line, "gpu_milli", row["gpu_milli"], allowed)
        models = tuple(sorted(filter(None, row.get("gpu_spec", "").split("|")))) if gpus else ()
        names.append(row["name"])
        shapes.append(PodShape(cpu_milli, memory_MiB, gpus, gpu_milli if gpus else 0, models))
    _check_unique(report, "name", names)
    report.check()
    return dict(zip(names, shapes, strict=True))


def read_workload(pods: Path, order: Path, seed: int) -> Workload:
    """The pods of a list in the order in which they arrive under a seed. Raises BadInput, NotFound."""
    shape_of_pod = read_pods(pods)
    count = Counter(shape_of_pod.values())
    shapes = tuple(sorted(count))
    index = {shape: number for number, shape in enumerate(shapes)}
    arrivals = []
    for line, row in _of_seed(order, ("pos", "pod"), seed):
        shape = shape_of_pod.get(row["pod"])
        if shape is None:
            raise BadInput(f"{order}:{line}: pod {shortened(row['pod'])} is not in {pods}")
        arrivals.append((_position(order, line, row["pos"]), index[shape]))
    in_order = tuple(shape for _, shape in sorted(arrivals, key=lambda arrival: arrival[0]))
    return Workload(shapes, tuple(count[shape] for shape in shapes), in_order)


def read_ranks(path: Path, seed: int, nodes: Nodes) -> IntArray:
    """rank[node] under a seed. Raises BadInput, NotFound."""
    rank_of_name = {
        row["sn"]: _position(path, line, row["rank"])
        for line, row in _of_seed(path, ("sn", "rank"), seed)
    }
    missing = [name for name in nodes.names if name not in rank_of_name]
    if missing:
        others = f" and {plural(len(missing) - 1, 'other')}" if len(missing) > 1 else ""
        raise BadInput(f"{path}: no rank for node {shortened(missing[0])}{others}, seed {seed}")
    return np.array([rank_of_name[name] for name in nodes.names], dtype=np.int64)


def _of_seed(path: Path, columns: Sequence[str], seed: int) -> Iterator[tuple[int, Row]]:
    seeds: set[str] = set()
    for line, row in _rows(path, ("seed", *columns)):
        seeds.add(row["seed"])
        if row["seed"] == str(seed):
            yield line, row
    if str(seed) not in seeds:
        have = ", ".join(sorted(seeds)[:20]) or "none"
        raise NotFound(f"{path}: nothing for seed {seed}; there is {have}")


def _position(path: Path, line: int, text: str) -> int:
    if _WHOLE.fullmatch(text) is None:
        raise BadInput(f"{path}:{line}: {shortened(text)} is no whole number")
    return int(text)


def _numbers(report: Report, line: int, row: Row, columns: Sequence[str]) -> list[int]:
    for column in columns:
        if _WHOLE.fullmatch(row[column]) is None:
            report.add(line, column, shortened(row[column]), "a whole number from 0")
    return [int(row[column]) if _WHOLE.fullmatch(row[column]) else 0 for column in columns]


def _check_unique(report: Report, column: str, names: Sequence[str]) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            report.add(None, column, f"{shortened(name)} {times} times", "each name once")


def _rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, Row]]:
    """(line, row) of a CSV that has these columns."""
    text = _text(path)
    reader = csv.DictReader(StringIO(text, newline=""), restval="", strict=True)
    missing = [column for column in columns if column not in (_header(path, reader) or ())]
    if missing:
        raise BadInput(f"{path}: no column {missing[0]} in the header")
    try:
        yield from ((reader.line_num, row) for row in reader)
    except csv.Error as error:
        raise BadInput(f"{path}:{reader.line_num}: {error}") from None


def _header(path: Path, reader: "csv.DictReader[str]") -> Sequence[str] | None:
    try:
        return reader.fieldnames
    except csv.Error as error:
        raise BadInput(f"{path}:{reader.line_num}: {error}") from None


def _text(path: Path) -> str:
    """The text of a file, plain or gzipped."""
    try:
        with path.open("rb") as file:
            packed = file.peek(2)[:2] == GZIP_MAGIC
            take: Callable[[int], bytes] = gzip.GzipFile(fileobj=file).read if packed else file.read
            raw = take(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise BadInput(f"{path}: larger than {MAX_BYTES >> 20} MiB")
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 text (byte {error.start})") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(f"{path}: damaged gzip: {error}") from None
    except OSError as error:
        raise BadInput(f"{path}: {(error.strerror or str(error)).lower()}") from None
