"""The cost of an all-reduce on a torus slice: rings along its axes, all at once, instead of one ring over hosts.

The data are split over the axes, and each part is summed along its own axis first, then along the others, so all links
of a chip carry at once. An axis that closes carries both ways round, one that does not only as much as one link (a
line's two halves wait for each other at its ends), an axis of two chips is one link. So a chip sends

    W = link_GBps * sum over axes longer than 1 of (2 where the axis closes, else 1)

and an all-reduce of V bytes over n chips takes 2 V (n - 1) / n / W, plus the hops to the far end of each axis in turn
and back. The model is that of "How to Scale Your Model" (jax-ml.github.io/scaling-book, chapters 2 and 3: bandwidth
both ways where an axis wraps around, one way where it does not; about 1 us a hop). It meets what Google publishes of
whole pods (docs.cloud.google.com/tpu/docs): v5e, 51.2 TB/s over 256 chips, is 200 GB/s a chip: two axes of 2 x 50.

Links of which nothing is published (v4) have no price here; health and load of single links are not told.
"""

from math import prod

from gantree.topology.hardware.gpu_models import gpu_model
from gantree.topology.hardware.tpu_slices import Shape

HOP_S = 1e-6
"""Seconds from a chip to the next (scaling-book, chapter 2, problem 5: about 1 us)."""
SHORTEST_RING = 3
"""Chips along an axis below which closing it adds no link."""


def link_GBps_of(gpu: str | None) -> float | None:
    """What one torus link of a chip carries in one direction; None for other GPUs and where it is not known."""
    model = gpu_model(gpu)
    return model.link_GBps if model is not None and model.link == "ICI" else None


def all_reduce_s(
    size_bytes: float, shape: Shape, closed: tuple[bool, ...], link_GBps: float
) -> float:
    """Seconds of one all-reduce over a slice; shape in chips, closed says which axes have a ring."""
    chips = prod(shape)
    if chips < 2:
        return 0.0
    rings = [closes and size >= SHORTEST_RING for size, closes in zip(shape, closed, strict=True)]
    ways = sum(2 if ring else 1 for size, ring in zip(shape, rings, strict=True) if size > 1)
    hops = sum(size // 2 if ring else size - 1 for size, ring in zip(shape, rings, strict=True))
    moved_bytes = 2 * size_bytes * (chips - 1) / chips
    return moved_bytes / (ways * link_GBps * 1e9) + 2 * hops * HOP_S
