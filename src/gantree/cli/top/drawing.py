"""How `gantree top` draws a row: strips of domains, bars of queues, cells of jobs. Rich texts of values, no widgets."""

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from gantree.cli.jobs.job_columns import COLUMNS
from gantree.cli.output.printing import moment, printable
from gantree.cli.top.feed import Snapshot

Row = dict[str, Any]
LEVELS = "▁▂▃▄▅▆▇█"
FREE, OUT = "·", "x"
JOB_COLUMNS = ("job", "phase", "queue", "user", "gpus", "for", "note")
MAP_WIDTHS = {"DOMAIN": 8, "USE": 17, "GPUS": 11}
"""At 80 columns; a wider terminal has more room for USE."""
QUEUE_WIDTHS = {"QUEUE": 12, "GPUS": 10, "SHARE": 6, "RUN": 5, "WAIT": 6}
JOB_WIDTHS = (16, 9, 13, 8, 6, 6, 60)
STYLES = {"running": "green", "pending": "yellow", "starting": "cyan", "saving": "cyan"}
ENDED_STYLE = "bright_black"


def strip(pairs: Sequence[Sequence[int]], width: int) -> Text:
    """A sign for each [usable, free], at most width: a dot is free, a full block used, a cross out of use."""
    step = -(-len(pairs) // width) if pairs else 1
    text = Text()
    for first in range(0, len(pairs), step):
        part = pairs[first : first + step]
        usable, free = sum(pair[0] for pair in part), sum(pair[1] for pair in part)
        text.append(*_sign(usable, free))
    return text


def _sign(usable: int, free: int) -> tuple[str, str]:
    if usable == 0:
        return OUT, "red"
    if free == usable:
        return FREE, "bright_black"
    used = (usable - free) / usable
    return LEVELS[min(len(LEVELS) - 1, int(used * len(LEVELS)))], "cyan"


def domain_cells(row: Row, width: int) -> tuple[Text, Text, Text]:
    """Name, strip, and used of usable GPUs."""
    name = Text(printable(row["name"].rpartition("/")[2]), no_wrap=True, overflow="ellipsis")
    if row["state"] not in ("", "ready"):
        name.append(f" {row['state']}", "red")
    used = f"{row['usable'] - row['free']:,}/{row['usable']:,}"
    return name, strip(row["strip"], width), Text(used, justify="right")


def queue_cells(row: Row) -> tuple[Text, ...]:
    """Name, GPUs used of those guaranteed, its part of the cluster, running and waiting jobs."""
    depth = max(0, row["depth"] - 1)
    name = Text("  " * depth + printable(row["name"].rpartition("/")[2]))
    used, owed = row["used"].get("gpus", 0), row["guarantee"].get("gpus", 0)
    style = "yellow" if row["borrowed"].get("gpus") else ""
    gpus = Text(f"{used:g}/{owed:g}" if owed else f"{used:g}", style, justify="right")
    words = (f"{row['used_part']:.0%}", f"{row['running']:,}", f"{row['waiting']:,}")
    return name, gpus, *(Text(word, justify="right") for word in words)


def job_cells(row: Row, now: float) -> list[Text]:
    """The columns of JOB_COLUMNS."""
    cells = [Text(printable(COLUMNS[name].cell(row, now))) for name in JOB_COLUMNS]
    cells[1].stylize(STYLES.get(row["phase"], ENDED_STYLE))
    return cells


def header(snapshot: Snapshot, outage: str, selection: str) -> Text:
    """The first line: the cluster, how full it is, how many jobs; or why it is old."""
    domains, (running, waiting) = snapshot.domains, snapshot.counts
    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(f" {domains['cluster'] or 'no cluster yet'} ", "bold reverse")
    if outage:
        text.append(f" trying again: {outage}", "bold red")
        return text
    usable = domains["usable"]
    used = usable - domains["free"]
    if domains["inside"] is None or domains["parent"] is None:
        part = f"{used / usable:.0%}" if usable else "-"
        text.append(f"  GPUs {used:,}/{usable:,} ({part})")
    text.append(f"  running {running:,}  waiting {waiting:,}")
    text.append(f"  {moment(snapshot.at)[11:]}", "bright_black")
    if selection:
        text.append(f"  {selection}", "yellow")
    return text


def map_title(domains: Row) -> str:
    """Where in the tree the map is."""
    where = domains["inside"] or domains["cluster"] or "cluster"
    more = f", {domains['left_out']} more" if domains["left_out"] else ""
    return f"{where}: {len(domains['domains'])} x {domains['tier'] or '-'}{more}"
