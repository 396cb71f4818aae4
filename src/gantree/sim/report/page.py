"""The whole report: which sections it has, in which order."""

from collections.abc import Mapping
from typing import Any

from gantree.sim.measures.timeline import Timeline
from gantree.sim.report.costs import energy_section, money_section, stops_section
from gantree.sim.report.document import document
from gantree.sim.report.gantt import gantt_section
from gantree.sim.report.over_time import (
    allocation_section,
    fairness_section,
    fragmentation_section,
    waiting_section,
)
from gantree.sim.report.overview import (
    inputs_section,
    lead_of,
    summary_section,
    unfinished_section,
)
from gantree.sim.report.sizes import sizes_section, spanned_section
from gantree.sim.results import Result


def page(result: Result, timeline: Timeline, summary: Mapping[str, Any]) -> str:
    """The page about a run, with its timeline and the object of summary.json.

    Raises Unsupported where the extra with the charts is not installed.
    """
    over_time = [
        allocation_section(timeline),
        waiting_section(timeline),
        gantt_section(result),
        fairness_section(result, timeline),
        fragmentation_section(timeline),
    ]
    sections = [
        summary_section(summary),
        *(over_time if timeline.parts else []),
        sizes_section(result),
        spanned_section(result),
        stops_section(result),
        *([energy_section(result), money_section(result)] if timeline.parts else []),
        unfinished_section(result),
        inputs_section(summary),
    ]
    title = f"Simulation of {result.cluster}"
    return document(title, lead_of(result), [each for each in sections if each is not None])
