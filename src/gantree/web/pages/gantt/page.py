"""The Gantt page: past and running attempts and reservations, as a chart and as a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from gantree.api.access.access import CurrentCaller
from gantree.api.access.permissions import Need, needs
from gantree.api.backend import QueryBackend
from gantree.control.requests.read_view import ReadView
from gantree.web.pages.frame import page_router, render
from gantree.web.pages.gantt.layout import (
    LABEL_WIDTH,
    NOWHERE,
    By,
    Picture,
    Places,
    Span,
    fitted,
    order_of_jobs,
    picture,
)
from gantree.web.pages.gantt.scene import Bar, bars_between, redacted
from gantree.web.pages.visibility import visible_jobs

Zoom = Literal["fit", "15m", "1h", "6h", "1d", "7d", "30d"]
WIDTHS_S: Final[dict[Zoom, float]] = {
    "fit": 43_200.0, "15m": 900.0, "1h": 3600.0, "6h": 21_600.0, "1d": 86_400.0, "7d": 604_800.0, "30d": 2_592_000.0,
}  # fmt: skip
MOST_ROWS, MOST_IN_TABLE = 400, 300
LATEST = 4e9
"""Moments beyond the year 2096 are no moments that anybody means."""


@dataclass(frozen=True, slots=True)
class GanttQuery:
    """What of time is to be shown: at is the middle, None: now.

    The zoom "fit" shows what there is within six hours of now, without the time before the first and after the last
    bar.
    """

    by: By
    zoom: Zoom
    at: float | None
    find: str
    rows: int

    def span(self, now: float) -> Span:
        """The time that is shown."""
        middle, width_s = now if self.at is None else self.at, WIDTHS_S[self.zoom]
        return Span(middle - width_s / 2, middle + width_s / 2)

    def address(self, **other: object) -> str:
        """The query of this page with some of it otherwise."""
        own: dict[str, object] = {
            "by": self.by,
            "zoom": self.zoom,
            "at": self.at,
            "find": self.find,
            "rows": self.rows,
        }
        return urlencode({name: value for name, value in {**own, **other}.items() if value})


def router(reads: QueryBackend) -> APIRouter:
    """The route of the page."""
    routes = page_router()

    @routes.get("/gantt", **needs(Need.KNOWN))
    async def gantt(
        request: Request,
        caller: CurrentCaller,
        by: By = "job",
        zoom: Zoom = "fit",
        at: Annotated[float | None, Query(ge=0, le=LATEST)] = None,
        find: Annotated[str, Query(max_length=256)] = "",
        rows: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 50,
    ) -> Response:
        """The page."""
        query = GanttQuery(by, zoom, at, find.strip(), rows)
        now = await reads.read(now_of)
        span = query.span(now)
        complete = False
        bars: list[Bar] = []
        while not complete:
            complete, now, bars = await reads.read(bars_between, span.since, span.until)
        if zoom == "fit" and at is None:
            span = fitted(bars, span, now)
        places = NOWHERE if by == "job" else await reads.read(node_places)
        shown = _matching(list(redacted(bars, visible_jobs(caller))), query)
        drawn = picture(shown, by, span, now, rows, places, query.find.lower())
        return render(request, caller, "gantt.html", **_context(query, drawn, span, shown, places))

    return routes


def now_of(view: ReadView) -> float:
    """Now, in seconds since 1970."""
    return view.now


def node_places(view: ReadView) -> Places:
    """The nodes with their GPUs, and the domain right above each."""
    fabric = view.ledger.fabric
    if fabric is None:
        return NOWHERE
    above = fabric.node_tier - 1
    domains = fabric.domain_of_node[above].tolist()
    names = [fabric.names_of_domain[above][domain] or fabric.cluster.name for domain in domains]
    nodes = [node.name for node in fabric.nodes]
    return Places(
        dict(zip(nodes, fabric.gpus_of_node.tolist(), strict=True)),
        dict(zip(nodes, names, strict=True)),
        fabric.tiers[above],
    )


def _matching(bars: list[Bar], query: GanttQuery) -> list[Bar]:
    """Bars that a search finds, by job, queue, user, node or domain."""
    sought = query.find.lower()

    def hit(bar: Bar) -> bool:
        words = (bar.job, bar.queue, bar.user, bar.domain, *bar.gpus_of_node)
        return not sought or any(sought in word.lower() for word in words)

    return order_of_jobs(bars, hit)


def _context(
    query: GanttQuery, drawn: Picture, span: Span, bars: Sequence[Bar], places: Places
) -> dict[str, Any]:
    step_s = (span.until - span.since) / 2
    middle = (span.since + span.until) / 2
    table = sorted((bar for bar in bars if bar.job), key=lambda bar: -bar.since)
    return {
        "query": query,
        "picture": drawn,
        "span": span,
        "label_width": LABEL_WIDTH,
        "zooms": list(WIDTHS_S),
        "domain_tier": places.tier or "domain",
        "earlier": query.address(at=round(middle - step_s)),
        "later": query.address(at=round(middle + step_s)),
        "to_now": query.address(at=None),
        "table": table[:MOST_IN_TABLE],
        "left_out_of_table": max(0, len(table) - MOST_IN_TABLE),
        "words": bar_words,
        "clock": clock,
    }


KIND_WORDS: Final = {
    "past": "ran",
    "running": "runs",
    "guessed": "probably still runs",
    "limit": "may run until its time limit",
    "promised": "starts: promised",
    "estimated": "starts: estimated",
}


def bar_words(bar: Bar) -> str:
    """A bar as text, for screen readers, without its times."""
    name = f"{bar.job}, attempt {bar.attempt}" if bar.job else "taken"
    what = KIND_WORDS[bar.kind] + (f", {bar.how}" if bar.how and bar.kind != "running" else "")
    by = f" for {bar.by}" if bar.by else ""
    nodes = len(bar.gpus_of_node)
    where = next(iter(bar.gpus_of_node), "") if nodes == 1 else f"{nodes} nodes"
    return f"{name}: {what}{by}; {bar.gpus} GPU{'' if bar.gpus == 1 else 's'} on {where}"


def clock(at: float) -> str:
    """A moment in the least words that a picture has room for; the browser writes them in its zone."""
    return f"{datetime.fromtimestamp(min(at, LATEST), UTC):%d %b %H:%M}"
