"""Tori: nodes on a grid whose axes may close, such as a TPU pod or a Slurm torus3d, and boxes of it.

A torus is no tier: its boxes overlap. It keeps an index of its own beside the fabric: where each node and GPU stands,
how far two are apart, and which boxes are legal. A box is axis-aligned and may reach over the seam of an axis that
wraps. All sizes are in GPUs; where `host` is 1 along every axis a node is one point of the grid, whatever it holds.

Which boxes are legal. Along each axis a box is either a whole number of hosts, and then starts where a host starts, or
a part of one host that divides it, and then stays inside it. A box as long as its axis has one place only. Where the
torus names `slices`, its boxes have one of these shapes as written; otherwise, where its nodes hold TPUs of one
generation, one of those that are sold of it (`tpu_slices`); otherwise any.

Joined cubes. Where the torus names a `cube`, only the links inside each cube are fixed, and optical switches join the
faces of cubes: any cubes, wherever they stand, make a slice of whole cubes, every axis of which closes, be it one cube
long. It may be longer along an axis than the torus. Smaller slices lie inside one cube and close no axis.

How many boxes are free is counted with arrays (`torus_pieces`); here every box is told one by one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np

from gantree.model.cluster import Torus
from gantree.model.errors import BadInput
from gantree.text.words import plural
from gantree.topology.fabric.fabric import Fabric, IntArray
from gantree.topology.hardware.tpu_slices import Shape, SliceRule, factored, slice_rule

Point = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Box:
    """A box: its first corner and its size along each axis; over a seam it goes on at 0."""

    origin: Point
    shape: Shape


@dataclass(frozen=True, slots=True, eq=False)
class TorusIndex:
    """One torus of a fabric.

    node_at[grid point] is the node's index in the fabric, an array of the shape dims / host;
    position_of_node[node] is its number in row-major order. rule says which shapes are sold, None for any.
    """

    torus: Torus
    node_at: IntArray
    position_of_node: dict[int, int]
    rule: SliceRule | None = None

    @property
    def piece(self) -> Shape:
        """GPUs along each axis of what fixed links join: a cube, or the whole torus."""
        return self.torus.cube or self.torus.dims

    @property
    def wrap(self) -> tuple[bool, ...]:
        """Which axes of a piece close by links of their own."""
        return (False,) * len(self.torus.dims) if self.torus.cube else self.torus.wrap

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
        """Whether a slice has a ring along each axis: where it takes all of one that wraps, or joins cubes."""
        if self.cubes_joined(shape):
            return (True,) * len(shape)
        axes = zip(shape, self.piece, self.wrap, strict=True)
        return tuple(wraps and size == most for size, most, wraps in axes)

    def cubes_joined(self, shape: Shape) -> int:
        """Of how many cubes, joined by switches, a slice of a shape is made; 0 where it is a box of one piece."""
        cube = self.torus.cube
        if not cube or len(shape) != len(cube) or min(shape) < 1:
            return 0
        whole = all(size % each == 0 for size, each in zip(shape, cube, strict=True))
        return prod(shape) // prod(cube) if whole else 0

    def is_legal(self, shape: Shape) -> bool:
        """Whether slices of a shape may be cut at all."""
        if len(shape) != len(self.torus.dims) or not (self.rule is None or self.rule.admits(shape)):
            return False
        if self.cubes_joined(shape):
            return prod(shape) <= prod(self.torus.dims)
        return all(bool(self.origins(axis, size)) for axis, size in enumerate(shape))

    def shapes(self, gpus: int) -> tuple[Shape, ...]:
        """The shapes of so many GPUs that are legal: least surface first, then fewest hosts, then as numbers order."""
        if not 1 <= gpus <= prod(self.torus.dims):
            return ()
        if self.rule is not None:
            found = list(self.rule.shapes(gpus))
        else:
            found = list(factored(gpus, self.piece))
            if self.torus.cube and gpus % prod(self.torus.cube) == 0:
                counts = factored(gpus // prod(self.torus.cube), (gpus,) * len(self.piece))
                found += [tuple(np.multiply(each, self.torus.cube).tolist()) for each in counts]
        legal = dict.fromkeys(shape for shape in found if self.is_legal(shape))
        return tuple(sorted(legal, key=lambda each: (_surface(each), self._hosts(each), each)))

    def boxes(self, shape: Shape) -> Iterator[Box]:
        """All legal boxes of a shape, by piece and origin; none for one that is not legal or joins several cubes."""
        if not self.is_legal(shape) or self.cubes_joined(shape) > 1:
            return
        axes = [self.origins(axis, size) for axis, size in enumerate(shape)]
        corners = (
            range(0, most, step) for most, step in zip(self.torus.dims, self.piece, strict=True)
        )
        for corner in product(*corners):
            for origin in product(*axes):
                yield Box(tuple(a + b for a, b in zip(corner, origin, strict=True)), shape)

    def points(self, box: Box) -> Iterator[Point]:
        """The points of a box in row-major order from its origin."""
        axes = zip(box.origin, box.shape, self.torus.dims, strict=True)
        yield from product(
            *([(first + step) % most for step in range(size)] for first, size, most in axes)
        )

    def _hosts(self, shape: Shape) -> int:
        """How many hosts a box of a legal shape touches."""
        return prod(-(-size // each) for size, each in zip(shape, self.torus.host, strict=True))

    def origins(self, axis: int, size: int) -> range:
        """Where boxes may start along an axis of a piece; empty where that size is not legal."""
        most, host = self.piece[axis], self.torus.host[axis]
        if not 1 <= size <= most:
            return range(0)
        if size == most:
            return range(1)
        if size % host == 0:
            return range(0, most if self.wrap[axis] else most - size + 1, host)
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
    positions = {int(node): place for place, node in enumerate(nodes)}
    return TorusIndex(torus, nodes.reshape(grid), positions, _rule(fabric, torus, nodes))


def _rule(fabric: Fabric, torus: Torus, nodes: IntArray) -> SliceRule | None:
    """What the site sells, else what is sold of the TPUs of this torus if they are all of one generation."""
    if torus.slices:
        return SliceRule(torus.slices)
    machines = np.unique(fabric.machine_index_of_node[nodes]).tolist()
    rules = [slice_rule(fabric.machines[number].gpu) for number in machines]
    rule = rules[0]
    same = rule is not None and all(other == rule for other in rules)
    return rule if same and rule and len(rule.listed[0]) == len(torus.dims) else None


def _check(torus: Torus) -> None:
    axes = len(torus.dims)
    lengths = [len(torus.host), len(torus.wrap), len(torus.cube or torus.dims)]
    if any(length != axes for length in (*lengths, *map(len, torus.slices))):
        raise BadInput(
            f"torus {torus.name}: dims has {axes} axes, host, wrap, cube or a slice others"
        )
    for size, each in zip(torus.dims, torus.host, strict=True):
        if size < 1 or each < 1 or size % each:
            raise BadInput(
                f"torus {torus.name}: {plural(size, 'GPU')} along an axis, hosts of {each}"
            )
    _check_cubes(torus)
    points = prod(torus.dims) // prod(torus.host)
    if points != len(torus.nodes) or len(set(torus.nodes)) != points:
        raise BadInput(
            f"torus {torus.name}: {plural(len(torus.nodes), 'node')} on {plural(points, 'point')}"
        )


def _check_cubes(torus: Torus) -> None:
    if torus.cube:
        for size, cube, each in zip(torus.dims, torus.cube, torus.host, strict=True):
            if cube < 1 or size % cube or cube % each:
                raise BadInput(
                    f"torus {torus.name}: cubes of {cube} along an axis of {size} GPUs, hosts of {each}"
                )


def _surface(shape: Shape) -> int:
    return sum(prod(shape) // size for size in shape)
