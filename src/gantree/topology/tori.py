"""Tori: nodes on a grid whose axes close, such as a TPU pod or a Slurm torus3d, and the boxes that may be cut of it.

A torus is no tier: its boxes overlap. It keeps an index of its own beside the fabric: where each node and GPU stands,
how far two are apart, and which boxes are legal. A box is axis-aligned and may reach over the seam of an axis that
wraps. All sizes are in GPUs; where `host` is 1 along every axis a node is one point of the grid, whatever it holds.

Which boxes are legal. Along each axis a box is either a whole number of hosts, and then starts where a host starts, or
a part of one host that divides it, and then stays inside it. A box as long as its axis has one place only. Where the
torus names `slices`, its boxes have one of these shapes as written; otherwise any.

Sums over all boxes of a shape are one array operation an axis (`sums_of_boxes`), whatever their number.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from gantree.model.cluster import Torus
from gantree.model.errors import BadInput
from gantree.topology.fabric import Fabric, IntArray

Point = tuple[int, ...]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Box:
    """A box: its first corner and its size along each axis; over a seam it goes on at 0."""

    origin: Point
    shape: Shape


@dataclass(frozen=True, slots=True, eq=False)
class TorusIndex:
    """One torus of a fabric.

    node_at[grid point] is the node's index in the fabric, an array of the shape dims / host;
    position_of_node[node] is its number in row-major order.
    """

    torus: Torus
    node_at: IntArray
    position_of_node: dict[int, int]

    def node_point(self, node: int) -> Point:
        """Where a node stands on the grid of nodes. BadInput for one that is in no place of this torus."""
        position = self.position_of_node.get(node)
        if position is None:
            raise BadInput(f"torus {self.torus.name}: node {node} is not in it")
        return tuple(int(axis) for axis in np.unravel_index(position, self.node_at.shape))

    def gpu_point(self, node: int, gpu: int) -> Point:
        """Where a GPU stands; GPUs of a host are in row-major order inside it."""
        host = self.torus.host
        inside = 0 if prod(host) == 1 else gpu
        if not 0 <= inside < prod(host):
            raise BadInput(f"torus {self.torus.name}: a node has no GPU {gpu}, only {prod(host)}")
        within = np.unravel_index(inside, host)
        return tuple(
            at * each + int(offset)
            for at, each, offset in zip(self.node_point(node), host, within, strict=True)
        )

    def gpu_at(self, point: Sequence[int]) -> tuple[int, int]:
        """(node, GPU) that stand at a point; the way back of `gpu_point`."""
        host = self.torus.host
        node = self.node_at[tuple(at // each for at, each in zip(point, host, strict=True))]
        within = tuple(at % each for at, each in zip(point, host, strict=True))
        return int(node), int(np.ravel_multi_index(within, host))

    def distance(self, a: Sequence[int], b: Sequence[int]) -> int:
        """Links on a shortest way between two points, over a seam where that is shorter."""
        total = 0
        for from_, to, size, wraps in zip(a, b, self.torus.dims, self.torus.wrap, strict=True):
            straight = abs(from_ - to)
            total += min(straight, size - straight) if wraps else straight
        return total

    def closed_axes(self, shape: Shape) -> tuple[bool, ...]:
        """Whether a box of a shape has a ring along each axis: only where it takes the whole of one that wraps."""
        axes = zip(shape, self.torus.dims, self.torus.wrap, strict=True)
        return tuple(wraps and size == most for size, most, wraps in axes)

    def is_legal(self, shape: Shape) -> bool:
        """Whether boxes of a shape may be cut at all."""
        if len(shape) != len(self.torus.dims) or (
            self.torus.slices and shape not in self.torus.slices
        ):
            return False
        return all(bool(self._origins(axis, size)) for axis, size in enumerate(shape))

    def shapes(self, gpus: int) -> tuple[Shape, ...]:
        """The shapes of so many GPUs that are legal: least surface first, then fewest hosts, then as numbers order."""
        if self.torus.slices:
            found = [shape for shape in self.torus.slices if prod(shape) == gpus]
        else:
            found = list(_factored(gpus, self.torus.dims))
        legal = dict.fromkeys(shape for shape in found if self.is_legal(shape))
        return tuple(sorted(legal, key=lambda each: (_surface(each), self._hosts(each), each)))

    def boxes(self, shape: Shape) -> Iterator[Box]:
        """All legal boxes of a shape, by origin; none for a shape that is not legal."""
        if self.is_legal(shape):
            axes = [self._origins(axis, size) for axis, size in enumerate(shape)]
            for origin in product(*axes):
                yield Box(origin, shape)

    def points(self, box: Box) -> Iterator[Point]:
        """The points of a box in row-major order from its origin."""
        axes = zip(box.origin, box.shape, self.torus.dims, strict=True)
        yield from product(
            *([(first + step) % most for step in range(size)] for first, size, most in axes)
        )

    def sums_of_boxes(self, value_at: IntArray, shape: Shape) -> IntArray:
        """Sum of the values, given by GPU point (shape dims), over the box of a shape at each origin.

        The result has the shape of dims; over an axis that does not wrap, origins too near its end hold sums that
        reach over the seam and mean nothing: `boxes` names the origins that count.
        """
        sums = np.asarray(value_at, dtype=np.int64)
        for axis, size in enumerate(shape):
            sums = _window_sums(sums, axis, size)
        return sums

    def free_boxes(self, free_at: IntArray, shape: Shape) -> tuple[Box, ...]:
        """The legal boxes of a shape of which every GPU is free; free_at is 1 or 0 by GPU point."""
        sums = self.sums_of_boxes(free_at, shape)
        whole = prod(shape)
        return tuple(box for box in self.boxes(shape) if sums[box.origin] == whole)

    def _hosts(self, shape: Shape) -> int:
        """How many hosts a box of a legal shape touches."""
        return prod(-(-size // each) for size, each in zip(shape, self.torus.host, strict=True))

    def _origins(self, axis: int, size: int) -> range:
        """Where boxes may start along an axis; empty where that size is not legal."""
        most, host = self.torus.dims[axis], self.torus.host[axis]
        if not 1 <= size <= most:
            return range(0)
        if size == most:
            return range(1)
        if size % host == 0:
            return range(0, most if self.torus.wrap[axis] else most - size + 1, host)
        return range(0, most, size) if size < host and host % size == 0 else range(0)


def tori_of(fabric: Fabric) -> tuple[TorusIndex, ...]:
    """Return the tori of a fabric in the site's order. BadInput where one contradicts itself or the fabric."""
    seen: dict[str, str] = {}
    for torus in fabric.cluster.tori:
        _check(torus)
        for node in torus.nodes:
            if node in seen:
                raise BadInput(f"torus {torus.name}: {node} is also in torus {seen[node]}")
            seen[node] = torus.name
    return tuple(_index(fabric, torus) for torus in fabric.cluster.tori)


def _index(fabric: Fabric, torus: Torus) -> TorusIndex:
    nodes = np.array(
        [fabric.find(fabric.tiers[-1], name)[1] for name in torus.nodes], dtype=np.int64
    )
    grid = tuple(size // each for size, each in zip(torus.dims, torus.host, strict=True))
    return TorusIndex(
        torus, nodes.reshape(grid), {int(node): place for place, node in enumerate(nodes)}
    )


def _check(torus: Torus) -> None:
    axes = len(torus.dims)
    lengths = [len(torus.host), len(torus.wrap), *map(len, torus.slices)]
    if any(length != axes for length in lengths):
        raise BadInput(f"torus {torus.name}: dims has {axes} axes, host, wrap or a slice others")
    for size, each in zip(torus.dims, torus.host, strict=True):
        if size < 1 or each < 1 or size % each:
            raise BadInput(f"torus {torus.name}: {size} GPUs along an axis, hosts of {each}")
    points = prod(torus.dims) // prod(torus.host)
    if points != len(torus.nodes) or len(set(torus.nodes)) != points:
        raise BadInput(f"torus {torus.name}: {len(torus.nodes)} nodes on {points} points")


def _window_sums(values: IntArray, axis: int, size: int) -> IntArray:
    """Sum of `size` values from each place on along an axis that closes."""
    over_seam = np.concatenate((values, np.take(values, range(size - 1), axis)), axis)
    running = np.cumsum(over_seam, axis=axis, dtype=np.int64)
    ends = np.take(running, range(size - 1, size - 1 + values.shape[axis]), axis)
    before = np.take(running, range(values.shape[axis] - 1), axis)
    first = np.zeros_like(np.take(ends, [0], axis))
    return ends - np.concatenate((first, before), axis)


def _factored(gpus: int, most: Sequence[int]) -> Iterator[Shape]:
    """All ways to write a number as a product of one factor an axis, none above the axis."""
    if not most:
        if gpus == 1:
            yield ()
        return
    for factor in range(1, min(gpus, most[0]) + 1):
        if gpus % factor == 0:
            for rest in _factored(gpus // factor, most[1:]):
                yield (factor, *rest)


def _surface(shape: Shape) -> int:
    return sum(prod(shape) // size for size in shape)
