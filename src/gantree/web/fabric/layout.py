"""The layout of a drawn fabric: nested boxes, each row filled from left to right in topology order.

All lengths are in pixels at zoom 1. How large a GPU is drawn depends on how many there are, so that a rack is a
picture with letters in it and two thousand nodes are a map. Boxes of one tier share a number of columns, picked so
that the widest domain is about twice as wide as high with few gaps in its last row.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, log, sqrt
from string import digits

from gantree.web.fabric.scene import DomainView, NodeView

MAX_WIDTH = 1480.0
"""Rows are broken here: about the width of a laptop's screen."""

_WISHED_ASPECT = 2.1
_WEIGHT_OF_GAPS = 4.0
_ROOM_AROUND = 1.3
"""Area of a fabric over that of its nodes, about."""
_CHAR_WIDTH = 0.6
"""Width of a letter over the font's size, on average, in the sans-serif fonts of browsers."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes for so many drawn things: a GPU's cell, the gap beside it, a node's padding, fonts, the load bar.

    with_codes: cells are large enough for letters at zoom 1.
    """

    cell: float
    gap: float
    padding: float
    node_font: float
    domain_font: float
    bar: float
    with_codes: bool


_SCALES = (
    (400, Scale(22, 3, 7, 12, 14, 4, with_codes=True)),
    (3_000, Scale(12, 2, 4, 9, 12, 3, with_codes=False)),
    (50_000, Scale(6, 1, 3, 5, 11, 2, with_codes=False)),
)
_SMALLEST = Scale(3.5, 0.5, 2, 3, 9, 1.2, with_codes=False)


def scale_for(gpus: int, nodes: int) -> Scale:
    """Return the sizes for a cluster."""
    return next((scale for most, scale in _SCALES if gpus + nodes <= most), _SMALLEST)


@dataclass(frozen=True, slots=True)
class Box:
    """A box at x, y of the box around it: a node, or a domain with the boxes in it."""

    x: float
    y: float
    width: float
    height: float
    view: DomainView | NodeView
    inside: "tuple[Box, ...]" = ()


def gpu_columns(gpus: int) -> int:
    """Return how many GPUs stand in a row: up to 4 in one row, up to 16 in two, else twice as wide as high."""
    rows = 1 if gpus <= 4 else 2 if gpus <= 16 else ceil(sqrt(gpus / 2))
    return ceil(gpus / rows) if gpus else 0


def place_of_gpu(gpu: int, gpus: int, scale: Scale) -> tuple[float, float]:
    """Return the upper left corner of a GPU's cell within its node."""
    row, column = divmod(gpu, gpu_columns(gpus))
    step = scale.cell + scale.gap
    return scale.padding + column * step, scale.padding + label_height(scale) + row * step


def label_height(scale: Scale) -> float:
    """Return the height of a node's name with the room below it."""
    return scale.node_font * 1.35


def head_height(scale: Scale) -> float:
    """Return the height of a domain's line of text."""
    return scale.domain_font * 1.7


def node_size(gpus: int, scale: Scale) -> tuple[float, float]:
    """Return width and height of a node's box."""
    step = scale.cell + scale.gap
    columns = gpu_columns(gpus)
    rows = ceil(gpus / columns) if columns else 0
    width = max(columns, 2) * step - scale.gap
    below = scale.bar + scale.gap
    height = label_height(scale) + max(rows, 1) * step - scale.gap + below
    return width + 2 * scale.padding, height + 2 * scale.padding


def shortened(text: str, width: float, font: float) -> str:
    """Return as much of the end of a text as has room; the ends of names are what tells them apart."""
    room = max(1, int(width / (font * _CHAR_WIDTH)))
    return text if len(text) <= room else f"…{text[len(text) - room + 1 :]}"


def shared_start(names: Sequence[str]) -> str:
    """Return what all names start with, up to a separator, else up to the numbers at their ends.

    "dgx-04-" of dgx-04-c01 and dgx-04-c02, "node" of node001 and node002; nothing where a name would be all of it.
    """
    if len(names) < 2:
        return ""
    first, last = min(names), max(names)
    differ = (at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
    same = first[: next(differ, len(first))]
    cut = max(same.rfind(separator) for separator in "-_.") + 1
    start = same[:cut] if cut else same.rstrip(digits)
    return "" if start in names else start


def lay_out(root: DomainView, scale: Scale, max_width: float = MAX_WIDTH) -> Box:
    """Return the box of the whole fabric, whose rows are broken at a width."""
    return _Layout(root, scale, max_width).domain(root, 0)


def width_for(gpus_of_node: Sequence[int], scale: Scale) -> float:
    """Return where to break rows so that the whole is wider than high, and never narrower than MAX_WIDTH."""
    sizes = (node_size(gpus, scale) for gpus in gpus_of_node)
    area = sum((width + scale.padding) * (height + scale.padding) for width, height in sizes)
    return max(MAX_WIDTH, sqrt(_WISHED_ASPECT * _ROOM_AROUND * area))


class _Layout:
    """Boxes from the inside out; each at 0, 0 until the box around it has a place."""

    def __init__(self, root: DomainView, scale: Scale, max_width: float) -> None:
        self.scale = scale
        self.max_width = max_width
        self.row_width_of_depth: dict[int, float] = {}
        self._measure([root], 0)

    def _measure(self, domains: Sequence[DomainView], depth: int) -> None:
        """Find the width of rows for each depth, from the narrowest tier outwards."""
        children = [
            view for domain in domains for view in domain.inside if isinstance(view, DomainView)
        ]
        if children:
            self._measure(children, depth + 1)
        most = max(len(domain.inside) for domain in domains)
        sizes = [self._size(view, depth + 1) for domain in domains for view in domain.inside]
        width, height = max(w for w, _ in sizes), max(h for _, h in sizes)
        gap = self.gap(depth)
        columns = _columns(most, width + gap, height + gap, self.max_width - 2 * depth * gap)
        self.row_width_of_depth[depth] = columns * (width + gap) - gap

    def _size(self, view: DomainView | NodeView, depth: int) -> tuple[float, float]:
        if isinstance(view, NodeView):
            return node_size(len(view.holder_of_gpu), self.scale)
        box = self.domain(view, depth)
        return box.width, box.height

    def gap(self, depth: int) -> float:
        """Return the room between and around the boxes in a domain; wider domains have more."""
        inner = max(self.row_width_of_depth, default=depth)
        return self.scale.padding + 2 * max(0, inner - depth)

    def domain(self, view: DomainView, depth: int) -> Box:
        gap = self.gap(depth)
        margin, head = (gap, head_height(self.scale)) if depth else (0.0, 0.0)
        widest = margin + self.row_width_of_depth[depth]
        x, y, row_height, right = margin, margin + head, 0.0, 0.0
        inside: list[Box] = []
        for each in view.inside:
            box = self._box(each, depth + 1)
            if inside and x + box.width > widest + 0.01 and x > margin:
                x, y, row_height = margin, y + row_height + gap, 0.0
            inside.append(replace(box, x=x, y=y))
            right = max(right, x + box.width)
            x, row_height = x + box.width + gap, max(row_height, box.height)
        return Box(0, 0, right + margin, y + row_height + margin, view, tuple(inside))

    def _box(self, view: DomainView | NodeView, depth: int) -> Box:
        if isinstance(view, NodeView):
            return Box(0, 0, *node_size(len(view.holder_of_gpu), self.scale), view)
        return self.domain(view, depth)


def _columns(count: int, width: float, height: float, room: float) -> int:
    """Return how many boxes of a size stand in a row: near the wished aspect, with few gaps in the last row."""

    def badness(columns: int) -> float:
        rows = ceil(count / columns)
        gaps = 1 - count / (rows * columns)
        aspect = columns * width / (rows * height)
        return abs(log(aspect / _WISHED_ASPECT)) + _WEIGHT_OF_GAPS * gaps

    most = max(1, min(count, int(room // width)))
    return min(range(1, most + 1), key=badness)
