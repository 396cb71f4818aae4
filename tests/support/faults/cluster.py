"""A simulated cluster that keeps the contract of an executor under faults of its own.

The contract, as `control.ports` and the local executor have it: an order is carried out once however often it
arrives; a stop before the start means that the attempt never starts; an order of an older epoch is refused; of what
happened it tells under ids that never change, until that is settled; a place is empty when the end of its gang is told.
Beyond it nodes end and come back, cannot be reached while their processes run on, starts fail, ranks fail, checkpoints
hang, and all traces of an attempt may be lost.

What no scheduler may bring about is noted in `violations`: two processes on one device, two attempts of one job at a
time, an order that is not on record.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from gantree.executors.inventory import Inventory
from gantree.executors.local.epochs import LeaderGuard
from gantree.model.events import (
    CheckpointSaved,
    Event,
    GangEnded,
    GangStarted,
    GangStartFailed,
    MemberLost,
    MemberStarted,
    NodeLost,
    NodeReturned,
    RankExited,
)
from gantree.model.jobs import Job
from gantree.model.orders import (
    Order,
    ReplaceMember,
    ResumeGang,
    SaveCheckpoint,
    StartGang,
    StopGang,
    SuspendGang,
)
from support.faults.attempt import KILLED, TERMINATED, SimulatedAttempt, SimulatedMember
from support.faults.clocks import Timeline
from support.faults.devices_in_use import DevicesInUse
from support.faults.network import Network
from support.faults.serving import readiness
from support.faults.tally import Tally

RUN_S = (1.0, 2.0, 5.0, 10.0, 30.0, 100.0)
"""How long gangs run, about."""
LATE_CHECKPOINTS = 0.25
"""The share of attempts that are stopped or fail whose last checkpoint is told late."""


@dataclass(slots=True)
class SimulatedNode:
    """A node: whether it runs, whether it can be reached, and what was told of it."""

    name: str
    is_up: bool = True
    is_reachable: bool = True
    losses: int = 0
    events: list[Event] = field(default_factory=list)


class SimulatedCluster:
    """Nodes with processes. clock stamps events; on_record tells whether a turn has committed an order."""

    def __init__(
        self,
        nodes: list[str],
        epochs: Path,
        timeline: Timeline,
        seed: str,
        tally: Tally,
        on_record: Callable[[Order], bool],
    ) -> None:
        self.nodes = {name: SimulatedNode(name) for name in nodes}
        self.attempts: dict[tuple[str, int], SimulatedAttempt] = {}
        self.spec_of: dict[str, Job] = {}
        self.violations: list[str] = []
        self.faulty = True
        self._timeline, self._seed, self._tally = timeline, seed, tally
        self._devices = DevicesInUse()
        self._guard = LeaderGuard(epochs, lambda: True)
        self._on_record = on_record
        self._begun = 0
        self.network = Network(timeline, Random(f"{seed}/network"), tally, self.arrive)

    # ----- orders

    def arrive(self, order: Order) -> None:
        """An order has arrived."""
        if not self._guard.admits(order):
            self._tally.came("order refused")
            return
        if order.epoch < self._begun:
            self.violations.append(
                f"order {order.id} of epoch {order.epoch} is carried out in epoch {self._begun}"
            )
        if not self._on_record(order):
            self.violations.append(f"order {order.id} is carried out, and on record nowhere")
        attempt = self.attempts.get((order.job, order.attempt))
        match order:
            case StartGang():
                if attempt is None:
                    self._start(order)
            case StopGang():
                self._stop(order, attempt)
            case SaveCheckpoint() if attempt is not None and attempt.works:
                self._save(order, attempt)
            case SuspendGang() | ResumeGang() if attempt is not None:
                self._take_turn(order, attempt)
            case ReplaceMember() if attempt is not None and attempt.works:
                self._replace(order, attempt)
            case _:
                pass

    def _new(self, job: str, number: int) -> SimulatedAttempt:
        spec = self.spec_of.get(job)
        attempt = SimulatedAttempt(
            job,
            number,
            Random(f"{self._seed}/{job}/{number}"),
            can_replace=spec is not None and spec.restarts.replace_s is not None,
        )
        self.attempts[job, number] = attempt
        return attempt

    def _start(self, order: StartGang) -> None:
        for (job, number), other in self.attempts.items():
            if job == order.job and (number > order.attempt or any(other.living())):
                self.violations.append(
                    f"{order.id}, and attempt {number} of it is there ({other.status()})"
                )
        attempt = self._new(order.job, order.attempt)
        attempt.order = order
        is_there = True
        for launch in order.members:
            member = SimulatedMember(launch)
            node = self.nodes[launch.node]
            member.is_alive = node.is_up and node.is_reachable
            is_there = is_there and member.is_alive
            attempt.members.append(member)
            if member.is_alive:
                self.violations += self._devices.begin(attempt.owner(member), launch)
        lots = attempt.lots
        if not is_there:
            self._timeline.after(lots.uniform(1, 5), lambda: self._fail_to_start(attempt))
        elif self.faulty and lots.random() < 0.05:
            self._tally.came("start failed")
            self._timeline.after(lots.uniform(0, 3), lambda: self._fail_to_start(attempt))
        else:
            start_s = lots.choice((0.0, 0.5, 2.0, 8.0))
            self._timeline.after(start_s, lambda: self._started(attempt))

    def _fail_to_start(self, attempt: SimulatedAttempt) -> None:
        if attempt.is_over or attempt.has_started:
            return
        self._tell(
            attempt,
            GangStartFailed(
                id=f"{attempt.prefix}/start-failed",
                observed_at=self._timeline.now,
                job=attempt.job,
                attempt=attempt.number,
                reason="a member could not be started",
            ),
        )
        self._break(attempt, 126)

    def _started(self, attempt: SimulatedAttempt) -> None:
        if attempt.is_over or attempt.is_stopping or attempt.is_broken:
            return
        if any(not member.is_alive for member in attempt.members):
            return  # a node ended meanwhile, and nobody is left there to say so
        attempt.has_started = True
        self._tell(
            attempt,
            GangStarted(
                id=f"{attempt.prefix}/started",
                observed_at=self._timeline.now,
                job=attempt.job,
                attempt=attempt.number,
            ),
        )
        lots = attempt.lots
        run_s = lots.choice(RUN_S) * lots.uniform(0.5, 1.5)
        if lots.random() < 0.5:
            self._timeline.after(run_s * lots.random(), lambda: self._save_unasked(attempt))
        if self.faulty and lots.random() < 0.12:
            self._timeline.after(run_s * lots.random(), lambda: self._fail_a_rank(attempt))
        self._timeline.after(run_s, lambda: self._finish(attempt))
        if attempt.order is not None and attempt.order.service is not None:
            self._timeline.after(lots.uniform(0, 5), lambda: self._changes_readiness(attempt, 1))

    def _changes_readiness(self, attempt: SimulatedAttempt, number: int) -> None:
        """A replica is ready, or no longer, and will often change again."""
        if attempt.works:
            self._tell(attempt, readiness(attempt, number, self._timeline.now))
            if attempt.lots.random() < 0.5:
                after_s = attempt.lots.uniform(1, 30)
                self._timeline.after(after_s, lambda: self._changes_readiness(attempt, number + 1))

    def _stop(self, order: StopGang, attempt: SimulatedAttempt | None) -> None:
        if attempt is None:
            attempt = self._new(order.job, order.attempt)
        if attempt.is_over or attempt.is_stopping:
            return
        attempt.is_stopping = attempt.was_prompted = True
        self._save_at_the_end(attempt)
        stop_s = attempt.lots.choice((0.0, 0.2, order.grace_s * attempt.lots.random()))
        self._timeline.after(stop_s, lambda: self._end_members(attempt, TERMINATED))

    def _save(self, order: SaveCheckpoint, attempt: SimulatedAttempt) -> None:
        if order.request in attempt.requests:
            return
        attempt.requests.add(order.request)
        lots = attempt.lots
        if self.faulty and lots.random() < 0.25:
            self._tally.came("save hung")
            return
        self._timeline.after(
            lots.uniform(0, 12),
            lambda: self._saved(attempt, f"answer-to/{order.request}", order.request),
        )

    def _save_unasked(self, attempt: SimulatedAttempt) -> None:
        self._saved(attempt, f"checkpoint-at-{attempt.step + 1}", None)

    def _saved(self, attempt: SimulatedAttempt, name: str, request: str | None) -> None:
        if attempt.is_over or not attempt.has_started:
            return
        attempt.step += 1
        self._tell_saved(attempt, name, request)

    def _save_at_the_end(self, attempt: SimulatedAttempt) -> None:
        """At the end a checkpoint became durable, and the news comes when the next attempt may run."""
        lots = attempt.lots
        if self.faulty and attempt.has_started and lots.random() < LATE_CHECKPOINTS:
            attempt.step += 1
            self._tally.came("event late")
            name = f"checkpoint-at-{attempt.step}"
            late_s = lots.uniform(5, 60)
            self._timeline.after(late_s, partial(self._tell_saved, attempt, name, None))

    def _tell_saved(self, attempt: SimulatedAttempt, name: str, request: str | None) -> None:
        self._tell(
            attempt,
            CheckpointSaved(
                id=f"{attempt.prefix}/{name}",
                observed_at=self._timeline.now,
                job=attempt.job,
                attempt=attempt.number,
                step=attempt.number * 1000 + attempt.step,
                request=request,
            ),
        )

    def _take_turn(self, order: SuspendGang | ResumeGang, attempt: SimulatedAttempt) -> None:
        if order.turn < attempt.turn or attempt.is_stopping:
            return
        attempt.turn = order.turn
        attempt.suspended = isinstance(order, SuspendGang)
        if not attempt.suspended and attempt.end_is_due:
            self._timeline.after(1.0, lambda: self._finish(attempt))

    def _replace(self, order: ReplaceMember, attempt: SimulatedAttempt) -> None:
        if order.life <= attempt.life_of(order.member):
            return
        for member in list(attempt.living()):
            if (
                member.launch.node_rank == order.member
                and self.nodes[member.launch.node].is_reachable
            ):
                self._end_member(attempt, member)
        launch = next(each for each in order.gang.members if each.node_rank == order.member)
        node = self.nodes[launch.node]
        member = SimulatedMember(launch, order.life, node.is_up and node.is_reachable)
        attempt.members.append(member)
        if member.is_alive:
            self.violations += self._devices.begin(attempt.owner(member), launch)
            self._timeline.after(
                attempt.lots.uniform(0, 5), lambda: self._member_started(attempt, member)
            )

    def _member_started(self, attempt: SimulatedAttempt, member: SimulatedMember) -> None:
        if not member.is_alive or attempt.is_stopping or attempt.is_over:
            return
        rank = member.launch.node_rank
        self._tell(
            attempt,
            MemberStarted(
                id=f"{attempt.prefix}/member-{rank}-{member.life}-started",
                observed_at=self._timeline.now,
                job=attempt.job,
                attempt=attempt.number,
                member=rank,
                life=member.life,
            ),
        )
        self._timeline.after(RUN_S[0], lambda: self._finish(attempt))

    # ----- ends

    def _finish(self, attempt: SimulatedAttempt) -> None:
        """Its work is done."""
        if not attempt.works:
            return
        if attempt.suspended:
            attempt.end_is_due = True
            return
        if len(list(attempt.living())) < len(attempt.order.members if attempt.order else ()):
            return  # the others wait for the member that is lost
        self._end_members(attempt, 0)

    def _fail_a_rank(self, attempt: SimulatedAttempt) -> None:
        if not attempt.works or attempt.suspended:
            return
        member = attempt.lots.choice(list(attempt.living()) or attempt.members)
        if not member.is_alive or not self.nodes[member.launch.node].is_reachable:
            return
        self._tally.came("rank failed")
        self._end_member(attempt, member)
        self._rank_exited(attempt, member, 1)
        if not attempt.can_replace:
            self._break(attempt, 1)

    def _rank_exited(self, attempt: SimulatedAttempt, member: SimulatedMember, code: int) -> None:
        rank = member.launch.rank_of_process[0]
        self._tell(
            attempt,
            RankExited(
                id=f"{attempt.prefix}/rank-{rank}-{member.life}-exited",
                observed_at=self._timeline.now,
                job=attempt.job,
                attempt=attempt.number,
                rank=rank,
                exit_code=code,
                life=member.life,
            ),
        )

    def _break(self, attempt: SimulatedAttempt, code: int) -> None:
        """One member has failed: the others are stopped, whatever will be decided."""
        attempt.is_broken = True
        attempt.was_prompted = True
        self._save_at_the_end(attempt)
        attempt.exit_code = code if attempt.exit_code is None else attempt.exit_code
        self._timeline.after(attempt.lots.uniform(0, 5), lambda: self._end_members(attempt, code))

    def _end_members(self, attempt: SimulatedAttempt, code: int) -> None:
        """All members that can be reached end; once none is left, the attempt is over."""
        if attempt.is_over or self.attempts.get(attempt.key) is not attempt:
            return
        attempt.exit_code = code if attempt.exit_code is None else attempt.exit_code
        attempt.is_broken = True
        for member in list(attempt.living()):
            if self.nodes[member.launch.node].is_reachable:
                self._end_member(attempt, member)
                if attempt.has_started:
                    self._rank_exited(attempt, member, TERMINATED if code else 0)
        self._end_if_empty(attempt)

    def _end_member(self, attempt: SimulatedAttempt, member: SimulatedMember) -> None:
        member.is_alive = False
        self._devices.end(attempt.owner(member))

    def _end_if_empty(self, attempt: SimulatedAttempt) -> None:
        """Tell of the end if no member is left and none will be started."""
        ends = attempt.is_stopping or attempt.is_broken
        if attempt.is_over or not ends or any(attempt.living()):
            return
        attempt.is_over = True
        self._tell(
            attempt,
            GangEnded(
                id=f"{attempt.prefix}/ended",
                observed_at=self._timeline.now,
                job=attempt.job,
                attempt=attempt.number,
                exit_code=TERMINATED if attempt.exit_code is None else attempt.exit_code,
                unprompted=not attempt.was_prompted,
            ),
        )

    # ----- nodes

    def lose_node(self, name: str) -> None:
        """A node ends, with all its processes. It comes back later, empty."""
        node = self.nodes[name]
        if not (node.is_up and node.is_reachable):
            return
        node.is_up = False
        lots = self._node_lots(node)
        for attempt in list(self.attempts.values()):
            lost = attempt.on(name)
            for member in lost:
                self._end_member(attempt, member)
            if lost and attempt.has_started and lots.random() < 0.5:
                delay_s = lots.uniform(0, 20)
                self._timeline.after(delay_s, partial(self._members_lost, attempt, lost))
            self._end_if_empty(attempt)
        self._lost_and_returned(node, lots)

    def cut_off(self, name: str) -> None:
        """A node cannot be reached. Its processes run on, until it is reached again and they are stopped."""
        node = self.nodes[name]
        if not (node.is_up and node.is_reachable):
            return
        node.is_reachable = False
        self._lost_and_returned(node, self._node_lots(node))

    def _node_lots(self, node: SimulatedNode) -> Random:
        node.losses += 1
        return Random(f"{self._seed}/{node.name}/{node.losses}")

    def _lost_and_returned(self, node: SimulatedNode, lots: Random) -> None:
        number = node.losses
        self._timeline.after(lots.uniform(0, 15), lambda: self._node_lost(node, number))
        self._timeline.after(lots.uniform(20, 120), lambda: self._return(node, number))

    def _node_lost(self, node: SimulatedNode, number: int) -> None:
        event = NodeLost(
            id=f"node/{node.name}/lost/{number}",
            observed_at=self._timeline.now,
            node=node.name,
            reason="it does not answer",
        )
        self._tell_of_node(node, event)

    def _return(self, node: SimulatedNode, number: int) -> None:
        """It is there again, and what still ran on it is stopped before that is told."""
        for attempt in list(self.attempts.values()):
            lost = attempt.on(node.name)
            for member in lost:
                self._end_member(attempt, member)
            node_is_back = lost and attempt.works
            if node_is_back:
                self._members_lost(attempt, lost)
            self._end_if_empty(attempt)
        node.is_up = node.is_reachable = True
        event = NodeReturned(
            id=f"node/{node.name}/returned/{number}",
            observed_at=self._timeline.now,
            node=node.name,
        )
        self._tell_of_node(node, event)

    def _members_lost(self, attempt: SimulatedAttempt, members: list[SimulatedMember]) -> None:
        if not attempt.works:
            return
        for member in members:
            launch = member.launch
            self._tell(
                attempt,
                MemberLost(
                    id=f"{attempt.prefix}/member-{launch.node_rank}-{member.life}-lost",
                    observed_at=self._timeline.now,
                    job=attempt.job,
                    attempt=attempt.number,
                    role=launch.role,
                    member=launch.rank,
                    reason="its node ended",
                    rank=launch.rank_of_process[0],
                    life=member.life,
                ),
            )
        if not attempt.can_replace:
            self._break(attempt, KILLED)

    def vanish(self, attempt: SimulatedAttempt) -> None:
        """All traces of an attempt are lost, and its processes, and what was under way to it and from it."""
        for member in list(attempt.living()):
            self._end_member(attempt, member)
        attempt.is_over = True
        del self.attempts[attempt.key]
        self.network.drop_orders(*attempt.key)
        ids = {event.id for event in attempt.events}
        self.network.drop_events(lambda event: event.id in ids)

    # ----- what is told

    def _tell(self, attempt: SimulatedAttempt, event: Event) -> None:
        if self.attempts.get(attempt.key) is attempt:
            attempt.events.append(event)
            self.network.tell(event)

    def _tell_of_node(self, node: SimulatedNode, event: Event) -> None:
        node.events.append(event)
        self.network.tell(event, in_order=True)

    def begin(self, epoch: int) -> None:
        """A leader of this epoch takes over: it is told all that is not settled."""
        self._begun = max(self._begun, epoch)
        for node in self.nodes.values():
            for event in node.events[-2:]:
                self.network.tell_again(event)
        for attempt in self.attempts.values():
            if not attempt.is_settled:
                for event in attempt.events:
                    self.network.tell_again(event)

    def settle(self, job: str, attempt: int) -> None:
        """The end of an attempt is on record."""
        known = self.attempts.get((job, attempt))
        if known is not None and known.is_over:
            known.is_settled = True

    def inventory(self) -> Inventory:
        """The status of all attempts that are not settled."""
        return Inventory(
            {key: each.status() for key, each in self.attempts.items() if not each.is_settled}
        )

    def past(self) -> list[Event]:
        """The events of attempts that are over."""
        return [event for each in self.attempts.values() if each.is_over for event in each.events]

    def starting(self) -> Iterator[SimulatedAttempt]:
        """Attempts of which not all members run yet."""
        return (
            each
            for each in self.attempts.values()
            if each.order is not None and not (each.has_started or each.is_over or each.is_stopping)
        )

    @property
    def living(self) -> list[tuple[str, int, int, int]]:
        """All members that have a process."""
        return self._devices.owners
