"""What may be asked of jobs: which sizes a gang can have, which priorities there are. Nothing is changed here."""

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.queue.scaling import place_at_size, stands_on_cordoned
from gantree.formats.job.form import MAX_PRIORITY
from gantree.model.errors import BadInput, Conflict, GantreeError
from gantree.model.phases import Phase, StopCause
from gantree.placement.resize.elastic import sizes_of
from gantree.planning.preferences import preferences_of

FINAL = (StopCause.CANCELLED, StopCause.TIME_LIMIT, StopCause.CANNOT_START)
"""Causes after which a job never waits again."""
SIZES_SHOWN = 12


def check_priority(priority: str | int) -> None:
    """Raise BadInput for a number that no job file could hold."""
    if not isinstance(priority, str) and abs(priority) > MAX_PRIORITY:
        raise BadInput(
            f"priority: found {priority}; allowed: a class, or a number up to {MAX_PRIORITY}"
        )


def scale_refused(ledger: Ledger, state: JobState, members: int) -> GantreeError | None:
    """Why a job that has not ended cannot have so many members now; None if it can."""
    if state.spec.elastic is None or len(state.spec.roles) != 1:
        return Conflict(f"{state.job} is not elastic: its file gives it one size")
    sizes = sizes_of(state.spec)
    if members not in sizes:
        shown = ", ".join(map(str, sizes[:SIZES_SHOWN])) + (
            ", ..." if len(sizes) > SIZES_SHOWN else ""
        )
        return BadInput(f"members: found {members}; allowed for {state.job}: {shown}")
    if state.phase is Phase.PENDING:
        return None
    if state.leaving:
        return Conflict(
            f"{state.job} is {state.phase} ({state.stop_cause}); ask again when it waits or runs"
        )
    assert state.placement is not None
    if len(state.placement.members) == members or place_at_size(
        ledger, state, members, preferences_of(ledger.policy)
    ):
        return None
    return Conflict(f"{state.job} cannot have {members} members now: {_why_not(ledger, state)}")


def _why_not(ledger: Ledger, state: JobState) -> str:
    where = (
        "elsewhere: it is on a cordoned node" if stands_on_cordoned(ledger, state) else "beside it"
    )
    if state.at_home:
        where = "for it to stay in its queue's cells"
    return (
        f"no room {where}, or its queue has none left; `gantree suspend {state.job}`, scale it while it waits, "
        f"and `gantree resume {state.job}`"
    )
