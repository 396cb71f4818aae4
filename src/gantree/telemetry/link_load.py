"""Reads how busy links are: `gantree_link_load{link="leaf:s0/l0"} 0.83`, from 0 to 1, as a site's Prometheus says it.

Which counters tell that (transmitted data of switch ports, waits, congestion notifications), and over which window,
differs between fabrics and is what recording rules are for; links are named as `gantree links` does.
"""

from gantree.telemetry.exposition import finite, names_matcher

LOAD = "gantree_link_load"
_FIND = names_matcher({LOAD})


def loads_in(text: str) -> dict[str, dict[str, float]]:
    """Link -> {LOAD: its load}. Of several figures of a link the highest counts. Raises BadInput for other text.

    A load above 1 is none, and is left out: such a rule divides by the wrong rate.
    """
    found: dict[str, dict[str, float]] = {}
    for name, labels, value in finite(text, _FIND):
        link = labels.get("link")
        if link and value <= 1.0:
            told = found.setdefault(link, {})
            told[name] = max(value, told.get(name, 0.0))
    return found
