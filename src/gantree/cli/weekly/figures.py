"""What a report of a week is made of: the answers of a daemon about it, and about the week before."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from gantree.accounting.purposes import sums_of
from gantree.api.client.client import Client
from gantree.model.errors import BadInput, Forbidden

Json = dict[str, Any]
WEEK_S = 7 * 86_400.0
WASTERS = 10
DAYS_OF_SIGNS = 28


@dataclass(frozen=True, slots=True)
class Week:
    """A week of ISO 8601, in UTC: from Monday, since, in seconds since 1970."""

    since: float

    @property
    def until(self) -> float:
        """Its end."""
        return self.since + WEEK_S

    @property
    def before(self) -> "Week":
        """The week before."""
        return Week(self.since - WEEK_S)

    @property
    def name(self) -> str:
        """As it is written: 2026-W48."""
        return f"{datetime.fromtimestamp(self.since, UTC):%G-W%V}"

    @property
    def days(self) -> str:
        """Its first and last day."""
        first = datetime.fromtimestamp(self.since, UTC)
        return f"{first:%Y-%m-%d} to {first + timedelta(days=6):%Y-%m-%d}"


def week_of(text: str | None, now: float) -> Week:
    """The week of a text such as 2026-W48; None: the last one that is over. Raises BadInput."""
    if text is None:
        today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        return Week((today - timedelta(days=today.weekday() + 7)).timestamp())
    try:
        monday = datetime.strptime(f"{text}-1", "%G-W%V-%u").replace(tzinfo=UTC)
    except ValueError:
        raise BadInput(f"--week: found {text!r}; allowed: a week such as 2026-W48") from None
    if monday.timestamp() > now:
        raise BadInput(f"--week: {text} is yet to come; allowed: a week that has begun")
    return Week(monday.timestamp())


@dataclass(frozen=True, slots=True)
class Figures:
    """The answers. days are the rows of each day, signs None where the caller may not see them."""

    week: Week
    now: float
    fleet: Json
    fleet_before: Json
    days: tuple[tuple[str, Json], ...]
    queues: tuple[Json, ...]
    waits: dict[str, Json]
    budgets: dict[str, list[Json]]
    waste: Json
    signs: Json | None


def json_of(figures: Figures) -> Json:
    """The figures for programs. Sums are GPU-hours by purpose; shares are from 0 to 1, null of nothing."""
    return {
        "week": figures.week.name,
        "since": figures.week.since,
        "until": min(figures.week.until, figures.now),
        "fleet": figures.fleet,
        "fleet_before": figures.fleet_before,
        "days": [{**sums, "name": day} for day, sums in figures.days],
        "queues": [{**row, "waits": figures.waits.get(row["name"])} for row in figures.queues],
        "budgets": figures.budgets,
        "waste": figures.waste["rows"],
        "node_signs": None if figures.signs is None else figures.signs["rows"],
    }


def read(daemon: Client, week: Week, now: float) -> Figures:
    """The figures of a week, from the daemon."""
    period: Json = {"step": "day", "since": week.since, "until": week.until - 1.0}
    whole = daemon.usage_history("all", **period)
    queues = daemon.usage_history("queue", **period)
    before = {**period, "since": week.before.since, "until": week.before.until - 1.0}
    waits = daemon.wait_history("queue", **period)
    return Figures(
        week,
        now,
        _sums(whole),
        _sums(daemon.usage_history("all", **before)),
        tuple(_days(whole)),
        tuple(_of_queue(row) for row in queues["rows"] if sum(row["allocated_gpu_s"]) > 0),
        {row["name"]: row["all"] for row in waits["rows"]},
        {row["queue"]: row["budgets"] for row in daemon.queues() if row["budgets"]},
        daemon.waste("job", since=week.since, until=week.until - 1.0, limit=WASTERS),
        _signs(daemon),
    )


COUNTS = ("submitted", "succeeded", "failed", "cancelled", "timed_out", "preempted")


def _sums(found: Json) -> Json:
    """Sums of all; of nothing, where nothing is on record."""
    row = found["rows"][0] if found["rows"] else None
    return _of_queue(row) if row is not None else {}


def _of_queue(row: Json) -> Json:
    return {**sums_of(row), **{name: sum(row[name]) for name in COUNTS}}


def _days(found: Json) -> list[tuple[str, Json]]:
    days = []
    for place, start in enumerate(found["starts"]):
        for row in found["rows"][:1]:
            of_day = {
                name: [value[place]] if isinstance(value, list) else value
                for name, value in row.items()
            }
            day = f"{datetime.fromtimestamp(start, UTC):%a %d %b}"
            days.append((day, sums_of(of_day)))
    return days


def _signs(daemon: Client) -> Json | None:
    try:
        found: Json = daemon.node_signs(days=DAYS_OF_SIGNS)
    except Forbidden:
        return None
    return found
