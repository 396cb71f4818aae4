"""Why a job is where it is: the first gate that says no, in numbers and in one sentence.

Computed when somebody asks, from the state as it is, by the same search that decides. Nothing of it is recorded.
A site's taste is not asked: it decides where a gang goes, never whether it fits.
"""

from dataclasses import dataclass, replace

from gantree.core.ledger import CLAIM, JobState, Ledger
from gantree.model.errors import NotFound
from gantree.model.phases import ENDED, Phase
from gantree.model.placements import Placement
from gantree.model.verdicts import Gate, Refused
from gantree.placement.search import fits, place

AHEAD_SHOWN = 10
"""How many of the jobs that go first are named."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What to tell about one job. ahead names the first jobs that go before it in the queue."""

    job: str
    phase: Phase
    sentence: str
    refused: Refused | None = None
    ahead: tuple[str, ...] = ()
    ahead_count: int = 0


def why(ledger: Ledger, job: str, now: float) -> Explanation:
    """Explain one job at a moment in seconds. Raises NotFound for a job that was never handed in."""
    if job in ledger.rejected:
        return Explanation(job, Phase.FAILED, f"Rejected: {ledger.rejected[job]}.")
    state = ledger.jobs.get(job)
    if state is None:
        raise NotFound(f"there is no job {job}")
    if state.phase is not Phase.PENDING:
        return Explanation(job, state.phase, _present(state))
    ahead = [position.job for position in ledger.lines.ahead_of(state.position)]
    sentence, refused = _waits_for_other_than_room(ledger, state, now), None
    if not sentence:
        refused = _refusal(ledger, state)
        sentence = refused.sentence if refused else "Waiting: fits, and starts with the next turn."
    first = tuple(ahead[:AHEAD_SHOWN])
    return Explanation(job, state.phase, sentence, refused, first, len(ahead))


def _present(state: JobState) -> str:
    """One sentence on a job that does not wait."""
    if state.phase in ENDED:
        code = "" if state.exit_code is None else f" (exit code {state.exit_code})"
        return f"Ended: {state.phase}{code}: {state.reason}."
    assert state.placement is not None
    domain, nodes = state.placement.domain, state.placement.gpus_of_node()
    where = f"{domain.tier} {domain.name}".strip()
    held = f"Holds {state.spec.gpus} GPUs on {len(nodes)} nodes in one {where}, attempt {state.attempt}"
    if state.phase is Phase.SAVING:
        return f"{held}; was asked to save a checkpoint{_for_whom(state)} and will then stop."
    if state.phase is Phase.STOPPING:
        return f"{held}; is being stopped ({state.stop_cause}){_for_whom(state)}."
    return f"{held}; {state.phase}."


def _for_whom(state: JobState) -> str:
    return f" to make room for {state.preempted_by}" if state.preempted_by else ""


def _waits_for_other_than_room(ledger: Ledger, state: JobState, now: float) -> str:
    """The sentence for a job that room alone would not start; empty otherwise."""
    for name in state.spec.after:
        before = ledger.jobs[name]
        if before.phase is not Phase.SUCCEEDED:
            return f"Waiting: comes after {name}, which is {before.phase}."
    if state.not_before > now:
        wait_s = state.not_before - now
        return (
            f"Waiting: starts again in {wait_s:.0f} s ({state.reason}; failure {state.failures})."
        )
    if state.job in ledger.claims:
        leaving = [job for job in ledger.claims[state.job].victims if job in ledger.holding]
        return f"Waiting: its room is held, and {', '.join(leaving)} is leaving it."
    if ledger.occupancy is None:
        return "Waiting: no cluster is known yet."
    return ""


def _refusal(ledger: Ledger, state: JobState) -> Refused | None:
    """The verdict on the gang now; None if it would fit."""
    verdict = place(ledger.rooms(), state.spec)
    if isinstance(verdict, Placement):
        return None
    if not ledger.claims:
        return verdict
    unclaimed = ledger.rooms().copy()
    for job in ledger.claims:
        unclaimed.give_back(CLAIM + job)
    if not fits(unclaimed, state.spec):
        return verdict
    holders = ", ".join(ledger.claims)
    sentence = f"Waiting: it would fit, but the room is held for {holders}, which goes first."
    return replace(verdict, gate=Gate.RESERVATION, sentence=sentence)
