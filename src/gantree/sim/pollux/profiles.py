"""What Pollux' authors measured of an application: seconds of an iteration by placement, and statistics by epoch.

A placement is how many replicas sit on each node, in the order of ranks: (4, 2). An iteration computes a local batch on
every replica, as often as gradients are accumulated, and synchronises once.
"""

import csv
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from gantree.model.errors import BadInput, NotFound

EPOCHS = {
    "bert": 2, "cifar10": 100, "ncf": 10, "imagenet": 90, "deepspeech2": 80, "yolov3": 50,
}  # fmt: skip
"""Applications, and the epochs after which a job is done."""

LARGEST_LOCAL_BATCH = {"yolov3": 8}
"""Where it is not the largest one measured."""

Placement = tuple[int, ...]
Times = tuple[float, float]
"""Seconds of a step, and of these of the synchronisation."""
Curve = list[tuple[float, Times]]
"""Times by local batch size, rising."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """Of one batch size: progress at the end of an epoch; squared norm and variance of gradients."""

    progress: float
    grad_sqr: float
    grad_var: float


class Profile:
    """One application."""

    def __init__(self, directory: Path) -> None:
        """Read placements.csv, scalability.csv and validation-*.csv. Raises NotFound and BadInput."""
        self.name = directory.name
        self._placed = _placed(directory / "placements.csv")
        self._by_size = _by_size(self._placed, directory / "scalability.csv")
        self._epochs = _epochs(directory)
        self.init_batch, self.max_batch = min(self._epochs), max(self._epochs)
        sizes = [size for curve in self._placed.values() for size, _ in curve]
        self.max_local_batch = LARGEST_LOCAL_BATCH.get(self.name, int(max(sizes)))

    def times(self, placement: Placement, local_batch: float) -> Times:
        """Seconds of a step and of its synchronisation.

        Where a placement was not measured: of its number of nodes and replicas, linear between the two nearest numbers
        of nodes that were. Raises BadInput where nothing near was measured.
        """
        turned = min(placement[i:] + placement[:i] for i in range(len(placement)))
        if turned in self._placed:
            return _on(self._placed[turned], local_batch)
        nodes, replicas = len(placement), sum(placement)
        known = sorted(size[0] for size in self._by_size if size[1] == replicas)
        if not known or not known[0] <= nodes <= known[-1]:
            raise BadInput(
                f"{self.name}: {replicas} replicas on {nodes} nodes: nothing near was measured"
            )
        curve: Curve = [
            (count, _on(self._by_size[count, replicas], local_batch)) for count in known
        ]
        return _on(curve, nodes)

    def iterations(self, batch: float) -> list[float]:
        """Iterations of each epoch: larger batches progress more in each, but not in proportion."""
        scale, done, found = batch / self.init_batch, 0.0, []
        for number in range(EPOCHS[self.name]):
            sqr, var = self._statistics(batch, number)
            gain = (var + sqr) / (var / scale + sqr)
            progress = min(epochs[number].progress for epochs in self._epochs.values())
            found.append((progress - done) / gain)
            done = progress
        return found

    def _statistics(self, batch: float, number: int) -> Times:
        """Squared norm and variance of gradients, linear between the batch sizes that were measured."""
        curve: Curve = [
            (size, (epochs[number].grad_sqr, epochs[number].grad_var))
            for size, epochs in sorted(self._epochs.items())
        ]
        return _on(curve, batch)


def _on(curve: Curve, at: float) -> Times:
    """Linear between the points of a curve; beyond its ends as at the ends."""
    place = bisect_left(curve, at, key=lambda point: point[0])
    if place < len(curve) and curve[place][0] == at:
        return curve[place][1]
    if place in (0, len(curve)):
        return curve[min(place, len(curve) - 1)][1]
    (low, first), (high, second) = curve[place - 1], curve[place]
    share = (at - low) / (high - low)
    return (
        first[0] + share * (second[0] - first[0]),
        first[1] + share * (second[1] - first[1]),
    )


def _placed(path: Path) -> dict[Placement, Curve]:
    """Times by placement, as it is written: 24 is (2, 4)."""
    found: dict[Placement, Curve] = defaultdict(list)
    for row in rows_of(path, ("placement", "local_bsz", "step_time", "sync_time")):
        found[tuple(map(int, row["placement"]))].append(_point(row))
    return {placement: sorted(curve) for placement, curve in found.items()}


def _by_size(placed: dict[Placement, Curve], path: Path) -> dict[tuple[int, int], Curve]:
    """Times by nodes and replicas, means where several placements have them."""
    points: dict[tuple[int, int], dict[float, list[Times]]] = defaultdict(lambda: defaultdict(list))
    for placement, curve in placed.items():
        for local_batch, times in curve:
            points[len(placement), sum(placement)][local_batch].append(times)
    for row in rows_of(path, ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")):
        local_batch, times = _point(row)
        points[int(row["num_nodes"]), int(row["num_replicas"])][local_batch].append(times)
    return {
        size: [(local_batch, _mean(times)) for local_batch, times in sorted(of_size.items())]
        for size, of_size in points.items()
    }


def _mean(times: Sequence[Times]) -> Times:
    return fmean(step for step, _ in times), fmean(sync for _, sync in times)


def _point(row: dict[str, str]) -> tuple[float, Times]:
    return float(row["local_bsz"]), (float(row["step_time"]), float(row["sync_time"]))


def _epochs(directory: Path) -> dict[int, list[Epoch]]:
    """Epochs by batch size."""
    found = {}
    for path in directory.glob("validation-*.csv"):
        rows = rows_of(path, ("progress", "grad_sqr", "grad_var"))
        found[int(path.stem.partition("-")[2])] = [
            Epoch(float(row["progress"]), float(row["grad_sqr"]), float(row["grad_var"]))
            for row in rows
        ]
    if not found:
        raise NotFound(
            f"{directory}: no file validation-*.csv; it is no application of Pollux' simulator"
        )
    return found


def rows_of(path: Path, columns: Iterable[str]) -> list[dict[str, str]]:
    """Rows of a CSV file that has these columns. Raises NotFound and BadInput."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise NotFound(f"{path}: cannot be read: {error.strerror or error}.") from error
    missing = [column for column in columns if not rows or column not in rows[0]]
    if missing:
        raise BadInput(
            f"{path}: no column {', '.join(missing)}; it is no file of Pollux' simulator"
        )
    return rows
