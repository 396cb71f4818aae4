"""What HAProxy says of requests: a line of its log (`config`) for each that has ended, and counts of those in work."""

import csv
from collections import Counter
from collections.abc import Iterable

from gantree.routing.measurements import Now, Record

SHED = frozenset({"overloaded", "not_ready"})
QUEUE_TIMEOUT = "sQ"
BROKEN_OFF = frozenset({"SD", "sD", "PD"})
"""How an answer ends that a replica did not finish: closed, silent for `timeout`, not HTTP (`CD`: the client left)."""
NO_SERVER = "<NOSRV>"
FIELDS = 12


def record_of(line: str) -> Record | None:
    """Read a line of the log; None for a request of no service. Raises ValueError for what is no request."""
    words = line.split()
    if len(words) != FIELDS:
        raise ValueError(line)
    if words[0].startswith(("-", "_")):
        return None
    backend, server, status, _, wait, connect, response, total, ending, retries, reason, _ = words
    answered = int(response) >= 0
    first_ms = sum(max(0, int(each)) for each in (wait, connect, response))
    return Record(
        backend,
        None if server == NO_SERVER else server,
        int(status),
        first_ms / 1000 if answered else None,
        max(0, int(total)) / 1000,
        int(retries.lstrip("+")),
        reason,
        is_shed=reason in SHED or ending == QUEUE_TIMEOUT,
        is_broken_off=ending in BROKEN_OFF,
    )


def now_of(statistics: Iterable[str], waiting: Iterable[str] = ()) -> Now:
    """Read what `show stat` and `gantree-waiting` print, of each process.

    The latter are requests for which no replica is ready yet; HAProxy itself knows of no queue then.
    """
    queued: Counter[str] = Counter()
    in_flight: Counter[tuple[str, str]] = Counter()
    for text in statistics:
        for row in csv.DictReader(text.removeprefix("# ").splitlines()):
            backend, server = row["pxname"], row["svname"]
            if backend.startswith("_"):  # what an older process hands on, the newer one counts
                continue
            if server == "BACKEND":
                queued[backend] += int(row["qcur"] or 0)
            elif server != "FRONTEND":
                in_flight[backend, server] += int(row["scur"] or 0) + int(row["qcur"] or 0)
    for line in (line for text in waiting for line in text.splitlines()):
        backend, _, count = line.rpartition(" ")
        queued[backend] += int(count)
    return Now(queued, in_flight)
