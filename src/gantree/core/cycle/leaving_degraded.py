"""Gangs leave worn links and slow nodes, once the expected loss of staying is as large as the cost of moving.

The rule is that of ski rental. A degradation is expected to last as long again as it has lasted, or as long as the job
still runs, if that is known and shorter:

    loss of staying = share of the time that is lost x seconds that it is expected to last x GPUs
    cost of moving  = (seconds of work that a stop loses + seconds of a restart, `restart_s`) x GPUs

A gang that is asked to save loses at most its `grace`, and nothing right after a checkpoint. So what is repaired soon
moves nobody, and most gangs move at a checkpoint. The share counts against the place that the gang would get, at the
health that the links have there; it moves only to a place that is proven and held for it (as in `core.cycle.drain`).

Only gangs that run, may be stopped and can save move; not out of a cell of their queue, nor while a reservation waits
for their end; each as often in 24 hours as its eviction budget allows, together with its preemptions.

The work of a pass is bounded: it looks for a place for at most MOST_SEARCHES gangs. Whoever found none is looked for
again whenever a pass is made, and at moments that lie ever further apart (`_next_search`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, inf, log

from gantree.core.cycle.degradations import Degradation, degradation, degradations
from gantree.core.cycle.drain import may_leave_from, why_never_leaving
from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.preemption.free_capacity import move
from gantree.core.queue.job_variants import running_variant
from gantree.core.queue.scaling import may_hold, without
from gantree.model.facts import CheckpointRecorded, GangRunning
from gantree.model.phases import StopCause
from gantree.model.placements import Placement
from gantree.placement.choice.search import find
from gantree.placement.request.placement_preferences import PlacementPreferences

MOST_SEARCHES = 8
FIRST_SEARCH_S, SEARCH_GROWTH = 60.0, 1.125
"""Seconds after which a better place is first looked for again, and how much longer each next time is."""
ROUNDING_S = 1e-6


@dataclass(frozen=True, slots=True)
class Balance:
    """What staying is expected to lose and what moving now costs, in GPU-seconds.

    lasts_s: how long the degradation is expected to last. cost_at_checkpoint_gpu_s: what moving costs right after a
    checkpoint. pays: whether moving now costs no more than staying. pays_at: from when that is so without a checkpoint,
    in seconds; inf if the job ends before. known_until: the end of the time that the job is known to run, or inf.
    """

    loss_gpu_s: float
    cost_gpu_s: float
    cost_at_checkpoint_gpu_s: float
    lasts_s: float
    pays: bool
    pays_at: float
    known_until: float

    @property
    def pays_at_checkpoint(self) -> bool:
        """Whether moving right after a checkpoint costs no more than staying."""
        return self.loss_gpu_s >= self.cost_at_checkpoint_gpu_s


def leave_degraded(builder: DecisionBuilder, preferences: PlacementPreferences) -> bool:
    """Move the gangs for which that pays and that have a better place. Returns whether any moves."""
    ledger, now = builder.ledger, builder.now
    due = [each for each in _leaving(ledger, now) if balance(ledger, *each, now).pays]
    first = (ledger.applied + int(now)) % len(due) if due else 0
    moved = False
    for state, found in (due[first:] + due[:first])[:MOST_SEARCHES]:
        placement = better_place(ledger, state, found, now, preferences)
        if placement is not None:
            move(builder, state, placement, StopCause.MOVED, flees=found.reason)
            moved = True
    return moved


def next_leaving_degraded(ledger: Ledger, now: float) -> float:
    """The next moment after now, in seconds, at which moving pays for a gang or a place is looked for; inf for none."""
    moments = [may_leave_from(ledger, state) for state, _ in degradations(ledger)]
    for state, found in _leaving(ledger, now):
        sums = balance(ledger, state, found, now)
        moments += (
            [_next_search(found.since, now)] if sums.pays else [sums.pays_at, sums.known_until]
        )
    return min((moment for moment in moments if moment > now), default=inf)


def may_leave_now(ledger: Ledger, fact: CheckpointRecorded | GangRunning) -> bool:
    """Whether a gang that has just saved or started may leave its place for a better one, if there is one."""
    state = ledger.jobs[fact.job]
    found = degradation(ledger, state)
    if found is None or why_not_leaving(ledger, state, fact.at):
        return False
    return isinstance(fact, GangRunning) or balance(ledger, state, found, fact.at).pays


def balance(ledger: Ledger, state: JobState, found: Degradation, now: float) -> Balance:
    """The sum for a running gang at a moment in seconds."""
    return balance_of(ledger, state, found.since, found.lost_share, now)


def balance_of(ledger: Ledger, state: JobState, since: float, share: float, now: float) -> Balance:
    """The sum for a running gang that would gain this share of its time, which it has lost since a moment."""
    assert state.spec.checkpoint is not None, f"{state.job} cannot save"
    grace_s, restart_s = state.spec.checkpoint.grace_s, ledger.policy.restart_s
    left_s = _left_s(state, now)
    lasts_s = min(now - since, left_s)
    needed_s = (grace_s + restart_s) / share
    pays_at = since + needed_s
    if left_s - max(0.0, pays_at - now) < needed_s:
        pays_at = inf
    loss_s = share * lasts_s
    cost_s = min(state.at_stake_s(now), grace_s) + restart_s
    return Balance(
        loss_s * state.gpus,
        cost_s * state.gpus,
        restart_s * state.gpus,
        lasts_s,
        now >= pays_at or loss_s >= cost_s,
        pays_at,
        now + left_s,
    )


def better_place(
    ledger: Ledger,
    state: JobState,
    found: Degradation,
    now: float,
    preferences: PlacementPreferences,
) -> Placement | None:
    """The fastest place that is found for a gang, if moving there pays.

    It is looked for off nodes where ranks are slow, or were when it left, and then off worn links, too.
    """
    rooms, gang = without(ledger, state), running_variant(ledger, state)
    best, best_s = None, found.step_s
    left = tuple(each.node for each in state.left_slow)
    for avoided in ((*found.slow_nodes, *left), found.nodes):
        for node in avoided:
            if node in rooms.fabric.index_of_node:
                rooms.mark(node, usable=False)
        placement = find(rooms, gang, preferences)
        step_s = None if placement is None else _step_s(placement, found)
        if placement is not None and step_s is not None and step_s < best_s:
            best, best_s = placement, step_s
        if best_s <= found.whole_s:
            break
    if best is None or not may_hold(ledger, state, best):
        return None
    share = 1.0 - best_s / found.step_s
    return best if balance_of(ledger, state, found.since, share, now).pays else None


def _step_s(placement: Placement, found: Degradation) -> float | None:
    """Seconds of a step at another place without slow ranks; None where that has no price and should have one."""
    return placement.predicted.step_s if found.is_priced else found.whole_s


def why_not_leaving(ledger: Ledger, state: JobState, now: float) -> str:
    """Why a gang never leaves a place that makes its steps longer, to end a sentence; "" if it does once that pays."""
    if not ledger.policy.leave_degraded:
        return "the policy lets nobody leave for that"
    if state.at_home:
        return "it is in a cell of its queue"
    if any(state.job in each.waits_for for each in ledger.reservations.values()):
        return "a reservation waits for its end"
    return why_never_leaving(ledger, state, now)


def _leaving(ledger: Ledger, now: float) -> Iterator[tuple[JobState, Degradation]]:
    """The gangs that leave once it pays and are not moving already."""
    for state, found in degradations(ledger):
        if state.moving is None and not state.suspended and not why_not_leaving(ledger, state, now):
            yield state, found


def _left_s(state: JobState, now: float) -> float:
    """Seconds that a job still runs, as far as is known; inf if nothing is."""
    left = []
    if state.limit_at is not None:
        left.append(state.limit_at - now)
    if state.spec.expected_s is not None:
        expected_s = state.spec.expected_s - state.work_s(now)
        left.append(expected_s * state.spec.gpus / max(1, state.gpus))
    return min((each for each in left if each > ROUNDING_S), default=inf)


def _next_search(since: float, now: float) -> float:
    """The next moment at which a better place is looked for: the later, the longer it has lasted."""
    steps = log(max(now - since, FIRST_SEARCH_S) / FIRST_SEARCH_S, SEARCH_GROWTH)
    moment = since + FIRST_SEARCH_S * SEARCH_GROWTH ** ceil(steps)
    return moment if moment > now else since + FIRST_SEARCH_S * SEARCH_GROWTH ** (ceil(steps) + 1)
