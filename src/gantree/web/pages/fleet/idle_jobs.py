"""Running jobs whose GPUs do not compute, with what comes of it."""

from typing import Any

from gantree.api.access.access import Caller
from gantree.api.access.permissions import Need, has, sees
from gantree.api.views.job_view import job_row
from gantree.control.requests.read_view import ReadView
from gantree.core.ledger.state import JobState
from gantree.core.lifecycle.idleness import can_be_idle

Json = dict[str, Any]


def idle_jobs(view: ReadView, caller: Caller) -> list[Json]:
    """Those that a caller may see, idle for the longest first."""
    found = [
        _row(view, state, caller)
        for state in view.ledger.holding.values()
        if state.idle.since is not None and can_be_idle(state) and sees(caller, state)
    ]
    return sorted(found, key=lambda row: (row["idle"]["since"], row["job"]))


def _row(view: ReadView, state: JobState, caller: Caller) -> Json:
    row = job_row(view.ledger, state)
    may_change = has(caller, Need.CHANGE, state.spec.user, state.spec.queue)
    return {**row, "may_change": may_change}
