"""The end of a life: all faults stop, everything is mended, and what must have become of it is checked.

Every job that was accepted ends; those that could not run on the empty, healthy cluster are cancelled then, as a user
would. No process and no place is left over, inventory and ledger agree, and the journal holds together.
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gantree.core.ledger.state import JobState
from gantree.core.scheduler import Scheduler, settled
from gantree.journal.verify import verify
from gantree.model.events import ClusterObserved, HealthObserved, JobSubmitted
from gantree.model.jobs import Job
from gantree.model.orders import StartGang
from gantree.model.phases import ENDED, Phase
from support.faults.serving import end_all_services

if TYPE_CHECKING:
    from support.faults.life import Life

ROUNDS = 3_000
LONGEST_PAUSE_S = 31.0
SHORTEST_PAUSE_S = 0.05
QUIET_S = 300.0
"""After so long without a change what waits will wait for ever: no gang runs for as long."""
SETTLED_AFTER_S = 62.0


def converge(life: "Life") -> None:
    """Stop the faults, let everything end, and check it. Raises Broken."""
    life.note("== all faults stop")
    _stop_faults(life)
    changed_at = life.timeline.now
    for _ in range(ROUNDS):
        before = _progress(life)
        life.advance(_pause_s(life))
        life.pump()
        life.check()
        _mend(life)
        if life.leader() is not None and not _waiting(life):
            break
        if _progress(life) != before:
            changed_at = life.timeline.now
        elif life.timeline.now - changed_at > QUIET_S:
            changed_at = life.timeline.now
            _cancel_what_never_fits(life)
    else:
        raise _broken(life, f"no end after {ROUNDS} rounds: {_in_words(_waiting(life))}")
    for _ in range(4):
        life.advance(SETTLED_AFTER_S / 2)
        life.pump()
    life.check(is_thorough=True)
    _check_end(life)


def _broken(life: "Life", what: str) -> AssertionError:
    from support.faults.life import Broken

    return Broken(what)


def _stop_faults(life: "Life") -> None:
    life.site.faulty = False
    life.free_disk()
    life.disk.failing = None
    life.calm_orders()
    life.calm_events()
    leader = life.leader()
    if leader is not None:
        leader.points.clear()


def _mend(life: "Life") -> None:
    """Take back what users and operators have asked that keeps jobs from running."""
    leader = life.leader()
    if leader is None or leader.controller is None:
        return
    site = leader.controller.ledger.site
    for node in list(site.asked):
        life.node_command("uncordon", node)
    for node, sources in list(site.unwell.items()):
        for source in sources:
            life.emit(partial(_is_well, node, source))
    end_all_services(life)
    for state in life.jobs():
        if state.held and state.phase not in ENDED:
            life.command("release", state.job)


def _is_well(node: str, source: str, event_id: str, at: float) -> HealthObserved:
    return HealthObserved(id=event_id, observed_at=at, node=node, source=source)


def _pause_s(life: "Life") -> float:
    """Until something can happen."""
    leader = life.leader()
    wake_s = None
    if leader is not None and leader.controller is not None:
        known = leader.controller.turn_runner.known
        wake_s = None if known is None else leader.controller.seconds_to_wake()
    moments = (life.timeline.next_in_s(), life.site.network.next_in_s(), wake_s)
    soonest_s = min((each for each in moments if each is not None), default=LONGEST_PAUSE_S)
    return min(max(soonest_s, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)


def _progress(life: "Life") -> object:
    """What changes as long as something is still to come of it."""
    jobs = [(state.job, state.phase, state.attempt) for state in _waiting(life)]
    return jobs, life.timeline.next_in_s() is None, life.site.network.next_in_s() is None


def _waiting(life: "Life") -> list[JobState]:
    """Jobs that have not ended."""
    return [state for state in life.jobs() if state.phase not in ENDED]


def _cancel_what_never_fits(life: "Life") -> None:
    """Cancel what could not start with the cluster for itself. Raises Broken where something else waits."""
    waiting = _waiting(life)
    if any(state.phase is not Phase.PENDING for state in waiting) or life.site.living:
        raise _broken(life, f"nothing happens any more: {_in_words(waiting)}; {life.site.living}")
    in_vain = [state for state in waiting if not _fits_alone(life, state.spec)]
    if not in_vain:
        raise _broken(life, f"the cluster is empty, and these wait: {_in_words(waiting)}")
    for state in in_vain:
        life.command("cancel", state.job)


def _fits_alone(life: "Life", spec: Job) -> bool:
    """Whether a job starts where there is no other."""
    scheduler = Scheduler(life.policy)
    alone = replace(spec, after=(), held=False)
    events = [
        ClusterObserved(id="c", observed_at=0.0, cluster=life.cluster),
        JobSubmitted(id="j", observed_at=0.0, job=alone.name, spec=alone),
    ]
    return any(isinstance(order, StartGang) for order in settled(scheduler, events, 0.0).orders)


def _in_words(states: list[JobState]) -> str:
    return ", ".join(f"{state.job}/{state.attempt} {state.phase}" for state in states)


def _check_end(life: "Life") -> None:
    leader = life.leader()
    if leader is None or leader.controller is None:
        raise _broken(life, "nobody leads though all faults have stopped")
    ledger, journal = leader.controller.ledger, leader.journal
    broken = [
        f"accepted, and never ended: {job}"
        for job in life.audit.accepted
        if job not in life.audit.ended
    ]
    live = [name for name, service in ledger.services.items() if service.is_live]
    broken += [f"cancelled, and never ended: service {name}" for name in live]
    known = life.audit.accepted.keys() | life.audit.rejected
    broken += [
        f"acknowledged and unknown: {job}" for job in life.acknowledged_jobs if job not in known
    ]
    broken += [f"a process is left over: {owner}" for owner in life.site.living]
    broken += [f"a place is left over: {job}" for job in ledger.holding]
    owners = ledger.occupancy.owners if ledger.occupancy is not None else {}
    broken += [f"room is left over: {owner}" for owner in owners if not owner.startswith("site:")]
    left = leader.controller.cluster.inventory().attempts
    broken += [
        f"{job}/{attempt} is {status} in the inventory" for (job, attempt), status in left.items()
    ]
    aside = {each.event.id for each in journal.all_set_aside()}
    recorded = journal.seen(life.poisoned)
    broken += [f"set aside: {event}" for event in sorted(aside - life.poisoned)]
    broken += [f"poison, and not set aside: {event}" for event in sorted(recorded - aside)]
    lost = set(life.acknowledged) - journal.seen(life.acknowledged)
    broken += [f"acknowledged and lost: {event}" for event in sorted(lost)]
    broken += [str(fault) for fault in verify(journal).faults]
    if broken:
        raise _broken(life, "; ".join(broken[:8]))
