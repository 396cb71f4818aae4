"""HTML of a page with charts: its frame, sections and tables. What a section is about is decided elsewhere.

The charts are Vega-Lite in one JSON element; the scripts that draw them (Vega, Vega-Lite, vega-embed) stand in the page
once. A content security policy forbids every request. Below each chart its rows can be opened as a table.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape

from gantree.sim.charts import Chart, theme, vl_convert_library

STYLE = """
:root { color-scheme: light dark; --line: light-dark(#d5dae0, #363d44); --faint: light-dark(#59626b, #a3adb7) }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem;
       color: light-dark(#1b1f23, #e6e9ec); background: light-dark(#ffffff, #14171a) }
h1 { font-size: 1.4rem } h2 { font-size: 1.15rem; margin: 2.5rem 0 .3rem } p { margin: .3rem 0; max-width: 46rem }
.note, summary { color: var(--faint) } table { border-collapse: collapse; margin: .6rem 0 }
th { text-align: left; font-weight: 500; color: var(--faint) }
td, th { padding: .15rem 1.2rem .15rem 0; vertical-align: top }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums } tr + tr td { border-top: 1px solid var(--line) }
.chart { overflow-x: auto; margin: .8rem 0 0 } .chart svg { max-width: 100%; height: auto }
details div { max-height: 24rem; overflow: auto } .figures { columns: 2; column-gap: 3rem }
@media (max-width: 42rem) { .figures { columns: 1 } }
"""

DRAW = """
const charts = JSON.parse(document.getElementById("charts").textContent);
const themes = JSON.parse(document.getElementById("themes").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
async function draw() {
  for (const [id, spec] of Object.entries(charts))
    await vegaEmbed("#" + id, spec,
      { actions: false, renderer: "svg", ast: true, config: dark.matches ? themes.dark : themes.light });
  document.body.dataset.drawn = "yes";
}
const columns = spec => (spec.encoding?.tooltip ?? spec.layer?.map(columns).find(c => c) ?? null);
function fill(details) {
  const spec = charts[details.dataset.chart], shown = columns(spec), table = document.createElement("table");
  const line = (cell, texts) => {
    const row = table.insertRow();
    for (const text of texts) row.appendChild(document.createElement(cell)).textContent = text;
  };
  line("th", shown.map(c => c.title));
  for (const value of spec.data.values) line("td", shown.map(c => value[c.field] ?? ""));
  const box = document.createElement("div");
  box.append(table);
  details.append(box);
}
for (const each of document.querySelectorAll("details[data-chart]"))
  each.addEventListener("toggle", () => fill(each), { once: true });
dark.addEventListener("change", draw);
draw();
"""

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
"""What the page may load: nothing but what stands in it."""

SMALL = 1e-3
"""Numbers below it would be 0 with three decimal places."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts and numbers under a head; numbers are written with at most three decimal places, None as "-"."""

    head: Sequence[str]
    rows: Sequence[Sequence[str | float | None]]


@dataclass(frozen=True, slots=True)
class Section:
    """One section: a heading, sentences about how to read it, charts, tables below them."""

    heading: str
    notes: Sequence[str] = ()
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()


def document(title: str, lead: str, sections: Iterable[Section]) -> str:
    """The whole page. Raises Unsupported where the extra with the charts is not installed."""
    specs: dict[str, object] = {}
    body = "".join(_section(section, specs) for section in sections)
    themes = {"light": theme(), "dark": theme(dark=True)}
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">
<title>{escape(title)}</title><style>{STYLE}</style></head><body>
<h1>{escape(title)}</h1><p>{escape(lead)}</p>
<noscript><p>The charts need JavaScript. Their numbers are in the files beside this page.</p></noscript>
{body}<script type="application/json" id="charts">{_json(specs)}</script>
<script type="application/json" id="themes">{_json(themes)}</script>
<script>{_scripts()}</script><script>{DRAW}</script>
</body></html>
"""


@cache
def _scripts() -> str:
    """Vega, Vega-Lite and vega-embed, which set `vegaEmbed`; a closing tag in them would end the element."""
    scripts: str = vl_convert_library().javascript_bundle()
    return scripts.replace("</script", "<\\/script")


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def _section(section: Section, specs: dict[str, object]) -> str:
    notes = "".join(f'<p class="note">{escape(note)}</p>\n' for note in section.notes)
    charts = "".join(_chart(chart, specs) for chart in section.charts)
    tables = "".join(map(_table, section.tables))
    return f"<section><h2>{escape(section.heading)}</h2>\n{notes}{charts}{tables}</section>\n"


def _chart(chart: Chart, specs: dict[str, object]) -> str:
    name = f"chart{len(specs) + 1}"
    specs[name] = chart.spec
    return (
        f'<div class="chart" id="{name}"></div>\n'
        f'<details data-chart="{name}"><summary>Table</summary></details>\n'
    )


def _table(table: Table) -> str:
    numeric = [
        all(not isinstance(row[column], str) for row in table.rows)
        for column in range(len(table.head))
    ]
    head = "".join(
        f'<th class="n">{escape(name)}</th>' if number else f"<th>{escape(name)}</th>"
        for name, number in zip(table.head, numeric, strict=True)
    )
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in table.rows)
    return f"<table><tr>{head}</tr>\n{rows}</table>\n"


def _cell(value: str | float | None) -> str:
    if isinstance(value, str):
        return f"<td>{escape(value)}</td>"
    return f'<td class="n">{number_text(value)}</td>'


def number_text(value: float | None) -> str:
    """A number for people: thousands apart, three decimal places, or digits of what is smaller; "-" for none."""
    if value is None:
        return "-"
    if 0 < abs(value) < SMALL:
        return f"{value:.3g}"
    text = f"{value:,.3f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
