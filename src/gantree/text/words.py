"""Valid names, spelling suggestions, counts with nouns, ranges of numbers, and durations. Used by all floors."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

NAME_PATTERN = "[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
"""Names of jobs, roles, queues: safe as a file name, whatever the user writes."""
WORD_PATTERN = "[A-Za-z0-9_][A-Za-z0-9._:-]{0,252}"
"""Names of nodes, machines and domains."""


def did_you_mean(word: str, allowed: Iterable[str]) -> str:
    """Return the hint for a near miss, empty where nothing is near."""
    folded = {name.lower(): name for name in allowed}
    near = get_close_matches(word.lower()[:100], folded, n=1, cutoff=0.6)
    return f"Did you mean `{folded[near[0]]}`?" if near else ""


def plural(count: int, noun: str) -> str:
    """ "1 GPU", "8 GPUs"."""
    return counted(count, noun, f"{noun}s")


def counted(count: int, one: str, many: str) -> str:
    """Return a count with its noun, and what follows it: "1 node is", "2 nodes are"."""
    return f"{count} {one if count == 1 else many}"


def ranges(numbers: Sequence[int]) -> str:
    """Numbers in their order, runs of neighbours joined: (0, 1, 2, 5) is "0-2,5"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def span(seconds: float) -> str:
    """A duration in seconds as people say it: "45 s", "12 min", "3 h 5 min", "2 d 4 h"."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def shortened(text: str, most: int = 60) -> str:
    """Return text short enough, and printable enough, for a line of an error message."""
    shown = "".join(sign if sign.isprintable() else "?" for sign in text[:most])
    return f"{shown}..." if len(text) > most else shown
