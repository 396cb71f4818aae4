"""Reads Prometheus' text format: the figures with certain names, and nothing else of what an exporter says.

A site of 10,000 GPUs sends hundreds of thousands of lines a round, of which few are read: the others cost a look at
their first word. Of a line that is read, the pattern below is the whole grammar (labels quoted and escaped, a value, a
time that is passed over). A text that breaks off within a line was not sent whole, and is no text.
https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping

from gantree.model.errors import BadInput

Labels = Mapping[str, str]
Find = Callable[[str], list[tuple[str, str, str]]]
"""Lines of a text as (name, labels in their braces, value and what follows)."""

_NONE = "no metrics in Prometheus' text format"
_LABELS = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\\n]|\\.)*)"\s*(?:,|$)')
_ESCAPED = re.compile(r"\\(.)")
_MEANS = {"n": "\n"}
_NODE_LABELS = ("node", "nodename", "instance")


def names_matcher(names: Collection[str]) -> Find:
    """A search for the lines of these names; compile it once. Lines that it does not take are garbage to `samples`."""
    either = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    return re.compile(
        rf"^({either})(?![a-zA-Z0-9_:])[ \t]*(\{{.*\}})?[ \t]*(.*)$", re.MULTILINE
    ).findall


def samples(text: str, find: Find) -> Iterator[tuple[str, Labels, float]]:
    """Name, labels and value of each line that a search of `names_matcher` finds.

    Raises BadInput for a text that breaks off, and for a line that is none.
    """
    if text and not text.endswith("\n"):
        raise BadInput(f"{_NONE}: it breaks off within a line")
    known: dict[str, Labels] = {}
    for name, braces, rest in find(text):
        labels = known.get(braces)
        if labels is None:
            labels = known[braces] = _labels(braces)
        yield name, labels, _value(rest)


def finite(text: str, find: Find) -> Iterator[tuple[str, Labels, float]]:
    """As `samples`, without what is no number, and what is below zero: no counter or gauge that is read is."""
    for sample in samples(text, find):
        if 0.0 <= sample[2] < math.inf:
            yield sample


def node_of(labels: Labels) -> str:
    """The node that labels name, "" for none: by `node` or `nodename`, else by `instance` without its port."""
    told = next((labels[label] for label in _NODE_LABELS if labels.get(label)), "")
    host, _, port = told.rpartition(":")
    return host if host and port.isdecimal() else told


def _labels(braces: str) -> Labels:
    """The labels of `{a="b"}`, "" for none. Raises BadInput."""
    found: dict[str, str] = {}
    inside, at = braces[1:-1], 0
    while at < len(inside.rstrip()):
        match = _LABELS.match(inside, at)
        if match is None:
            raise BadInput(f"{_NONE}: found labels {braces[:80]!r}")
        key, value = match.groups()
        found[key] = _ESCAPED.sub(_meant, value) if "\\" in value else value
        at = match.end()
    return found


def _meant(escaped: re.Match[str]) -> str:
    return _MEANS.get(escaped[1], escaped[1])


def _value(rest: str) -> float:
    """The value at the head of the rest of a line, before a time. Raises BadInput."""
    try:
        return float(rest.split(None, 1)[0])
    except (ValueError, IndexError):
        raise BadInput(f"{_NONE}: found value {rest[:80]!r}") from None
