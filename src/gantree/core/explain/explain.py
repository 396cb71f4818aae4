"""Explains why a job is pending: the first gate that refuses it, in numbers and in one sentence; and its start.

Computed on request from the ledger, by the same searches that decide; nothing is recorded. Placement preferences are
not read: they decide where a gang goes, never whether it fits.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice

from gantree.core.cycle.cell_plans import lost_cells, never_fits_cells, refused_in_cells
from gantree.core.explain.arrays import array_explanation, unsplit_explanation
from gantree.core.explain.degraded import staying_degraded
from gantree.core.explain.explanation import Explanation
from gantree.core.explain.lending import borrows_unused, lends_later
from gantree.core.explain.nodes import cordoned_for, staying_on
from gantree.core.explain.preemption import (
    back_off_sentence,
    futile_plan_sentence,
    gangs_in_the_way,
    may_preempt_any,
)
from gantree.core.explain.services import replica_in_words, service_explanation
from gantree.core.explain.shapes import other_shapes
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.lifecycle.idleness import idle_in_words
from gantree.core.lifecycle.replacing import missing_in_words
from gantree.core.preemption.candidates import (
    PreemptionRequest,
    find_candidates,
    projected_occupancy,
)
from gantree.core.queue.cell_usage import runs_in_cells_only
from gantree.core.queue.eligibility import ahead_of, eligible, how_many_ahead
from gantree.core.queue.held_capacity import usable_holds, without_holds
from gantree.core.queue.job_variants import open_variants, variant_admissions, why_no_variant
from gantree.core.queue.preemption_rules import MIN_RUN, stoppable_at
from gantree.core.reservations.reservations import planned_start
from gantree.core.reservations.start_estimates import Start, domain_in_words, known_start
from gantree.model.errors import NotFound
from gantree.model.jobs import Job
from gantree.model.phases import ENDED, Phase, StopCause
from gantree.model.placements import Placement
from gantree.model.verdicts import Gate, Refused, Shortage
from gantree.placement.choice.search import fits, place
from gantree.placement.request.placement_preferences import DEFAULT_PREFERENCES
from gantree.placement.resize.elastic import placed_elastically
from gantree.policy.quota.admission import Admission
from gantree.text.words import plural
from gantree.topology.occupancy.occupancy import Occupancy

AHEAD_SHOWN = 10
"""How many of the jobs that go first are named."""
BUDGET = "budget"
"""What a job waits for whose queue has used its budget."""
NODES_SHOWN = 3
"""How many of the nodes that are out of use are named."""


def why(ledger: Ledger, job: str, now: float) -> Explanation:
    """Explain one job at a moment in seconds. Raises NotFound for a job that was never handed in."""
    if job in ledger.rejected:
        return Explanation(job, Phase.FAILED, f"Rejected: {ledger.rejected[job]}.")
    service, state = ledger.services.get(job), ledger.find(job)
    if service is not None and state is None:
        return service_explanation(ledger, service, lambda replica: why(ledger, replica, now))
    if job in ledger.rejected_services and state is None and job not in ledger.arrays:
        return Explanation(job, Phase.FAILED, f"Rejected: {ledger.rejected_services[job]}.")
    if state is None and job not in ledger.arrays:
        raise NotFound(f"there is no job {job}")
    if state is None or (state.phase is Phase.PENDING and job not in ledger.jobs):
        return why_array(ledger, job, now)
    if state.phase is not Phase.PENDING:
        sentence = _present(state) + staying_on(ledger, state, now) + borrows_unused(ledger, state)
        sentence += idle_in_words(state, ledger.policy, now) + replica_in_words(state)
        sentence += staying_degraded(ledger, state, now) + last_failure_in_words(state)
        return Explanation(job, state.phase, sentence)
    sentence, refused = _waits_for_other_than_room(ledger, state, now), None
    sentence = sentence or _in_turn(ledger, state, now)
    in_the_way: tuple[tuple[str, str], ...] = ()
    if not sentence:
        refused, in_the_way = _refusal(ledger, state, now)
        sentence = (
            refused.sentence if refused else "Waiting: fits, and starts with the next decision."
        )
        if refused:
            refused = with_restriction_reason(state, refused)
            sentence = refused.sentence
            sentence += _lost_cells(ledger, state.spec.queue) + cordoned_for(ledger, state)
    sentence += last_failure_in_words(state)
    first = tuple(islice(ahead_of(ledger, state, now), AHEAD_SHOWN))
    count, start = how_many_ahead(ledger, state, now), known_start(ledger, state)
    return Explanation(job, state.phase, sentence, refused, first, count, start, in_the_way)


def why_array(ledger: Ledger, name: str, now: float) -> Explanation:
    """Explain an array, or an element that waits and is not split, by the element that is considered next."""
    leader = ledger.leader_of(name)
    found = None if leader is None else why(ledger, leader.job, now)
    if name in ledger.arrays:
        return array_explanation(ledger, ledger.arrays[name], found)
    return unsplit_explanation(ledger, name, found)


def last_failure_in_words(state: JobState) -> str:
    """A further sentence for a job that has failed and is not over; "" for others."""
    told = state.last_failure and state.phase not in ENDED
    return f" Last failure: {state.last_failure}." if told else ""


def brief_reason(ledger: Ledger, state: JobState, now: float) -> tuple[str, Gate | None]:
    """The sentence and the gate of `why`, without its costly parts: jobs ahead, jobs in the way, and the start.

    It stays the same while nothing changes: no number in it counts down.
    It is the same for all eligible jobs of one equivalence class (`core.queue.eligibility`).
    """
    if state.phase is not Phase.PENDING:
        return _present(state) + staying_on(ledger, state, now), None
    other = _waits_for_other_than_room(ledger, state, now, counts_down=False)
    no = None if other else _first_refusal(ledger, state, now)
    if no is not None:
        return with_restriction_reason(state, no.refused).sentence, no.refused.gate
    if other or ledger.policy.backfill.overtake != "none":
        return other or "Waiting: fits, and starts with the next decision.", None
    return (
        "Waiting: comes after others of its queue, which starts its jobs strictly in order.",
        None,
    )


def with_restriction_reason(state: JobState, refused: Refused) -> Refused:
    """The refusal of a job with node restrictions: it may fit once they change, so it is not final, and says why."""
    if not state.barred_for:
        return refused
    sentence = refused.sentence.replace("Never fits: ", "Waiting: ", 1)
    return replace(
        refused, never=False, sentence=f"{sentence} Restricted to some nodes: {state.barred_for}."
    )


def needs_more_nodes(ledger: Ledger, state: JobState, now: float) -> bool:
    """Whether its queue admits a job, and not even the empty site has room for it."""
    if state.phase is not Phase.PENDING or state.barred_for:
        return False
    if _waits_for_other_than_room(ledger, state, now):
        return False
    no = _first_refusal(ledger, state, now)
    is_admitted = no is not None and no.admission is not None and not no.admission.refused
    return is_admitted and no is not None and no.refused.never


def gate_now(ledger: Ledger, state: JobState, now: float) -> Gate | None:
    """The gate that refuses a job, as `why` has it; None where it waits for something else, or would start."""
    if state.phase is not Phase.PENDING or _waits_for_other_than_room(ledger, state, now):
        return None
    no = _first_refusal(ledger, state, now)
    if no is None or no.admission is None or no.admission.refused or no.refused.never:
        return None if no is None else no.refused.gate
    if _held_for_others(ledger, state):
        return Gate.RESERVATION
    if may_preempt_any(ledger, state) and gangs_in_the_way(ledger, state, no.admission, now):
        return Gate.HARM
    return no.refused.gate


def when(ledger: Ledger, job: str, now: float) -> Start | None:
    """When a waiting job starts: by its reservation, else by an estimate; None where neither is known.

    Of an array, and of an element that is not split, neither is. Raises NotFound for a job that was never accepted.
    """
    state = ledger.jobs.get(job)
    if state is None and ledger.spec_of(job) is None:
        raise NotFound(f"there is no job {job}")
    if state is None or state.phase is not Phase.PENDING or ledger.occupancy is None:
        return None
    start = known_start(ledger, state)
    if start is not None:
        return start
    if runs_in_cells_only(ledger, state) or _comes_after(ledger, state):
        return None  # an estimate reads the ends of running gangs, and it waits for something else
    if _never_starts(ledger, state) or _in_turn(ledger, state, now):
        return None
    found = planned_start(ledger, state, now, DEFAULT_PREFERENCES, can_promise=False)
    if found is None:
        return None
    return Start(
        found.starts_at, False, found.waits_for, False, domain=domain_in_words(found.placement)
    )


def _never_starts(ledger: Ledger, state: JobState) -> bool:
    """Whether a waiting job starts in none of its variants, whichever jobs end."""
    if runs_in_cells_only(ledger, state):
        limits = ledger.accounts.limits(state, ledger.accounts.amounts.requested(state))
        return limits.never or never_fits_cells(ledger, state)
    if why_no_variant(ledger, state.spec) is not None:
        return True
    for variant, admission in variant_admissions(ledger, state):
        verdict = None if admission.never else _verdict(ledger, state, ledger.rooms(), variant)
        if not admission.never and (verdict is None or not verdict.never):
            return False
    return True


def _present(state: JobState) -> str:
    """One sentence about a job that does not wait."""
    if state.phase in ENDED:
        code = "" if state.exit_code is None else f" (exit code {state.exit_code})"
        return f"Ended: {state.phase}{code}: {state.reason}."
    assert state.placement is not None
    domain, nodes = state.placement.domain, state.placement.gpus_of_node()
    where = f"{domain.tier} {domain.name}".strip()
    on = f"on {plural(len(nodes), 'node')} in one {where}"
    held = f"Holds {_what_is_held(state.placement)} {on}, attempt {state.attempt}"
    if state.phase is Phase.SAVING:
        drains = state.replica.gone_by is not None
        does = "finishes its requests" if drains else "was asked to save a checkpoint"
        return f"{held}; {does}{_for_whom(state)} and will then stop."
    if state.phase is Phase.STOPPING:
        because = f"{state.stop_cause}: {state.reason}" if state.reason else state.stop_cause
        return f"{held}; is being stopped ({because}){_for_whom(state)}."
    if state.suspended:
        return f"{held}; suspended while another job has its turn on the shared GPUs."
    if state.warned:
        return f"{held}; {state.phase}, and got the signal that its time limit is near."
    return f"{held}; {state.phase}.{missing_in_words(state)}"


def _what_is_held(placement: Placement) -> str:
    """GPUs that a gang holds, and parts of GPUs, in words."""
    members = placement.members
    whole = sum(len(member.gpus) for member in members)
    parts = Counter(f"{member.share.compute:g} of a GPU" for member in members if member.share)
    parts.update(f"an instance {part.profile}" for member in members for part in member.mig)
    found = [plural(whole, "GPU")] if whole or not parts else []
    found += [part if times == 1 else f"{times} times {part}" for part, times in parts.items()]
    return " and ".join(found)


def _for_whom(state: JobState) -> str:
    return f" to make room for {state.preempted_by}" if state.preempted_by else ""


def _waits_for_other_than_room(
    ledger: Ledger, state: JobState, now: float, *, counts_down: bool = True
) -> str:
    """The sentence for a job that waits for something other than room or quota; "" otherwise."""
    if state.held:
        return f"Waiting: {_held(state)}."
    before = _comes_after(ledger, state)
    if before is not None:
        return f"Waiting: comes after {before}."
    if state.not_before > now:
        failed = f"{state.reason}; failure {state.failures}" if state.failures else state.reason
        after = f"in {state.not_before - now:.0f} s" if counts_down else "after a pause"
        return f"Waiting: starts again {after} ({failed})."
    if state.job in ledger.claims:
        leaving = [job for job in ledger.claims[state.job].victims if job in ledger.holding]
        are = "is" if len(leaving) == 1 else "are"
        return f"Waiting: its room is held, and {', '.join(leaving)} {are} leaving it."
    if ledger.occupancy is None:
        return "Waiting: no cluster is known yet."
    return ""


def _comes_after(ledger: Ledger, state: JobState) -> str | None:
    """The first job or array that must succeed before it and has not, in words; None where all have."""
    before = next((name for name in state.spec.after if not ledger.has_succeeded(name)), None)
    if before is None or before in ledger.jobs:
        return before and f"{before}, which is {ledger.jobs[before].phase}"
    array = ledger.arrays.get(before)
    if array is None:
        return f"{before}, which is {Phase.PENDING}"
    left = array.size - sum(array.ended.values())
    return f"{before}, of which {plural(left, 'job')} {'has' if left == 1 else 'have'} not ended"


def _held(state: JobState) -> str:
    """The reason of a hold; "suspended" if the job ran before it was held."""
    if state.held_for:
        return state.held_for
    if state.stop_cause is StopCause.SUSPENDED:
        return f"suspended by hand; `gantree resume {state.job}` resumes it"
    return f"held by hand; `gantree release {state.job}` releases it"


def _in_turn(ledger: Ledger, state: JobState, now: float) -> str:
    """The sentence for a job behind another one of a queue that starts its jobs strictly in order; "" for others."""
    if ledger.policy.backfill.overtake != "none":
        return ""
    queue_of = ledger.accounts.tree.queue
    mine = [node for node in ledger.waiting.queues if queue_of[node] == state.spec.queue]
    for job in ahead_of(ledger, state, now, mine):
        other = ledger.jobs[job]
        if eligible(ledger, other, now) and not _never_starts(ledger, other):
            return (
                f"Waiting: comes after {job} in its queue, which starts its jobs strictly in order."
            )
    return ""


def _lost_cells(ledger: Ledger, queue: str) -> str:
    """A further sentence for a job whose queue owns cells that no domain can hold now; "" for others."""
    cells = [f"{cell.tier} {cell.number + 1}" for cell in lost_cells(ledger) if cell.queue == queue]
    if not cells:
        return ""
    nodes = list(dict.fromkeys([*ledger.unusable, *ledger.site.cordoned]))
    more = f" and {len(nodes) - NODES_SHOWN} more" if len(nodes) > NODES_SHOWN else ""
    because = "jobs that may not be preempted hold its domains"
    if nodes:
        because = f"out of use: {', '.join(nodes[:NODES_SHOWN])}{more}"
    has = "cell {} has" if len(cells) == 1 else "cells {} have"
    return f" Its queue's {has.format(', '.join(cells))} no place now ({because})."


@dataclass(frozen=True, slots=True)
class _FirstRefusal:
    """The first refusal. admission is the answer of the queue; None where stopping other jobs could not help."""

    refused: Refused
    admission: Admission | None = None


def _first_refusal(ledger: Ledger, state: JobState, now: float) -> _FirstRefusal | None:
    """The first refusal of a gang, before preemption is considered; None if it would start."""
    if runs_in_cells_only(ledger, state):
        limits = ledger.accounts.limits(state, ledger.accounts.amounts.requested(state))
        if limits.refused:
            return _FirstRefusal(_refused_by_queue(limits))
        refused = refused_in_cells(ledger, state, now)
        return None if refused is None else _FirstRefusal(refused)
    closed = why_no_variant(ledger, state.spec)
    if closed is not None:
        return _FirstRefusal(closed)
    variants = variant_admissions(ledger, state)
    admitted = [each for each in variants if not each[1].refused]
    if not admitted:
        no = next((said for _, said in variants if not said.never), variants[0][1])
        never = (
            None if no.never else _never_fits(ledger, state, [variant for variant, _ in variants])
        )
        return _FirstRefusal(_refused_by_queue(no), no) if never is None else _FirstRefusal(never)
    with without_holds(ledger, usable_holds(ledger, state, now)) as rooms:
        verdicts = [_verdict(ledger, state, rooms, variant) for variant, _ in admitted]
    if None in verdicts:
        return None
    at = next((at for at, verdict in enumerate(verdicts) if verdict and not verdict.never), 0)
    (variant, admission), verdict = admitted[at], verdicts[at]
    assert verdict is not None
    others = other_shapes(state.spec, variant)
    return _FirstRefusal(replace(verdict, sentence=f"{verdict.sentence}{others}"), admission)


def _refusal(
    ledger: Ledger, state: JobState, now: float
) -> tuple[Refused | None, tuple[tuple[str, str], ...]]:
    """The refusal of a gang now, None if it would start; and the jobs that would have to end for it."""
    no = _first_refusal(ledger, state, now)
    if no is None:
        return None, ()
    if no.admission is None:
        return no.refused, ()
    if no.admission.refused:
        refused, in_the_way = _beyond_quota(ledger, state, no.admission, now)
    else:
        refused, in_the_way = _beyond_room(ledger, state, no.admission, no.refused, now)
    more = "" if refused.never else back_off_sentence(ledger, state, no.admission, now)
    if not more and not in_the_way and not refused.never:
        more = futile_plan_sentence(ledger, state, no.admission, now)
    return replace(refused, sentence=f"{refused.sentence}{more}"), in_the_way


def _beyond_quota(
    ledger: Ledger, state: JobState, admission: Admission, now: float
) -> tuple[Refused, tuple[tuple[str, str], ...]]:
    """The refusal by the queue; and the jobs that only their minimum run time protects from preemption."""
    refused = _refused_by_queue(admission)
    young = () if admission.never else _too_young(ledger, state, admission, now)
    if not young:
        later = lends_later(ledger, state, admission, now)
        return replace(refused, sentence=f"{refused.sentence}{later}"), ()
    wait_s = max(stoppable_at(ledger.jobs[job], ledger.policy) for job in young) - now
    may = (
        f"{', '.join(young)} may be preempted for it in {wait_s:.0f} s, after the minimum run time"
    )
    refused = replace(refused, sentence=f"{refused.sentence} {may}.")
    return refused, tuple((job, MIN_RUN) for job in young)


def _too_young(
    ledger: Ledger, state: JobState, admission: Admission, now: float
) -> tuple[str, ...]:
    """Jobs that only a minimum run time protects: as many as must end for the gang to be admitted and to fit.

    The one with the least time left comes first; () where the gang would not start even then.
    """
    accounts = ledger.accounts
    candidates = find_candidates(
        ledger, PreemptionRequest(state, state.spec, admission), now, with_forbidden=True
    )
    gone = [victim.owner for victim in candidates.victims]
    young = [each.victim.owner for each in candidates.forbidden if each.because == MIN_RUN]
    young.sort(key=lambda job: stoppable_at(ledger.jobs[job], ledger.policy))
    for count in range(len(young) + 1):
        without = [*gone, *young[:count]]
        if accounts.projected_admission(state, accounts.amounts.requested(state), without).refused:
            continue
        if fits(_occupancy_without(ledger, state, without), state.spec):
            return tuple(young[:count])
    return ()


def _occupancy_without(ledger: Ledger, state: JobState, owners: Iterable[str]) -> Occupancy:
    """The room for a gang once leaving gangs have left, if these were gone, too."""
    room = projected_occupancy(ledger, state).copy()
    for owner in owners:
        room.give_back(owner)
    return room


def _beyond_room(
    ledger: Ledger, state: JobState, admission: Admission, verdict: Refused, now: float
) -> tuple[Refused, tuple[tuple[str, str], ...]]:
    """The refusal of a gang for want of room: held for others, or by jobs that it may not preempt; and these jobs."""
    if verdict.never:
        return verdict, ()
    held = _held_for_others(ledger, state)
    if held:
        return replace(verdict, gate=Gate.RESERVATION, sentence=held), ()
    in_the_way = gangs_in_the_way(ledger, state, admission, now)
    if in_the_way and may_preempt_any(ledger, state):
        (job, because), *more = in_the_way
        others = f" and {len(more)} more" if more else ""
        sentence = f"{verdict.sentence} It may not preempt {job}{others} ({because})."
        return replace(verdict, gate=Gate.HARM, sentence=sentence), in_the_way
    return verdict, in_the_way


def _verdict(ledger: Ledger, state: JobState, rooms: Occupancy, variant: Job) -> Refused | None:
    """Why a job does not start in one of its variants, at its smallest size; None where it would."""
    elastic = variant.elastic is not None and ledger.policy.elastic
    found = placed_elastically(rooms, variant)[1] if elastic else place(rooms, variant)
    if isinstance(found, Refused):
        return found
    admission = ledger.accounts.admission(state, ledger.accounts.amounts.held(found))
    return _refused_by_queue(admission) if admission.refused else None


def _never_fits(ledger: Ledger, state: JobState, variants: Iterable[Job]) -> Refused | None:
    """Why a job fits the empty cluster in none of these variants; None where it does in one."""
    verdicts = [_verdict(ledger, state, ledger.rooms(), variant) for variant in variants]
    found = [verdict for verdict in verdicts if verdict is not None and verdict.never]
    return found[0] if len(found) == len(verdicts) else None


def _refused_by_queue(admission: Admission) -> Refused:
    """A refusal by limit or quota, in words and numbers."""
    assert admission.gate is not None, "a refusal without a gate"
    if admission.sentence:
        return Refused(admission.gate, f"Waiting: {admission.sentence}.", wakes_on=(BUDGET,))
    back = "; what others borrow of it is being reclaimable" if admission.reclaim else ""
    return Refused(
        admission.gate,
        f"Waiting: {admission.words}{back}.",
        never=admission.never,
        short_by=Shortage(admission.resource, admission.short_by),
        wakes_on=(admission.resource,),
    )


def _held_for_others(ledger: Ledger, state: JobState) -> str:
    """The sentence for a gang that would fit if no room were held for others; "" otherwise."""
    owners = [owner for owner, _ in ledger.held_places()]
    if not owners:
        return ""
    unheld = ledger.rooms().copy()
    for owner in owners:
        unheld.give_back(owner)
    if not any(fits(unheld, variant) for variant in open_variants(ledger, state.spec)):
        return ""
    claims = ", ".join(job for job in ledger.claims if job != state.job)
    if claims:
        return f"Waiting: it would fit, but the room is held for {claims}, which goes first."
    reserved = ", ".join(job for job in ledger.reservations if job != state.job)
    return f"Waiting: it would fit, but it would overrun the reservation of {reserved}."
