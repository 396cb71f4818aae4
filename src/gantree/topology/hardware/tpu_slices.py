"""Slices sold of each TPU generation: shapes in chips, axis by axis, with sources. Constants only.

How a shape is cut from a torus is in `tori`; a site that sells others names them in its cluster file, and they take the
place of these.

Where the shapes are from (docs.cloud.google.com/tpu/docs). v5e and v6e: the tables of 2D slices on their pages, 1x1
and 2x2 of which are parts of one host. v4: types-topologies, "AxBxC where A <= B <= C and A, B, C are either all <= 4
or all integer multiples of 4", of which those below one cube are 2x2x1, 2x2x2, 2x2x4 and 2x4x4; a pod has 4,096 chips.
v5p: the table of its page ("the most common", below one cube the same) and 16x16x24 as the largest; that
other multiples of a cube (4x4x12, 8x12x16) are sold too, is from maxtext's accelerator_to_spec_map.py, which lists
them. 7x: its page says that it is built as v5p, of 9,216 chips, which is taken as its largest slice.

Twisted tori (4x4x8_twisted: shapes k x k x 2k and k x 2k x 2k of v4 and v5p) take the same chips as plain ones; only
the switches are set otherwise. So they are no shape of their own here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod

from gantree.topology.hardware.gpu_models import gpu_model

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SliceRule:
    """The shapes that are sold: those listed, and whole cubes with no axis longer than the next, up to most_chips.

    cube is empty where only listed shapes are sold.
    """

    listed: tuple[Shape, ...]
    cube: Shape = ()
    most_chips: int = 0

    def admits(self, shape: Shape) -> bool:
        """Whether slices of a shape are sold."""
        return shape in self.listed or (
            len(shape) == len(self.cube)
            and prod(shape) <= self.most_chips
            and all(size % each == 0 for size, each in zip(shape, self.cube, strict=True))
            and all(one <= next_ for one, next_ in pairwise(shape))
        )

    def within(self, most: Shape) -> Iterator[Shape]:
        """Yield the shapes that are sold and no longer along any axis than `most`."""
        yield from (s for s in self.listed if all(a <= b for a, b in zip(s, most, strict=True)))
        if self.cube:
            axes = zip(most, self.cube, strict=True)
            multiples = product(*(range(each, size + 1, each) for size, each in axes))
            yield from (s for s in multiples if s not in self.listed and self.admits(s))

    def shapes(self, chips: int) -> Iterator[Shape]:
        """Yield the shapes of so many chips that are sold."""
        yield from (shape for shape in self.listed if prod(shape) == chips)
        if self.cube and chips <= self.most_chips and chips % prod(self.cube) == 0:
            cubes = (chips // prod(self.cube),) * len(self.cube)
            for counts in factored(cubes[0], cubes):
                shape = tuple(n * each for n, each in zip(counts, self.cube, strict=True))
                if shape not in self.listed and self.admits(shape):
                    yield shape


def factored(number: int, most: Shape) -> Iterator[Shape]:
    """All ways to write a number as a product of one factor an axis, none above the axis."""
    if not most:
        if number == 1:
            yield ()
        return
    for factor in range(1, min(number, most[0]) + 1):
        if number % factor == 0:
            for rest in factored(number // factor, most[1:]):
                yield (factor, *rest)


_FLAT = SliceRule(((1, 1), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16)))
_BELOW_A_CUBE = ((2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4))
_CUBE = (4, 4, 4)

SLICE_RULES = {
    "tpu-v4": SliceRule(_BELOW_A_CUBE, _CUBE, 4096),
    "tpu-v5e": _FLAT,
    "tpu-v5p": SliceRule(_BELOW_A_CUBE, _CUBE, 16 * 16 * 24),
    "tpu-v6e": _FLAT,
    "tpu-7x": SliceRule(_BELOW_A_CUBE, _CUBE, 9216),
}
"""What is sold, by architecture (`gpu_models`)."""


def slice_rule(gpu: str | None) -> SliceRule | None:
    """Return what is sold of a GPU model; None for one that is no TPU of the catalogue."""
    model = gpu_model(gpu)
    return SLICE_RULES.get(model.architecture) if model else None
