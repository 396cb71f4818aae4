"""Requests about jobs: cancel, hold, release, suspend, scale, reprioritise, extend, exempt, defragment.

Each request is checked against the ledger and becomes an event in the inbox; the core decides what follows.
"""

from collections.abc import Callable

from gantree.control.requests.read_view import ReadView
from gantree.core.cycle.moves import Defragmentation
from gantree.core.ledger.array_state import ArrayState
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.queue.scaling import is_on_cordoned_node, place_at_size
from gantree.formats.job.form import MAX_PRIORITY
from gantree.model.errors import BadInput, Conflict, GantreeError
from gantree.model.events import (
    CancelRequested,
    DefragmentRequested,
    Event,
    ExtensionRequested,
    HoldRequested,
    PriorityRequested,
    ReleaseRequested,
    ScaleRequested,
    SuspendRequested,
)
from gantree.model.phases import Phase, StopCause
from gantree.placement.resize.elastic import sizes_of
from gantree.planning.policy_preferences import placement_preferences_of
from gantree.policy.idle import DEFAULT_RULE
from gantree.text.words import span

FINAL = (
    StopCause.CANCELLED, StopCause.TIME_LIMIT, StopCause.CANNOT_START, StopCause.IDLE_STOP,
)  # fmt: skip
"""Causes after which a job never waits again."""
SIZES_SHOWN = 12


class JobCommands:
    """Takes commands for jobs. view reads the ledger; append makes an event durable; new_id names one."""

    def __init__(
        self,
        view: Callable[[], ReadView],
        append: Callable[[Event], None],
        new_id: Callable[[str, str], str],
    ) -> None:
        self._view = view
        self._append = append
        self._new_id = new_id

    def cancel(self, word: str) -> str:
        """Request that a job or an array be cancelled, by id or name; give its id. Twice is the same as once.

        Raises NotFound, and Conflict for what has ended.
        """
        view = self._view()
        job = _job_or_array(view, word)
        event_id = f"{job}/cancel-requested"
        if any(each.event.id == event_id for each in view.journal.all_set_aside()):
            event_id = self._new_id(job, "cancel-requested")
        self._append(CancelRequested(id=event_id, observed_at=view.now, job=job))
        return job

    def hold(self, word: str) -> str:
        """Keep a waiting job, or what waits of an array, from starting; give its id. A held job stays held.

        Raises NotFound, and Conflict for a job that does not wait.
        """
        view = self._view()
        array = view.array(word)
        if array is not None:
            return self._of_array(array, HoldRequested, "hold-requested", view.now)
        state = view.not_ended(word)
        if state.phase is not Phase.PENDING:
            raise Conflict(
                f"{state.job} is {state.phase}; only a waiting job can be held. To stop it and resume it later: gantree"
                f" suspend {state.job}. To start over: gantree cancel {state.job}, and submit it with `hold: true`"
            )
        event_id = self._new_id(state.job, "hold-requested")
        self._append(HoldRequested(id=event_id, observed_at=view.now, job=state.job))
        return state.job

    def release(self, word: str) -> str:
        """Release a held or suspended job, or those of an array, by id or name; give its id.

        Raises NotFound, and Conflict for a job that is not held.
        """
        view = self._view()
        array = view.array(word)
        if array is not None:
            return self._of_array(array, ReleaseRequested, "release-requested", view.now)
        state = view.not_ended(word)
        if not state.held:
            raise Conflict(f"{state.job} is not held: it is {state.phase}")
        event_id = self._new_id(state.job, "release-requested")
        self._append(ReleaseRequested(id=event_id, observed_at=view.now, job=state.job))
        return state.job

    def suspend(self, word: str) -> str:
        """Stop a job, which saves if it can, and hold it; give its id. A waiting job is held. So with all of an array.

        Raises NotFound, and Conflict for a job that has ended or is about to.
        """
        view = self._view()
        array = view.array(word)
        if array is not None:
            return self._of_array(array, SuspendRequested, "suspend-requested", view.now)
        state = view.not_ended(word)
        if state.phase is Phase.STOPPING and state.stop_cause in FINAL:
            raise Conflict(f"{state.job} is being stopped for good: {state.stop_cause}")
        event_id = self._new_id(state.job, "suspend-requested")
        self._append(SuspendRequested(id=event_id, observed_at=view.now, job=state.job))
        return state.job

    def scale(self, word: str, members: int) -> str:
        """Change the number of members of an elastic gang; give its id. A running gang saves and restarts with them.

        Raises NotFound, BadInput for a number that it cannot have, and Conflict where it cannot have it now.
        """
        view = self._view()
        state = view.not_ended(word)
        refusal = scale_refused(view.ledger, state, members)
        if refusal is not None:
            raise refusal
        event_id = self._new_id(state.job, "scale-requested")
        self._append(
            ScaleRequested(id=event_id, observed_at=view.now, job=state.job, members=members)
        )
        return state.job

    def reprioritise(self, word: str, priority: str | int) -> str:
        """Change the priority, a class or a number, of a job or an array that has not ended; give its id.

        Raises NotFound, BadInput for a class that the policy lacks, and Conflict for what has ended.
        """
        view = self._view()
        job = _job_or_array(view, word)
        check_priority(priority)
        view.policy.priority_of(priority)
        event_id = self._new_id(job, "priority-requested")
        self._append(
            PriorityRequested(id=event_id, observed_at=view.now, job=job, priority=priority)
        )
        return job

    def extend(self, word: str, for_s: float) -> str:
        """Give a job a lease: for so many seconds from now on it is not reclaimed as idle; 0 ends it. Give its id.

        Raises NotFound, Conflict for what has ended, and BadInput for longer than its queue allows.
        """
        view = self._view()
        state = view.not_ended(word)
        longest_s = (view.policy.idle_of(state.spec.queue) or DEFAULT_RULE).longest_lease_s
        if not 0.0 <= for_s <= longest_s:
            raise BadInput(
                f"for_s: found {span(for_s)}; allowed in queue {state.spec.queue}: at most {span(longest_s)}"
            )
        return self._extension(view, state, view.now + for_s)

    def exempt(self, word: str) -> str:
        """Have a job never reclaimed as idle, until somebody extends it again; give its id.

        Raises NotFound, and Conflict for what has ended.
        """
        view = self._view()
        return self._extension(view, view.not_ended(word), None)

    def _extension(self, view: ReadView, state: JobState, until: float | None) -> str:
        event_id = self._new_id(state.job, "extension-requested")
        self._append(
            ExtensionRequested(id=event_id, observed_at=view.now, job=state.job, until=until)
        )
        return state.job

    def defragment(self, plan: Defragmentation) -> str:
        """Request the moves of a plan; give the id of the event. They are made as planned, or not at all.

        Raises NotFound, and Conflict for a job that does not wait.
        """
        view = self._view()
        job = view.waiting(plan.job).job
        event_id = self._new_id(job, "defragment-requested")
        self._append(
            DefragmentRequested(
                id=event_id,
                observed_at=view.now,
                job=job,
                placement=plan.placement,
                moves=plan.planned,
            )
        )
        return event_id

    def _of_array(
        self,
        array: ArrayState,
        kind: type[HoldRequested | ReleaseRequested | SuspendRequested],
        word: str,
        now: float,
    ) -> str:
        """Request something of all elements of an array; those of which it cannot be are passed over."""
        event_id = self._new_id(array.array, word)
        self._append(kind(id=event_id, observed_at=now, job=array.array))
        return array.array


def _job_or_array(view: ReadView, word: str) -> str:
    """The id of a job or an array that has not ended. Raises NotFound and Conflict."""
    array = view.array(word)
    return view.not_ended(word).job if array is None else array.array


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
        ledger, state, members, placement_preferences_of(ledger.policy)
    ):
        return None
    return Conflict(f"{state.job} cannot have {members} members now: {_why_not(ledger, state)}")


def _why_not(ledger: Ledger, state: JobState) -> str:
    where = (
        "elsewhere: it is on a cordoned node" if is_on_cordoned_node(ledger, state) else "beside it"
    )
    if state.at_home:
        where = "for it to stay in its queue's cells"
    return (
        f"no room {where}, or its queue has none left; `gantree suspend {state.job}`, scale it while it waits, "
        f"and `gantree resume {state.job}`"
    )
