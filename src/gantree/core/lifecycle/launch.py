"""Makes orders from the state of a job. Equal states give equal orders, so an order can be sent again at any time."""

from collections.abc import Iterator
from math import prod

from gantree.core.ledger.state import JobState
from gantree.core.lifecycle.idleness import warning_order
from gantree.model.jobs import AXES, Job, Role
from gantree.model.orders import (
    MemberLaunch,
    Order,
    ReplaceMember,
    ResumeGang,
    SaveCheckpoint,
    SignalGang,
    StartGang,
    StopGang,
    SuspendGang,
)
from gantree.model.phases import Phase
from gantree.model.placements import MemberPlacement, Placement

MOST_FAILED_CHECKS = 3
"""So many places in a row a job may lose to its check; then a check that names somebody only warns."""


def start_order(state: JobState) -> StartGang:
    """The order that starts the current attempt at its place."""
    assert state.placement is not None
    present = state.present
    if state.placement.ranks:
        launches = _by_rank_map(present, state.placement)
    else:
        launches = _in_member_order(present, state.placement)
    checkpoint = state.spec.checkpoint
    return StartGang(
        id=f"{state.job}/{state.attempt}/start",
        job=state.job,
        attempt=state.attempt,
        world_size=present.processes,
        members=launches,
        checkpoint_signal=checkpoint.signal if checkpoint else None,
        checkpoint_every_s=checkpoint.every_s if checkpoint else None,
        checkpoint_path=checkpoint.path if checkpoint else None,
        array_index=state.spec.array_index,
        changes=state.placement.changes,
        variables=state.spec.variables,
        domain=state.placement.domain,
        step_s=state.placement.predicted.step_s,
        user=state.spec.user,
        secrets=state.spec.secrets,
        parallelism=_in_rank_order(present),
        check=state.spec.check,
        check_replaces=state.failed_checks < MOST_FAILED_CHECKS and not state.spec.on_cordoned,
        replaceable=state.spec.restarts.replace_s is not None,
        service=state.spec.service,
        leased=state.spec.is_leased,
    )


def _in_rank_order(spec: Job) -> tuple[tuple[str, int], ...]:
    """The axes of the parallelism as ranks count, the fastest first, with the data ways that remain."""
    if not spec.parallelism:
        return ()
    ways = dict(spec.parallelism)
    model = prod(
        number for axis, number in ways.items() if axis in ("tensor", "context", "pipeline")
    )
    ways.setdefault("data", max(1, spec.gpus // model))
    return tuple(ways.items() if spec.ranks_as_written else sorted(ways.items(), key=_axis_number))


def _axis_number(way: tuple[str, int]) -> int:
    return AXES.index(way[0])


def replace_order(state: JobState, member: int) -> ReplaceMember:
    """The order that starts one member of the current attempt anew, by its number in the gang."""
    life = state.life_of(member)
    return ReplaceMember(
        id=f"{state.job}/{state.attempt}/replace-{member}-{life}",
        job=state.job,
        attempt=state.attempt,
        member=member,
        life=life,
        gang=start_order(state),
    )


def _in_member_order(spec: Job, placement: Placement) -> tuple[MemberLaunch, ...]:
    if len(placement.members) == 1:
        return (_launch(spec.roles[0], placement.members[0], 0, 0),)
    place_of_member = {(place.role, place.rank): place for place in placement.members}
    return tuple(
        _launch(role, place_of_member[role.name, member], node_rank, first_rank)
        for role, member, node_rank, first_rank in spec.each_member()
    )


def _by_rank_map(spec: Job, placement: Placement) -> tuple[MemberLaunch, ...]:
    """Members by their lowest rank: the node of rank 0 comes first, and where whole members moved, launchers that count
    ranks node by node count as the map does."""
    in_rank_order = sorted(_members_with_ranks(spec, placement), key=lambda each: min(each[2]))
    return tuple(
        _launch(role, place, node_rank, ranks[0], ranks)
        for node_rank, (role, place, ranks) in enumerate(in_rank_order)
    )


def _members_with_ranks(
    spec: Job, placement: Placement
) -> Iterator[tuple[Role, MemberPlacement, tuple[int, ...]]]:
    role_of_name = {role.name: role for role in spec.roles}
    first = 0
    for place in placement.members:
        role = role_of_name[place.role]
        yield role, place, placement.ranks[first : first + role.processes]
        first += role.processes


def _launch(
    role: Role,
    place: MemberPlacement,
    node_rank: int,
    first_rank: int,
    ranks: tuple[int, ...] = (),
) -> MemberLaunch:
    return MemberLaunch(
        role=role.name,
        rank=place.rank,
        node=place.node,
        node_rank=node_rank,
        first_rank=first_rank,
        processes=role.processes,
        gpus=place.gpus,
        nics=place.nics,
        run=role.run,
        env=role.env,
        workdir=role.workdir,
        image=role.image,
        cpus=place.cpus,
        memory_GiB=place.memory_GiB,
        mig=place.mig,
        share=place.share,
        devices=place.devices,
        ranks=ranks,
    )


def save_order(state: JobState) -> SaveCheckpoint:
    """The order that asks the ranks for the checkpoint that was requested last."""
    assert state.request is not None and state.deadline_at is not None
    return SaveCheckpoint(
        id=f"{state.request}/save",
        job=state.job,
        attempt=state.attempt,
        request=state.request,
        deadline_at=state.deadline_at,
    )


def stop_order(state: JobState) -> StopGang:
    """The order that stops the current attempt."""
    return StopGang(
        id=f"{state.job}/{state.attempt}/stop",
        job=state.job,
        attempt=state.attempt,
        grace_s=state.stop_grace_s,
    )


def turn_order(state: JobState) -> SuspendGang | ResumeGang:
    """The order that makes the current attempt rest, or go on, as the ledger has it."""
    kind = SuspendGang if state.suspended else ResumeGang
    return kind(
        id=f"{state.job}/{state.attempt}/turn-{state.slices.turns}",
        job=state.job,
        attempt=state.attempt,
        turn=state.slices.turns,
    )


def signal_order(state: JobState) -> SignalGang:
    """Return the order that signals the current attempt that its time limit is near."""
    assert state.spec.warn is not None
    return SignalGang(
        id=f"{state.job}/{state.attempt}/warn",
        job=state.job,
        attempt=state.attempt,
        signal=state.spec.warn.signal,
    )


def standing_orders(state: JobState) -> tuple[Order, ...]:
    """The orders that must be in force for a job in its present phase, in the order in which they were given."""
    turn = (turn_order(state),) if state.slices.turns else ()
    warning: tuple[Order, ...] = (signal_order(state),) if state.warned else ()
    if state.idle.warned_at is not None:
        warning += (warning_order(state),)
    match state.phase:
        case Phase.STARTING | Phase.RUNNING:
            replaced = (replace_order(state, gap.member) for gap in state.missing if gap.placed)
            return (start_order(state), *turn, *warning, *replaced)
        case Phase.SAVING:
            save = (save_order(state),) if state.request is not None else ()
            return (start_order(state), *turn, *warning, *save)
        case Phase.STOPPING:
            return (stop_order(state),)
        case _:
            return ()
