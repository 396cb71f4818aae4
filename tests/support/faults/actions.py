"""What the actions of a plan do to a life."""

from collections.abc import Callable
from math import inf, nan
from random import Random
from typing import TYPE_CHECKING

from gantree.core.ledger.state import JobState
from gantree.model.events import GpuUseObserved, HealthObserved, LabelRequested
from gantree.model.gpu_activity import Drawn, MeasuredUse
from gantree.model.jobs import Job
from gantree.model.phases import ENDED, HOLDING, Phase
from support.faults.poison import LABEL
from support.faults.serving import drained, end_service, scale_service, serve
from support.random_lives import a_job

if TYPE_CHECKING:
    from support.faults.life import Life

DAY_S = 86_400.0
MOST_WAITING = 4
USUAL_GPUS = 8
"""Larger jobs have no room in one leaf, or in the limits of most queues."""
Act = Callable[["Life", Random], None]


def time_passes(life: "Life", lots: Random) -> None:
    life.advance(life.pace * lots.choice((0.1, 1.0, 5.0, 10.0, 20.0, 31.0)))


def submit(life: "Life", lots: Random) -> None:
    """Jobs; where many wait the oldest is cancelled, as what a decision costs grows with them."""
    waiting = [state for state in life.jobs() if state.phase is Phase.PENDING]
    if len(waiting) > MOST_WAITING:
        life.command("cancel", waiting[0].job)
    earlier = [job for job in life.audit.accepted if job not in life.audit.ended]
    names = [f"j{life.submitted + number}" for number in range(lots.randint(1, 2))]
    life.submit([_job(life, lots, name, earlier[-5:]) for name in names])


def _job(life: "Life", lots: Random, name: str, earlier: list[str]) -> Job:
    """A job, seldom a large one; of whole GPUs alone in most lives, as parts cost most of the time of a life."""
    while True:
        job = a_job(lots, name, earlier, guesses=lots.random() < 0.5)
        gpus, parts = job.roles[0].members * job.roles[0].shape.gpus, not job.roles[0].shape.gpus
        if life.has_parts if parts else gpus <= USUAL_GPUS or lots.random() < 0.2:
            return job


def on_a_job(*phases: Phase, command: Callable[["Life", JobState, Random], None]) -> Act:
    """A request of a user about one of the jobs in these phases."""

    def act(life: "Life", lots: Random) -> None:
        there = [state for state in life.jobs() if state.phase in phases]
        if there:
            command(life, lots.choice(there), lots)

    return act


def release(life: "Life", lots: Random) -> None:
    held = [state for state in life.jobs() if state.held and state.phase not in ENDED]
    if held:
        life.command("release", lots.choice(held).job)


def scale(life: "Life", state: JobState, lots: Random) -> None:
    if state.spec.elastic is not None:
        life.command("scale", state.job, lots.randint(1, state.spec.elastic.max))


def cordon(life: "Life", lots: Random) -> None:
    node = lots.choice(life.nodes)
    if lots.random() < 0.5:
        life.node_command("drain", node, lots.choice((None, 30.0)))
    else:
        life.node_command("cordon", node)


def uncordon(life: "Life", lots: Random) -> None:
    life.node_command("uncordon", lots.choice(life.nodes))


def health(life: "Life", lots: Random) -> None:
    reason, lost = lots.choice(
        (("", None), ("", None), ("XID 48", None), ("GPU 0: XID 79", (0,)), ("XID 79", ()))
    )
    node = lots.choice(life.nodes)
    life.emit(
        lambda id_, at: HealthObserved(
            id=id_, observed_at=at, node=node, source="dcgm", reason=reason, lost_gpus=lost
        )
    )


def measure(life: "Life", lots: Random) -> None:
    """Counters tell what some gangs did: rightly, too much, of a time that is over for long, or nonsense."""
    jobs = life.jobs()
    states = [state for state in jobs if state.phase in HOLDING] or jobs
    gangs = tuple(
        MeasuredUse(
            state.job,
            state.attempt,
            lots.choice((0.0, 3.0, 60.0, 2000.0, nan, -5.0)),
            lots.choice((0.0, 0.0, 3.0, 60.0, inf)),
            drawn=Drawn(*(lots.choice((0.0, 2.0, 50.0, nan, -5.0)) for _ in range(4))),
        )
        for state in lots.sample(states, min(len(states), 5))
    )
    since_s, until_s = (
        lots.choice((15.0, 60.0, 300.0, 5000.0)),
        lots.choice((0.0, 0.0, -10.0, 90.0)),
    )
    for _ in range(lots.choice((1, 1, 1, 2))):
        life.emit(
            lambda name, at: GpuUseObserved(
                id=name, observed_at=at, since=at - since_s, until=at + until_s, gangs=gangs
            )
        )


def poison(life: "Life", lots: Random) -> None:
    node = lots.choice(life.nodes)
    life.poison(
        lambda id_, at: LabelRequested(id=id_, observed_at=at, node=node, labels=((LABEL, "1"),))
    )


def kill(life: "Life", lots: Random) -> None:
    leader = life.leader()
    if leader is not None:
        life.die(leader, "kill")


def power_cut_after_a_submission(life: "Life", lots: Random) -> None:
    """Right after the user has the receipt."""
    leader = life.leader()
    if leader is not None:
        submit(life, lots)
        if life.leader() is leader:
            life.die(leader, "power cut")


def at_a_write(how: str) -> Act:
    """The leader dies at one of the next points between two writes."""

    def act(life: "Life", lots: Random) -> None:
        leader = life.leader()
        if leader is not None and not leader.points.is_planned:
            leader.points.plan(lots.randint(1, 40), lambda where: life.dies_at(leader, how, where))

    return act


def restart(life: "Life", lots: Random) -> None:
    leader = life.leader()
    if leader is not None:
        life.stop(leader)


def disk_full(life: "Life", lots: Random) -> None:
    life.disk.is_full = True
    life.timeline.after(lots.choice((1.0, 10.0, 30.0)), life.free_disk)


def fails(kind: str) -> Act:
    """The next write, or the next commit, fails."""

    def act(life: "Life", lots: Random) -> None:
        life.disk.failing = kind

    return act


def trouble_with_orders(life: "Life", lots: Random) -> None:
    life.site.network.trouble.orders = lots.choice((0.3, 0.7))
    life.timeline.after(lots.choice((20.0, 60.0)), life.calm_orders)


def trouble_with_events(life: "Life", lots: Random) -> None:
    life.site.network.trouble.events = lots.choice((0.3, 0.7))
    life.timeline.after(lots.choice((20.0, 60.0)), life.calm_events)


def event_of_the_past(life: "Life", lots: Random) -> None:
    past = life.site.past()
    if past:
        life.tally.came("event of the past")
        life.site.network.tell_again(lots.choice(past))


def node_lost(life: "Life", lots: Random) -> None:
    life.lose_node(lots.choice(life.nodes), "node lost")


def node_lost_in_a_start(life: "Life", lots: Random) -> None:
    starting = [each for each in life.site.starting() if any(each.living())]
    if starting:
        member = lots.choice(list(lots.choice(starting).living()))
        life.lose_node(member.launch.node, "node lost in a start")


def node_cut_off(life: "Life", lots: Random) -> None:
    life.cut_off(lots.choice(life.nodes))


def gang_vanishes(life: "Life", lots: Random) -> None:
    there = [each for each in life.site.attempts.values() if any(each.living())]
    if there:
        life.tally.came("gang vanished")
        life.site.vanish(lots.choice(there))


def wall_clock_set(life: "Life", lots: Random) -> None:
    ahead_s = lots.choice((-3 * DAY_S, -600.0, -5.0, 5.0, 120.0, 3600.0, 0.0))
    life.tally.came("clock ahead" if ahead_s > 0 else "clock back")
    lots.choice(list(life.machines.values())).set_wall(ahead_s)


def machine_reboots(life: "Life", lots: Random) -> None:
    name = lots.choice(list(life.machines))
    life.reboot(name)


def executor_fails(life: "Life", lots: Random) -> None:
    life.fail_order()


def pause_the_leader(life: "Life", lots: Random) -> None:
    leader = life.leader()
    if life.is_shared and leader is not None and not leader.points.is_planned:
        paused = Random(lots.getrandbits(32))
        leader.points.plan(lots.randint(1, 40), lambda where: life.pause(leader, paused, where))


def lease_expires(life: "Life", lots: Random) -> None:
    if life.is_shared:
        life.miss_renewals()


ACTIONS: dict[str, Act] = {
    "time passes": time_passes,
    "submit": submit,
    "cancel": on_a_job(
        Phase.PENDING, Phase.STARTING, Phase.RUNNING, Phase.SAVING,
        command=lambda life, state, lots: life.command("cancel", state.job),
    ),
    "hold": on_a_job(Phase.PENDING, command=lambda life, state, lots: life.command("hold", state.job)),
    "release": release,
    "suspend": on_a_job(
        Phase.RUNNING, command=lambda life, state, lots: life.command("suspend", state.job)
    ),
    "scale": on_a_job(Phase.PENDING, Phase.RUNNING, command=scale),
    "reprioritise": on_a_job(
        Phase.PENDING, Phase.RUNNING,
        command=lambda life, state, lots: life.command(
            "reprioritise", state.job, lots.choice(("research", "production", "serving"))
        ),
    ),
    "cordon": cordon,
    "uncordon": uncordon,
    "health": health,
    "measure": measure,
    "serve": serve,
    "scale a service": scale_service,
    "end a service": end_service,
    "requests drained": drained,
    "kill": kill,
    "power cut after a submission": power_cut_after_a_submission,
    "kill at a write": at_a_write("kill"),
    "power cut at a write": at_a_write("power cut"),
    "restart": restart,
    "disk full": disk_full,
    "write error": fails("statement"),
    "lost answer": fails("answer"),
    "poison": poison,
    "executor fails": executor_fails,
    "trouble with orders": trouble_with_orders,
    "trouble with events": trouble_with_events,
    "event of the past": event_of_the_past,
    "node lost": node_lost,
    "node lost in a start": node_lost_in_a_start,
    "node cut off": node_cut_off,
    "gang vanishes": gang_vanishes,
    "wall clock set": wall_clock_set,
    "machine reboots": machine_reboots,
    "pause the leader": pause_the_leader,
    "lease expires": lease_expires,
}  # fmt: skip
