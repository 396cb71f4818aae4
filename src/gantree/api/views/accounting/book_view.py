"""The book of a period as plain JSON values: what statements are made of. No HTTP here.

An answer has the rows that its caller may see, and those of other queues without names, one a queue, so that shared
cost can be divided as it is for everybody.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, fields
from typing import Any

from gantree.accounting.billing.bill import BookRow
from gantree.accounting.billing.tariff import node_groups
from gantree.accounting.buckets import DAY_S, HOUR_S, Bucket
from gantree.accounting.meter import uncounted
from gantree.accounting.usage import UsageAmounts, UsageKey
from gantree.api.access.access import Caller
from gantree.api.access.permissions import Need, has
from gantree.control.history.levels import levels_of
from gantree.control.requests.read_view import ReadView
from gantree.model.errors import BadFields, Problem

Json = dict[str, Any]
FIGURES = tuple(each.name for each in fields(UsageAmounts))
OTHERS = "(other queue {})"
MOST_DAYS, DAYS_SHOWN = 366, 31
STEPS = {"hour": HOUR_S, "day": DAY_S}


def book(
    view: ReadView,
    caller: Caller,
    since: float | None,
    until: float | None,
    step: str,
    labels: Sequence[str],
) -> Json:
    """Rows of whole days of UTC, and how many GPUs the site's nodes have, by model and these labels.

    Raises BadFields for a period without a day, or of more than MOST_DAYS.
    """
    until = view.now if until is None else until
    end = -int(-until // DAY_S) * DAY_S
    first = end - DAYS_SHOWN * DAY_S if since is None else int(since // DAY_S) * DAY_S
    if not first < end <= first + MOST_DAYS * DAY_S:
        allowed = f"a time after `since`, by at most {MOST_DAYS} days"
        raise BadFields([Problem("request", None, "until", f"{until:g}", allowed)])
    rows = [
        *(BookRow(*row) for row in view.journal.history.book(first, end, STEPS[step])),
        *_since_counted(view, first, end, STEPS[step]),
    ]
    site = view.ledger.site.described
    groups = [] if site is None else node_groups(site, labels)
    return {
        "since": first,
        "until": end,
        "now": view.now,
        "site": "" if site is None else site.name,
        "rows": [_row_json(row) for row in _told(rows, caller)],
        "nodes": [{**asdict(each), "labels": dict(each.labels)} for each in groups],
    }


def _since_counted(view: ReadView, since: int, until: int, step: int) -> Iterator[BookRow]:
    """What was used since it was last written to the database."""
    levels = levels_of(view.ledger, view.journal.history.counted_to(), view.now)
    for bucket, key, amounts in uncounted(levels, view.now):
        if since <= bucket.start < until:
            width = max(bucket.width, step)
            yield BookRow(Bucket(width, bucket.start // width * width), key, amounts)


def _told(rows: Iterable[BookRow], caller: Caller) -> list[BookRow]:
    """Rows as the caller may see them, each bucket and key once."""
    number_of: dict[str, int] = {}
    sums: dict[tuple[Bucket, UsageKey], UsageAmounts] = {}
    for bucket, key, amounts in rows:
        is_site = (key.queue, key.user) == ("", "")
        if not is_site and not has(caller, Need.SEE, key.user, key.queue):
            other = OTHERS.format(number_of.setdefault(key.queue, len(number_of) + 1))
            key = UsageKey(other, "", key.model, "", key.device)  # noqa: PLW2901 - the same row, without names
        _add(sums.setdefault((bucket, key), UsageAmounts()), amounts)
    return [BookRow(bucket, key, amounts) for (bucket, key), amounts in sums.items()]


def _add(to: UsageAmounts, amounts: UsageAmounts) -> None:
    for figure in FIGURES:
        setattr(to, figure, getattr(to, figure) + getattr(amounts, figure))


def _row_json(row: BookRow) -> Json:
    """A row without the amounts of which there are none."""
    amounts = {name: value for name in FIGURES if (value := getattr(row.amounts, name))}
    return {"start": row.bucket.start, "width": row.bucket.width, **row.key._asdict(), **amounts}
