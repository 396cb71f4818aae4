"""The invariants of every ledger. Tests check them after every step; a daemon may do so, too.

Each check is written from the words, not from the code that keeps it true.
"""

from collections import Counter
from collections.abc import Iterator

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import CLAIM, RESERVATION, JobState
from gantree.model.phases import ENDED, HOLDING, Phase, StopCause
from gantree.model.placements import SharePart

ROUNDING = 1e-6
"""Shares are counted in millionths of a GPU."""


def violations(ledger: Ledger) -> list[str]:
    """Every broken invariant in words; empty if the ledger is sound."""
    checks = (
        _one_owner,
        _shares_suffice,
        _whole_gangs,
        _occupancy_agrees,
        _collections_agree,
        _arrays_agree,
        _claims_agree,
        _nothing_new_on_cordoned,
        _services_agree,
    )
    return [violation for check in checks for violation in check(ledger)]


def check(ledger: Ledger) -> None:
    """Fail with all broken invariants, if there are any."""
    broken = violations(ledger)
    assert not broken, "; ".join(broken)
    if ledger.occupancy is not None:
        ledger.occupancy.check()


def _one_owner(ledger: Ledger) -> Iterator[str]:
    """No GPU, no NIC and no MIG instance has two owners, and no GPU that one holds whole is held in parts."""
    owner_of_device: dict[tuple[str, object], str] = {}
    part_owner_of_gpu: dict[tuple[str, object], str] = {}
    for state in ledger.holding.values():
        for member in state.placement.members if state.placement else ():
            for device in (*member.gpus, *member.nics, *member.mig):
                other = owner_of_device.setdefault((member.node, device), state.job)
                if other != state.job:
                    yield f"{member.node} {device} belongs to {other} and to {state.job}"
            for gpu in member.parts:
                part_owner_of_gpu[member.node, gpu] = state.job
    for device, job in part_owner_of_gpu.items():
        if device in owner_of_device:
            yield f"{device} belongs to {owner_of_device[device]}, a part of it to {job}"


def _shares_suffice(ledger: Ledger) -> Iterator[str]:
    """The shares of a GPU are no more than the whole, are of one way, and one that is to be alone is."""
    tenants_of_gpu: dict[tuple[str, int], list[SharePart]] = {}
    for state in ledger.holding.values():
        for member in state.placement.members if state.placement else ():
            if member.share is not None:
                tenants_of_gpu.setdefault((member.node, member.share.gpu), []).append(member.share)
    for gpu, tenants in tenants_of_gpu.items():
        ways = {tenant.isolation for tenant in tenants}
        compute = sum(tenant.compute for tenant in tenants)
        crowded = len(tenants) > 1 and any(tenant.alone for tenant in tenants)
        if compute > 1 + ROUNDING or len(ways) > 1 or crowded:
            yield f"{gpu} is shared by {tenants}"


def _whole_gangs(ledger: Ledger) -> Iterator[str]:
    """A gang has all its members or none."""
    for state in ledger.jobs.values():
        if (state.phase in HOLDING) != (state.placement is not None and state.phase not in ENDED):
            yield f"{state.job} is {state.phase} with placement {state.placement}"
        if state.phase in HOLDING and state.placement is not None:
            yield from _missing_members(state)


def _missing_members(state: JobState) -> Iterator[str]:
    assert state.placement is not None
    placed = sorted((member.role, member.rank) for member in state.placement.members)
    roles = state.present.roles
    wanted = sorted((role.name, rank) for role in roles for rank in range(role.members))
    if placed != wanted:
        yield f"{state.job} has members {placed}, its gang is {wanted}"
    shapes = {role.name: role.shape for role in roles}
    for member in state.placement.members:
        if len(member.gpus) != shapes[member.role].gpus:
            yield f"{state.job} {member.role} {member.rank} holds GPUs {member.gpus}"
        if len(member.parts) != shapes[member.role].part:
            yield f"{state.job} {member.role} {member.rank} holds parts of GPUs {member.parts}"


def _occupancy_agrees(ledger: Ledger) -> Iterator[str]:
    """The occupancy holds exactly what the ledger says is held."""
    if ledger.occupancy is None:
        return
    held = {
        owner: members
        for owner, members in ledger.occupancy.owners.items()
        if not owner.startswith((CLAIM, RESERVATION, "site:"))
    }
    for job in sorted(held.keys() | ledger.holding.keys()):
        state = ledger.holding.get(job)
        expected = None if state is None or state.placement is None else state.placement.members
        if expected is None or tuple(held.get(job, ())) != expected:
            yield f"{job} holds {held.get(job)} in the occupancy, {expected} in the ledger"


def _collections_agree(ledger: Ledger) -> Iterator[str]:
    """Derived collections are what a fresh count gives."""
    holding = {job for job, state in ledger.jobs.items() if state.phase in HOLDING}
    if holding != set(ledger.holding):
        yield f"holding is {sorted(ledger.holding)}, a count gives {sorted(holding)}"
    waiting = {job for job, state in ledger.jobs.items() if state.phase is Phase.PENDING}
    in_line = {position.job for eq_class in ledger.waiting for position in ledger.waiting[eq_class]}
    if waiting != in_line:
        yield f"in line are {sorted(in_line)}, a count gives {sorted(waiting)}"
    leaving = {job for job, state in ledger.jobs.items() if state.leaving}
    if leaving != set(ledger.leaving):
        yield f"leaving are {sorted(ledger.leaving)}, a count gives {sorted(leaving)}"
    priorities = [state.priority for state in ledger.holding.values()]
    if priorities and min(priorities) != ledger.lowest_priority():
        yield f"lowest priority is {ledger.lowest_priority()}, a count gives {min(priorities)}"


def _arrays_agree(ledger: Ledger) -> Iterator[str]:
    """Each element of an array is unsplit, or a job, or was forgotten; counts are what a fresh count gives."""
    waiting = Counter(
        state.spec.user for state in ledger.jobs.values() if state.phase is Phase.PENDING
    )
    for array in ledger.arrays.values():
        name = array.array
        known = [state for state in ledger.jobs.values() if state.array == name]
        unsplit = [array.job(offset) for offset in array.unsplit_offsets()]
        waiting[array.spec.user] += bool(unsplit)
        if len(unsplit) != array.unsplit or (name in ledger.unsplit) != bool(unsplit):
            yield f"{name} counts {array.unsplit} unsplit elements and has {len(unsplit)}"
        if len(known) != array.known or any(job in ledger.jobs for job in unsplit):
            yield f"{name} counts {array.known} jobs, and {len(known)} are known"
        living = [state.job for state in known if state.phase not in ENDED]
        alive = len(living) + len(unsplit)
        if set(living) != array.alive.keys():
            yield f"{name} counts {list(array.alive)} as alive, a count gives {living}"
        if alive + sum(array.ended.values()) != array.size:
            yield f"{name} has {array.size} elements: {alive} alive, {array.ended} ended"
        for job in array.undecided:
            if ledger.jobs[job].phase is not Phase.PENDING or ledger.jobs[job].held:
                yield f"{job} is {ledger.jobs[job].phase}, and undecided"
    if {user: count for user, count in waiting.items() if count} != ledger.waiting_of_user.of_user:
        yield f"waiting by user is {ledger.waiting_of_user.of_user}, a count gives {waiting}"


def _services_agree(ledger: Ledger) -> Iterator[str]:
    """Replicas of a live service have numbers of their own; not too many are there; none outlives its service."""
    of_service: dict[str, list[JobState]] = {}
    for state in ledger.jobs.values():
        replica = state.spec.service
        if replica is not None and replica.service in ledger.services and state.phase not in ENDED:
            of_service.setdefault(replica.service, []).append(state)
    for name, service in ledger.services.items():
        replicas = of_service.get(name, [])
        if {state.job for state in replicas} != service.replicas.keys():
            yield f"{name} counts replicas {list(service.replicas)}, there are {[s.job for s in replicas]}"
        if service.ended_at is not None and replicas:
            yield f"{name} has ended, and has replicas {[state.job for state in replicas]}"
        numbers = [state.spec.service.number for state in replicas if state.spec.service]
        if len(set(numbers)) < len(numbers) or max(numbers, default=0) >= service.next_number:
            yield f"{name} has replicas {numbers}, and numbers the next one {service.next_number}"
        staying = [state for state in replicas if not _is_ending(state)]
        if service.ending_at is not None and staying:
            yield f"{name} ends, and {[state.job for state in staying]} do not"
        if len(staying) > service.wanted + service.spec.update.surge:
            yield f"{name} wants {service.wanted} replicas, and {[s.job for s in staying]} stay"


def _is_ending(state: JobState) -> bool:
    stops = state.phase is Phase.STOPPING and state.stop_cause is StopCause.CANCELLED
    return stops or state.replica.drain_ends_at is not None


def _claims_agree(ledger: Ledger) -> Iterator[str]:
    """Only waiting jobs have claims and reservations, and gangs that will go on elsewhere claims."""
    for job in ledger.claims:
        state = ledger.jobs[job]
        if state.phase is not Phase.PENDING and not (state.moving and state.leaving):
            yield f"{job} has a claim and is {state.phase}"
    for job in ledger.reservations:
        if ledger.jobs[job].phase is not Phase.PENDING:
            yield f"{job} has a reservation and is {ledger.jobs[job].phase}"


def _nothing_new_on_cordoned(ledger: Ledger) -> Iterator[str]:
    """No gang but a burn-in was placed on a cordoned node since it is, none is promised to be; it may not be used."""
    for node, cordon in ledger.site.cordoned.items():
        for state in ledger.holding.values():
            there = state.placement is not None and node in state.placement.nodes
            is_burn_in = node in state.spec.on_cordoned
            if (
                there
                and not (state.found or is_burn_in)
                and (state.placed_at or 0.0) > cordon.since
            ):
                yield f"{state.job} was placed on {node}, which is cordoned"
        for owner, placement in ledger.held_places():
            if node in placement.nodes:
                yield f"{owner} holds room on {node}, which is cordoned"
        rooms = ledger.occupancy
        if rooms is not None and node in rooms.fabric.index_of_node and rooms.usable(node):
            yield f"{node} is cordoned and may be used"
