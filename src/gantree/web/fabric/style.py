"""Colours, textures, style and script of the drawing of a fabric.

Nothing is told by colour alone: what is free is hollow, what is taken is filled and has letters, what is out of use is
cross-hatched in a dashed frame, a lowered health is a triangle, load is the length of a bar. Holders have the seven
hues that Okabe and Ito chose to be told apart by all kinds of colour vision, in four textures, and a code of letters.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from zlib import crc32

HUES = ("#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#0072b2", "#d55e00", "#f0e442")
_WHITE_ON = frozenset({"#0072b2"})
"""Hues on which white letters read better than black ones."""
_TEXTURES = (
    "",
    '<path d="M-1 1l2-2M0 4l4-4M3 5l2-2" stroke="#fff" stroke-opacity=".75" stroke-width="1"/>',
    '<path d="M1 0v4" stroke="#000" stroke-opacity=".65" stroke-width="1.3"/>',
    '<path d="M0 1h4" stroke="#fff" stroke-opacity=".85" stroke-width="1.4"/>',
)
LOOKS = len(HUES) * len(_TEXTURES)
"""Several holders may have one look; codes, titles and the filter still tell them apart."""

STYLE = """
:root { color-scheme: light dark; --page: #fff; --text: #1c2733; --faint: #51606f; --line: #b8c2cc; --box: #f7f9fb;
  --deep: #eef2f6; --node: #fff; --free: #fff; --free-line: #9aa7b4; --hatch: #51606f; --bad: #b3261e; --warn: #9a6700;
  --load: #1c2733; --track: #d5dce3; --mark: #1668b8 }
@media (prefers-color-scheme: dark) { :root { --page: #12181f; --text: #dfe6ee; --faint: #93a3b3; --line: #3a4754;
  --box: #171f28; --deep: #1d2731; --node: #12181f; --free: #12181f; --free-line: #5c6b7a; --hatch: #93a3b3;
  --bad: #ff8a80; --warn: #f2c14e; --load: #dfe6ee; --track: #33404c; --mark: #6bb0f2 } }
svg.fabric { font-family: system-ui, sans-serif }
.fabric text { fill: var(--text); stroke: none }
.d { fill: var(--box); stroke: var(--line) } .d1 { fill: var(--deep) }
.low { stroke: var(--warn); stroke-width: 1.5 } .dead { stroke: var(--bad); stroke-dasharray: 5 3 }
.n { fill: var(--node); stroke: var(--line); stroke-width: .7 }
.n.l { stroke: var(--warn); stroke-width: 1 }
.n.o { fill: url(#veil); stroke: var(--bad); stroke-width: 1; stroke-dasharray: 3 2 }
.f { fill: var(--free); stroke: var(--free-line); stroke-width: .6; stroke-dasharray: none }
.x { fill: url(#hatch); stroke: var(--hatch); stroke-width: .6; stroke-dasharray: none }
.h { stroke: #000; stroke-opacity: .45; stroke-width: .5; stroke-dasharray: none }
.fabric text.q, .fabric .q { fill: var(--faint) } .fabric .s { display: none } .fabric.near .s { display: inline }
.w { fill: var(--warn); stroke: none } .o .w, .w.dead { fill: var(--bad) }
.t { fill: var(--track); stroke: none } .u { fill: var(--load); stroke: none }
.fabric text.c { text-anchor: middle; font-weight: 600 }
.o > text:not(.c) { paint-order: stroke; stroke: var(--node); stroke-width: 3px }
.fabric.sought .n { opacity: .13 } .fabric.sought .n.hit { opacity: 1 }
.n.found { fill: var(--mark); stroke: var(--mark); stroke-width: 2 }
"""

SCRIPT = """
(() => {
const view = document.getElementById('view'), svg = view.querySelector('svg');
const nodes = [...svg.querySelectorAll('.n')], told = document.getElementById('told');
const seek = document.getElementById('seek'), matches = document.getElementById('matches');
const wide = svg.width.baseVal.value, high = svg.height.baseVal.value, near = +svg.dataset.near;
const words = nodes.map(n => n.firstElementChild.textContent.toLowerCase());
const buttons = [...document.querySelectorAll('button[data-only]')];
let zoom = 1, only = '', at = -1, hits = [];
function resize(to, x, y) {
  const box = view.getBoundingClientRect();
  x = x === undefined ? box.width / 2 : x - box.left; y = y === undefined ? box.height / 2 : y - box.top;
  const left = (view.scrollLeft + x) / zoom, top = (view.scrollTop + y) / zoom;
  zoom = Math.min(16, Math.max(.1, to));
  svg.setAttribute('width', wide * zoom); svg.setAttribute('height', high * zoom);
  svg.classList.toggle('near', zoom >= near);
  view.scrollLeft = left * zoom - x; view.scrollTop = top * zoom - y;
}
const breadth = () => (view.clientWidth - 2) / wide;
const whole = () => resize(Math.min(breadth(), (view.clientHeight - 2) / high));
function filter() {
  const wanted = seek.value.trim().toLowerCase(), any = wanted !== '' || only !== '';
  hits = nodes.filter((node, i) => (wanted === '' || words[i].includes(wanted))
    && (only === '' || node.dataset.k.split(' ').includes(only)));
  nodes.forEach(node => node.classList.remove('hit', 'found'));
  if (any) hits.forEach(node => node.classList.add('hit'));
  svg.classList.toggle('sought', any); at = -1;
  matches.textContent = any ? hits.length.toLocaleString('en') + (hits.length === 1 ? ' node' : ' nodes') : '';
  buttons.forEach(b => b.setAttribute('aria-pressed', b.dataset.only === only));
}
function next(step) {
  if (!hits.length || !svg.classList.contains('sought')) return;
  if (at >= 0) hits[at].classList.remove('found');
  at = at < 0 ? (step > 0 ? 0 : hits.length - 1) : (at + step + hits.length) % hits.length;
  hits[at].classList.add('found'); hits[at].scrollIntoView({block: 'center', inline: 'center'});
  tell(hits[at]);
}
function tell(node) {
  told.textContent = node ? node.firstElementChild.textContent.split('\\n').join('  \\u00b7  ') : told.dataset.rest;
}
seek.addEventListener('input', filter);
seek.addEventListener('keydown', e => { if (e.key === 'Enter') next(e.shiftKey ? -1 : 1);
  if (e.key === 'Escape') { seek.value = ''; only = ''; filter(); } });
buttons.forEach(b => b.addEventListener('click', () => {
  only = only === b.dataset.only ? '' : b.dataset.only; filter(); }));
document.getElementById('in').addEventListener('click', () => resize(zoom * 1.5));
document.getElementById('out').addEventListener('click', () => resize(zoom / 1.5));
document.getElementById('wide').addEventListener('click', () => resize(breadth()));
document.getElementById('whole').addEventListener('click', whole);
view.addEventListener('wheel', e => { if (!e.ctrlKey && !e.metaKey) return;
  e.preventDefault(); resize(zoom * Math.exp(-e.deltaY / 300), e.clientX, e.clientY); }, {passive: false});
view.addEventListener('pointerover', e => tell(e.target.closest('.n')));
view.addEventListener('pointerleave', () => tell(null));
let held = null;
view.addEventListener('pointerdown', e => { if (e.button === 0 && e.pointerType === 'mouse')
  held = [e.clientX + view.scrollLeft, e.clientY + view.scrollTop]; });
window.addEventListener('pointermove', e => { if (!held) return; view.classList.add('held');
  view.scrollLeft = held[0] - e.clientX; view.scrollTop = held[1] - e.clientY; });
window.addEventListener('pointerup', () => { held = null; view.classList.remove('held'); });
document.addEventListener('keydown', e => { if (e.target.closest('input') || e.ctrlKey || e.metaKey || e.altKey) return;
  const act = {'+': () => resize(zoom * 1.5), '=': () => resize(zoom * 1.5), '-': () => resize(zoom / 1.5),
    '0': () => resize(breadth()), '/': () => { e.preventDefault(); seek.focus(); }}[e.key];
  if (act) act(); });
resize(Math.min(breadth(), 1.5), 0, 0); view.scrollLeft = view.scrollTop = 0;
const asked = new URLSearchParams(location.hash.slice(1)).get('find'); if (asked) { seek.value = asked; filter(); }
})();
"""


@dataclass(frozen=True, slots=True)
class Sign:
    """A line of the legend: the word that nodes carry for the filter, a shape of 14 by 14, what it means."""

    key: str
    shape: str
    meaning: str


SIGNS = (
    Sign("free", '<rect class="f" x="1" y="1" width="12" height="12"/>', "free"),
    Sign("out", '<rect class="x" x="1" y="1" width="12" height="12"/>', "out of use; dashed frame"),
    Sign("low", '<path class="w" d="M1 13l6 -11l6 11z"/>', "health below 100 %, own or a NIC's"),
    Sign(
        "load",
        '<path class="t" d="M0 5h14v4h-14z"/><path class="u" d="M0 5h8v4h-8z"/>',
        "load: use of the up-links",
    ),
)


def look_of(job: str) -> int:
    """Return the number of a job's look, from its id alone: the same in all pictures, on pages and in files.

    `heat_look.js` computes the same; a test holds the two equal.
    """
    return crc32(job.encode()) % LOOKS


def hue_of(job: str) -> int:
    """Return the number of the hue in a job's look."""
    return look_of(job) % len(HUES)


def swatch(look: int) -> str:
    """Return a holder's fill as a shape of 14 by 14."""
    return f'<rect class="h" x="1" y="1" width="12" height="12" fill="{paint(look)}"/>'


def paint(look: int) -> str:
    """Return the fill of a holder's GPUs: a hue, or a texture in it."""
    return HUES[look] if look < len(HUES) else f"url(#p{look})"


def ink(look: int) -> str:
    """Return the colour of letters on a holder's fill."""
    return "#fff" if HUES[look % len(HUES)] in _WHITE_ON else "#000"


def patterns(looks: Iterable[int]) -> str:
    """Return the definitions of the textures of these looks, and of the hatch for what is out of use."""
    hatch = (
        '<pattern id="hatch" width="4" height="4" patternUnits="userSpaceOnUse"><path d="M0 0l4 4M4 0l-4 4" '
        'style="stroke:var(--hatch);stroke-width:.7;stroke-dasharray:none"/></pattern>'
        '<pattern id="veil" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" '
        'style="fill:var(--node);stroke:none"/><path d="M0 0l6 6M6 0l-6 6" '
        'style="stroke:var(--free-line);stroke-width:.5;stroke-dasharray:none"/></pattern>'
    )
    textured = (
        f'<pattern id="p{look}" width="4" height="4" patternUnits="userSpaceOnUse">'
        f'<rect width="4" height="4" fill="{HUES[look % len(HUES)]}"/>'
        f"{_TEXTURES[look // len(HUES)]}</pattern>"
        for look in sorted(set(looks))
        if look >= len(HUES)
    )
    return hatch + "".join(textured)
