"""The drawing of a fabric as SVG: boxes of the layout, filled by holder.

A machine's frame and its free cells are drawn once and used by all its nodes; what is taken of a node is one path per
holder. So two thousand nodes of eight GPUs are some thousand elements, not sixteen thousand.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from gantree.web.fabric.layout import (
    Box,
    Scale,
    head_height,
    lay_out,
    node_size,
    place_of_gpu,
    scale_for,
    shared_start,
    shortened,
)
from gantree.web.fabric.scene import FREE, DomainView, Holder, NodeView, Scene, percent
from gantree.web.fabric.style import SIGNS, STYLE, ink, paint, patterns, swatch

_LEAST_READABLE_PX = 9.0
_LEGEND_ROWS = 40
_LEGEND_FONT = 12.0
_LEGEND_STEP = 18.0
_LEGEND_COLUMN = 280.0
_LEGEND_CHARS = 36


@dataclass(frozen=True, slots=True)
class Drawing:
    """A drawing without its <svg> element. near: the zoom from which small letters can be read."""

    width: float
    height: float
    body: str
    near: float


def draw(scene: Scene) -> Drawing:
    """Return the boxes of a cluster."""
    scale = scale_for(scene.root.gpus, len(scene.nodes))
    box = lay_out(scene.root, scale)
    counts = sorted({len(node.holder_of_gpu) for node in scene.nodes})
    definitions = "".join(_blank_node(gpus, scale) for gpus in counts)
    textures = patterns(holder.look for holder in scene.holders)
    shapes = "\n".join(_Pen(scale, scene.holders).domain(box, 0))
    return Drawing(
        box.width + 1,
        box.height + 1,
        f'<defs>{textures}{definitions}</defs>\n<g transform="translate(.5 .5)">{shapes}</g>',
        _LEAST_READABLE_PX / scale.node_font,
    )


def svg_element(drawing: Drawing, label: str) -> str:
    """Return the drawing as an element of a page, which has the style."""
    size = f'width="{_n(drawing.width)}" height="{_n(drawing.height)}"'
    box = f'viewBox="0 0 {_n(drawing.width)} {_n(drawing.height)}"'
    near = "" if drawing.near > 1 else " near"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="fabric{near}" {size} {box} role="img" '
        f'aria-label="{escape(label)}" data-near="{drawing.near:.2f}">\n{drawing.body}\n</svg>'
    )


def svg_document(scene: Scene, title: str, counts: str) -> str:
    """Return a drawing that stands alone, with its title, its counts and a legend."""
    drawing = draw(scene)
    width = max(drawing.width, 640.0)
    legend, legend_height = _legend(scene, width)
    top = 64.0
    height = top + drawing.height + legend_height + 16
    near = "" if drawing.near > 1 else " near"
    return f"""<?xml version="1.0" encoding="utf-8"?>
<svg xmlns="http://www.w3.org/2000/svg" class="fabric{near}" width="{_n(width + 32)}" height="{_n(height)}" \
viewBox="-16 0 {_n(width + 32)} {_n(height)}">
<title>{escape(title)}</title><style>{STYLE} svg {{ background: var(--page) }}</style>
<text y="28" font-size="18" font-weight="600">{escape(title)}</text>
<text y="48" font-size="13" class="q">{escape(counts)}</text>
<g transform="translate(0 {_n(top)})">{drawing.body}</g>
<g transform="translate(0 {_n(top + drawing.height + 12)})">{legend}</g>
</svg>
"""


def _legend(scene: Scene, width: float) -> tuple[str, float]:
    """Return the signs and the holders in columns, and the height that they take."""
    entries = [(sign.shape, sign.meaning) for sign in SIGNS]
    entries += [
        (
            swatch(holder.look),
            f"{holder.code}: {holder.name}, {holder.gpus:,} GPU{'s' * (holder.gpus != 1)}",
        )
        for holder in scene.holders
    ]
    columns = max(1, int(width // _LEGEND_COLUMN))
    room = columns * _LEGEND_ROWS
    left_out = len(entries) - room
    if left_out > 0:
        entries = [*entries[: room - 1], ("", f"{left_out + 1} others")]
    rows = -(-len(entries) // columns)
    drawn = "".join(
        f'<g transform="translate({_n(number // rows * _LEGEND_COLUMN)} {_n(number % rows * _LEGEND_STEP)})">'
        f'{shape}<text x="20" y="11" font-size="{_LEGEND_FONT:g}">'
        f"{escape(text if len(text) <= _LEGEND_CHARS else text[: _LEGEND_CHARS - 1] + '…')}</text></g>\n"
        for number, (shape, text) in enumerate(entries)
    )
    return drawn, rows * _LEGEND_STEP + 12


def _blank_node(gpus: int, scale: Scale) -> str:
    """Return the definition of a node's frame and free cells, for machines with so many GPUs."""
    width, height = node_size(gpus, scale)
    frame = (
        f'<rect class="b" width="{_n(width)}" height="{_n(height)}" rx="{_n(scale.padding / 2)}"/>'
    )
    cells = _cells([place_of_gpu(gpu, gpus, scale) for gpu in range(gpus)], scale.cell)
    free = f'<path class="f" d="{cells}"/>' if cells else ""
    return f'<g id="m{gpus}">{frame}{free}</g>'


def _cells(places: list[tuple[float, float]], side: float) -> str:
    size = _n(side)
    return "".join(f"M{_n(x)} {_n(y)}h{size}v{size}h-{size}z" for x, y in places)


class _Pen:
    """Draws boxes at one scale."""

    def __init__(self, scale: Scale, holders: Sequence[Holder]) -> None:
        self.scale = scale
        self.holders = holders

    def domain(self, box: Box, depth: int) -> Iterator[str]:
        """Yield a domain and all that is in it. The fabric itself has no frame."""
        assert isinstance(box.view, DomainView)
        yield f'<g transform="translate({_n(box.x)} {_n(box.y)})">'
        if depth:
            yield from self._frame(box, box.view, depth)
        nodes = [(each, each.view) for each in box.inside if isinstance(each.view, NodeView)]
        for (each, view), name in zip(nodes, self._names(nodes), strict=True):
            yield self._node(each, view, name)
        for each in box.inside:
            if isinstance(each.view, DomainView):
                yield from self.domain(each, depth + 1)
        yield "</g>"

    def _frame(self, box: Box, view: DomainView, depth: int) -> Iterator[str]:
        font, own = self.scale.domain_font, view.name.rpartition("/")[2]
        words = [
            f"{view.tier} {view.name}",
            f"{view.free_gpus:,} of {view.gpus:,} GPU{'s' * (view.gpus != 1)} free",
        ]
        words += [f"health {percent(view.health)}"] if view.health < 1 else []
        words += [f"load {percent(view.load)}"] if view.load > 0 else []
        classes = f"d d{depth % 2}" + (
            " dead" if view.health == 0 else " low" if view.health < 1 else ""
        )
        size = f'width="{_n(box.width)}" height="{_n(box.height)}" rx="{_n(self.scale.padding)}"'
        yield f'<g><title>{escape(chr(10).join(words))}</title><rect class="{classes}" {size}/>'
        margin, base = self.scale.padding + 1, head_height(self.scale) * 0.78
        room = box.width - 2 * margin
        signs, signs_width = self._signs(view, box.width - margin, base)
        name = shortened(f"{view.tier} {own}", room - signs_width, font)
        counts = f"{view.free_gpus:,}/{view.gpus:,} free"
        fits = (len(name) + len(counts) + 3) * font * 0.58 < room - signs_width
        more = (
            f'<tspan class="q" font-weight="400" dx="{_n(font * 0.7)}">{counts}</tspan>'
            if fits
            else ""
        )
        yield (
            f'<text x="{_n(margin)}" y="{_n(base)}" font-size="{_n(font)}" font-weight="600">'
            f"{escape(name)}{more}</text>{signs}</g>"
        )

    def _signs(self, view: DomainView, right: float, base: float) -> tuple[str, float]:
        """Return health and load of a domain, set from the right, and the width that they take."""
        font, drawn, left = self.scale.domain_font, "", right
        if view.load > 0:
            wide = font * 3.2
            left -= wide
            high, y = font * 0.42, base - font * 0.55
            drawn += _bar(left, y, wide, high, view.load)
            left -= font * 2.6
            drawn += f'<text class="q" x="{_n(left)}" y="{_n(base)}" font-size="{_n(font * 0.85)}">load</text>'
        if view.health < 1:
            shown = percent(view.health)
            left -= font * (0.62 * len(shown) + 1.6)
            sign = "w" if view.health else "w dead"
            drawn += _triangle(left, base, font * 0.85, sign)
            drawn += f'<text x="{_n(left + font * 1.05)}" y="{_n(base)}" font-size="{_n(font * 0.9)}">{shown}</text>'
        return drawn, right - left

    def _names(self, nodes: list[tuple[Box, NodeView]]) -> list[str]:
        """Return the names of a domain's nodes; where one has no room, all without the start that they share."""
        names, font = [view.name for _, view in nodes], self.scale.node_font
        rooms = [box.width - 2 * self.scale.padding for box, _ in nodes]
        if all(
            shortened(name, room, font) == name for name, room in zip(names, rooms, strict=True)
        ):
            return names
        start = len(shared_start(names))
        return [f"…{name[start:]}" if start else name for name in names]

    def _node(self, box: Box, view: NodeView, name: str) -> str:
        scale, gpus = self.scale, len(view.holder_of_gpu)
        states = ["n"] + (["o"] if not view.usable else ["l"] if not view.whole else [])
        name = shortened(name, box.width - 2 * scale.padding, scale.node_font)
        hidden = "" if scale.node_font >= _LEAST_READABLE_PX else ' class="s"'
        base = _n(scale.padding / 2 + scale.node_font)
        place = f'x="{_n(scale.padding)}" y="{base}" font-size="{_n(scale.node_font)}"'
        label = f"<text{hidden} {place}>{escape(name)}</text>"
        return (
            f'<g class="{" ".join(states)}" transform="translate({_n(box.x)} {_n(box.y)})" '
            f'data-k="{" ".join(_keys(view))}"><title>{escape(chr(10).join(view.words))}</title>'
            f'<use href="#m{gpus}"/>{label}{self._held(view)}{self._condition(box, view)}</g>'
        )

    def _held(self, view: NodeView) -> str:
        """Return the cells that are not free: one path per holder, and the letters of its code."""
        gpus, side = len(view.holder_of_gpu), self.scale.cell
        places = [place_of_gpu(gpu, gpus, self.scale) for gpu in range(gpus)]
        drawn = ""
        if not view.usable and FREE in view.holder_of_gpu:
            idle = [
                place for place, who in zip(places, view.holder_of_gpu, strict=True) if who == FREE
            ]
            drawn += f'<path class="x" d="{_cells(idle, side)}"/>'
        for number in view.holders:
            own = [
                place
                for place, who in zip(places, view.holder_of_gpu, strict=True)
                if who == number
            ]
            if own:
                drawn += f'<path class="h" fill="{paint(self.holders[number].look)}" d="{_cells(own, side)}"/>'
                drawn += self._codes(number, own if self.scale.with_codes else own[:1])
        return drawn

    def _codes(self, number: int, places: list[tuple[float, float]]) -> str:
        """Return a holder's letters in these cells; they are shown once they can be read."""
        code, colour = self.holders[number].code, ink(self.holders[number].look)
        font = self.scale.cell * min(0.7, 1.5 / len(code))
        hidden = "" if self.scale.with_codes else " s"
        middle = self.scale.cell / 2
        return "".join(
            f'<text class="c{hidden}" x="{_n(x + middle)}" y="{_n(y + middle + font * 0.35)}" '
            f'font-size="{_n(font)}" style="fill:{colour}">{code}</text>'
            for x, y in places
        )

    def _condition(self, box: Box, view: NodeView) -> str:
        """Return the triangle of a node that is not whole or has such a NIC, and the bar of its load."""
        scale, drawn = self.scale, ""
        if not view.whole:
            side = max(scale.node_font, 5) * 0.9
            sign = "w dead" if any(nic.health == 0 for nic in view.nics) else "w"
            drawn += _triangle(
                box.width - side - scale.padding / 2, side + scale.padding / 2, side, sign
            )
        if view.load > 0:
            width = box.width - 2 * scale.padding
            y = box.height - scale.padding / 2 - scale.bar
            drawn += _bar(scale.padding, y, width, scale.bar, view.load)
        return drawn


def _keys(view: NodeView) -> Iterator[str]:
    """Yield what the page's filter may ask of a node: numbers of holders, and states."""
    yield from (str(number) for number in view.holders)
    if view.free_gpus:
        yield "free"
    if not view.usable:
        yield "out"
    if not view.whole:
        yield "low"
    if view.load > 0:
        yield "load"


def _bar(x: float, y: float, width: float, height: float, part: float) -> str:
    filled = max(width * part, 0.5)
    return (
        f'<path class="t" d="M{_n(x)} {_n(y)}h{_n(width)}v{_n(height)}h-{_n(width)}z"/>'
        f'<path class="u" d="M{_n(x)} {_n(y)}h{_n(filled)}v{_n(height)}h-{_n(filled)}z"/>'
    )


def _triangle(x: float, base: float, side: float, sign: str) -> str:
    half, high = _n(side / 2), _n(side * 0.9)
    return f'<path class="{sign}" d="M{_n(x)} {_n(base)}l{half} -{high}l{half} {high}z"/>'


def _n(value: float) -> str:
    """Return a length with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
