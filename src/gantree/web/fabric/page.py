"""The page of a fabric: holders, health and load, as one self-contained HTML file.

Nothing is loaded from elsewhere, and a policy in the page's head forbids it. Every name that came from a file or a job
is escaped.
"""

from html import escape

from gantree.model.cluster import Torus
from gantree.topology.fabric.conditions import Conditions
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy
from gantree.web.fabric.scene import Holder, PartitionView, Scene, scene_of
from gantree.web.fabric.style import SCRIPT, SIGNS, STYLE, Sign, swatch
from gantree.web.fabric.svg import draw, svg_document, svg_element

PAGE_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 0; padding: 1rem 1.25rem; color: var(--text);
  background: var(--page) }
h1 { font-size: 1.3rem; margin: 0 } h2 { font-size: 1rem; margin: 1.25rem 0 .4rem } p { margin: .2rem 0 .7rem }
:focus-visible { outline: 2px solid var(--mark) }
.counts b { font-variant-numeric: tabular-nums } .counts span { margin-right: 1.2rem; white-space: nowrap }
.share { height: 10px; border: 1px solid var(--line); border-radius: 5px; overflow: hidden; margin: .5rem 0 .8rem }
.share svg { display: block; height: 10px }
.tools { display: flex; flex-wrap: wrap; gap: .4rem; align-items: center; margin-bottom: .5rem }
input, button { font: inherit; color: inherit; background: var(--box); border: 1px solid var(--line);
  border-radius: 5px; padding: .2rem .6rem }
input { min-width: 19rem } button { cursor: pointer }
button:hover, button[aria-pressed=true] { border-color: var(--mark) }
button[aria-pressed=true] { box-shadow: inset 0 0 0 1px var(--mark) }
#matches, #told { color: var(--faint) }
#told { min-height: 1.5em; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; margin: 0 0 .4rem }
main { display: grid; grid-template-columns: minmax(0, 1fr) 17rem; gap: 1.25rem }
@media (max-width: 900px) { main { display: block } aside { margin-top: 1.25rem } }
#view { overflow: auto; max-height: calc(100vh - 11rem); min-height: 12rem; cursor: grab; scrollbar-width: thin }
#view.held { cursor: grabbing; user-select: none } #view svg { display: block }
aside { font-size: 13px } aside h2:first-child { margin-top: 0 }
.holders { max-height: calc(100vh - 26rem); min-height: 8rem; overflow: auto; scrollbar-width: thin }
.key { display: flex; width: 100%; gap: .5rem; align-items: center; text-align: left; padding: .1rem .3rem;
  border-color: transparent; border-radius: 4px; background: none }
.key svg { flex: none } .key span { flex: 1; overflow: hidden; text-overflow: ellipsis; white-space: nowrap }
.key b { min-width: 1.4rem } .key i { font-style: normal; color: var(--faint); font-variant-numeric: tabular-nums }
table { border-collapse: collapse } td, th { padding: .15rem 1.2rem .15rem 0; text-align: left }
td.r { text-align: right; font-variant-numeric: tabular-nums } tr + tr td { border-top: 1px solid var(--line) }
@media print { #view, .holders { max-height: none; overflow: visible } .tools, #told { display: none } }
"""

_CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def page(fabric: Fabric, occupancy: Occupancy, conditions: Conditions) -> str:
    """Return the whole HTML file."""
    scene = scene_of(fabric, occupancy, conditions)
    title = f"Fabric of {scene.name}"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="{_CONTENT_POLICY}">
<title>{escape(title)}</title><style>{STYLE}{PAGE_STYLE}</style></head><body>
<h1>{escape(title)}</h1>
<p class="counts">{_counts_html(scene)}</p>
{_share(scene)}
<div class="tools"><input id="seek" type="search" placeholder="Find a node, job, domain, partition…" aria-label="Find">
<span id="matches" role="status"></span><span style="flex:1"></span>
<button id="out" title="Zoom out (-)">&minus;</button><button id="in" title="Zoom in (+)">+</button>
<button id="wide" title="Fit the width (0)">Fit width</button><button id="whole">Fit all</button></div>
<p id="told" data-rest="{_REST}">{_REST}</p>
<main><div id="view" tabindex="0">{svg_element(draw(scene), title)}</div>
<aside>{_legend(scene)}</aside></main>
{_partitions(scene.partitions)}{_tori(fabric.cluster.tori)}
<script>{SCRIPT}</script></body></html>
"""


def svg(fabric: Fabric, occupancy: Occupancy, conditions: Conditions) -> str:
    """Return the drawing alone, as an SVG file with its legend."""
    scene = scene_of(fabric, occupancy, conditions)
    return svg_document(scene, f"Fabric of {scene.name}", ", ".join(_counts(scene)))


_REST = (
    "Point at a node for details. Ctrl and wheel: zoom; drag: move; /: search; Enter: next match."
)


def _counts(scene: Scene) -> list[str]:
    return [
        _many(len(scene.nodes), "node"),
        _many(scene.root.gpus, "GPU"),
        f"{scene.root.free_gpus:,} free",
        f"{scene.taken_gpus:,} taken by {_many(len(scene.holders), 'holder')}",
        f"{scene.idle_gpus:,} free on nodes out of use",
    ]


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _counts_html(scene: Scene) -> str:
    spans = []
    for count in _counts(scene):
        number, _, rest = count.partition(" ")
        spans.append(f"<span><b>{number}</b> {escape(rest)}</span>")
    return "".join(spans)


def _share(scene: Scene) -> str:
    """Return a bar of how many GPUs are taken, free, out of use; the words above it say the same."""
    total = max(1, scene.root.gpus)
    taken, idle = (100 * part / total for part in (scene.taken_gpus, scene.idle_gpus))
    parts = ((0.0, taken, 'class="u"'), (taken, idle, 'class="x"'))
    rects = "".join(
        f'<rect x="{start:.2f}%" width="{width:.2f}%" height="10" {look}/>'
        for start, width, look in parts
    )
    return f'<div class="share" aria-hidden="true"><svg class="fabric" width="100%">{rects}</svg></div>'


def _legend(scene: Scene) -> str:
    holders = "".join(_holder(number, holder) for number, holder in enumerate(scene.holders))
    return (
        "<h2>What is drawn</h2>"
        + "".join(_key(sign) for sign in SIGNS)
        + f"<h2>{_many(len(scene.holders), 'holder')}</h2>"
        + (f'<div class="holders">{holders}</div>' if holders else "<p>Nothing is taken.</p>")
    )


def _holder(number: int, holder: Holder) -> str:
    about = f"{_many(holder.gpus, 'GPU')} on {_many(holder.nodes, 'node')}"
    name = f'<b>{holder.code}</b><span title="{escape(holder.name)}: {about}">{escape(holder.name)}</span>'
    return _button(str(number), swatch(holder.look), f"{name}<i>{holder.gpus:,}</i>")


def _key(sign: Sign) -> str:
    return _button(sign.key, sign.shape, f"<span>{escape(sign.meaning)}</span>")


def _button(only: str, shape: str, inside: str) -> str:
    """Return a line of the legend, which is a switch too: it leaves only such nodes in the light."""
    return (
        f'<button class="key" data-only="{only}" aria-pressed="false">'
        f'<svg class="fabric" width="14" height="14" aria-hidden="true">{shape}</svg>{inside}</button>\n'
    )


def _partitions(partitions: tuple[PartitionView, ...]) -> str:
    if not partitions:
        return ""
    rows = "".join(
        f'<tr><td>{escape(each.partition)}</td><td>{escape(each.domain)}</td><td class="r">{each.nodes:,}</td>'
        f'<td class="r">{each.gpus:,}</td><td class="r">{each.free_gpus:,}</td></tr>\n'
        for each in partitions
    )
    head = "<tr><th>partition</th><th>domain</th><th>nodes</th><th>GPUs</th><th>free</th></tr>"
    return f"<h2>Further partitions of the nodes</h2><table>{head}{rows}</table>"


def _tori(tori: tuple[Torus, ...]) -> str:
    if not tori:
        return ""
    rows = "".join(
        f"<tr><td>{escape(torus.name)}</td><td>{_times(torus.dims)}</td><td>{_times(torus.host)}</td>"
        f'<td>{_closed(torus)}</td><td class="r">{len(torus.nodes):,}</td></tr>\n'
        for torus in tori
    )
    head = "<tr><th>torus</th><th>GPUs</th><th>of a node</th><th>axes that close</th><th>nodes</th></tr>"
    return f"<h2>Tori</h2><table>{head}{rows}</table>"


def _times(sides: tuple[int, ...]) -> str:
    return " &times; ".join(str(side) for side in sides)


def _closed(torus: Torus) -> str:
    return ", ".join(str(axis) for axis, wraps in enumerate(torus.wrap) if wraps) or "none"
