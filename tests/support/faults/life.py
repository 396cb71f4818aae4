"""One life: a site, its disk and its machines, and one or two daemons that lead it, under the actions of a plan.

    outcome = Life(seed, place).run()

After each action the daemon that leads makes its steps, and everything is checked that must hold at any time
(`Life.check`). At the end all faults stop, and `convergence` checks what must have become of it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random

from gantree.control.engine.retention import RetentionLimits
from gantree.core.ledger.invariants import check
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.model.cluster import Cluster
from gantree.model.errors import GantreeError, NotLeading
from gantree.model.events import Event
from gantree.model.jobs import Job
from gantree.model.orders import Order
from support.faults import convergence
from support.faults.actions import ACTIONS
from support.faults.audit import FactAudit
from support.faults.clocks import EPOCH_S, MachineClocks, Timeline
from support.faults.cluster import SimulatedCluster
from support.faults.daemon import LEASE_S, Daemon
from support.faults.disk import Disk
from support.faults.plan import Action, plan_of
from support.faults.points import Died
from support.faults.poison import buggy_core
from support.faults.port import SimulatedPort
from support.faults.tally import FAULTS, Tally
from support.random_lives import EVERY_KIND, NODES, site
from support.same_ledger import differences

LEAST_EVENTS = 300
LEAST_FAULTS = 20
EVENTS_OF_AN_END = 40
"""About so many come when all jobs end at the end."""
MOST_ACTIONS = 2_000
STEPS = 6
"""Of one daemon after an action, at most: a disk that is full for long must not hold up a life."""
COMPARED_EVERY = 60
"""After so many actions the ledger is compared with a fold of the journal."""
SLICE_S = LEASE_S / 2
DIES_IN_A_START = 0.2
CAMPAIGN_EVERY_S = 6.0


class Broken(AssertionError):
    """Something does not hold."""


class Life:
    """One life. It leaves its files in place, a directory of its own."""

    def __init__(self, seed: int, place: Path, plan: Sequence[Action] | None = None) -> None:
        """plan: these actions instead of those of the seed."""
        self.seed = seed
        self._given = plan
        lots = Random(f"{seed}/life")
        self._lots = lots
        self.is_shared = lots.random() < 0.35
        self.policy_name = lots.choice(list(EVERY_KIND))
        self.policy = EVERY_KIND[self.policy_name]
        self.has_parts = lots.random() < 0.2
        self.pace = lots.choice((0.5, 1.0, 2.0, 3.0))
        self.cluster: Cluster = site(lots.choice([0, 0, 1]))
        self.nodes = NODES
        self.tally = Tally()
        self.timeline = Timeline()
        self.machines = {name: MachineClocks(self.timeline) for name in "ab"}
        self.disk = Disk(place, self.tally, Random(f"{seed}/disk"))
        self._epochs = place / "epochs"
        self._epochs.mkdir()
        self.site = SimulatedCluster(
            list(NODES), self._epochs, self.timeline, str(seed), self.tally, self._on_record
        )
        self.audit = FactAudit(self.site)
        self._keep = RetentionLimits(lots.choice([10_000, 10]), lots.choice([None, None, 300.0]))
        self._snapshot_every = lots.choice([60, 200, 25_000])
        self.current: Daemon | None = None
        self._paused: list[Daemon] = []
        self._starts = 0
        self._renews = True
        self.performed: list[Action] = []
        self.trace: list[str] = []
        self.submitted = 0
        self.events = 0
        self.acknowledged_jobs: dict[str, Job] = {}
        self.acknowledged: list[str] = []
        self.poisoned: set[str] = set()
        self._emitted = 0
        self._orders_on_record: dict[str, Order] = {}
        self._orders_read = 0
        self._orders_unread: list[str] = []
        self._checked: tuple[Ledger | None, int] = None, 0

    # ----- running

    def run(self) -> Tally:
        """Live. Raises Broken, or what production code raises that is a bug."""
        with ExitStack() as opened:
            opened.enter_context(buggy_core())
            opened.callback(self._scrap_all)
            self.pump()
            plan = iter(plan_of(self.seed) if self._given is None else self._given)
            self._act(plan, LEAST_EVENTS - EVENTS_OF_AN_END)
            convergence.converge(self)
            if self._given is None and self.events < LEAST_EVENTS:
                self.site.faulty = True
                self._act(plan, LEAST_EVENTS)
                convergence.converge(self)
        return self.tally

    def _act(self, plan: Iterator[Action], least_events: int) -> None:
        """Let actions happen, until there were enough events and faults, or the plan is at its end."""
        for action in plan:
            self.performed.append(action)
            self.note(f"-- {action.kind}")
            ACTIONS[action.kind](self, Random(action.lot))
            self.pump()
            self.check(is_thorough=len(self.performed) % COMPARED_EVERY == 0)
            is_long_enough = self.events >= least_events and self.faults >= LEAST_FAULTS
            if self._given is None and (is_long_enough or len(self.performed) >= MOST_ACTIONS):
                return

    @property
    def faults(self) -> int:
        """Faults that came so far."""
        return sum(self.tally[kind] for kind in FAULTS)

    def note(self, line: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.timeline.now - EPOCH_S:9.1f} {line}")

    def pump(self) -> None:
        """Let a daemon lead, and make its steps until there is nothing to do."""
        if self.current is None:
            self._bring_up()
        for _ in range(STEPS):
            daemon = self.current
            if daemon is None or daemon.controller is None:
                return
            progressed = self.guarded(daemon, daemon.controller.step)
            if not progressed:
                return

    def guarded(self, daemon: Daemon, work: Callable[[], object]) -> bool:
        """Have a daemon do something, as its loop does; say whether it came to its end and something came of it."""
        try:
            found = work()
        except Died:
            self._bury(daemon)
        except NotLeading as error:
            self.note(f"{daemon.name}: {error}")
            self._bury(daemon)
        except (GantreeError, OSError) as error:
            self.note(f"{daemon.name}: {type(error).__name__}: {error}")
        else:
            if daemon is not self.current and daemon.controller is not None:
                self._after_a_pause(daemon)
                return False
            return bool(found)
        return False

    def _after_a_pause(self, daemon: Daemon) -> None:
        """A leader that was paused goes on for a while after another has begun."""
        if daemon in self._paused:
            self._paused.remove(daemon)
            controller = daemon.controller
            assert controller is not None
            self.guarded(daemon, controller.reconcile)
            if daemon.controller is not None:
                self.guarded(daemon, controller.step)
        self._bury(daemon)

    def _bury(self, daemon: Daemon) -> None:
        daemon.scrap()
        if daemon in self._paused:
            self._paused.remove(daemon)
        if daemon is self.current:
            self.current = None

    def _scrap_all(self) -> None:
        for daemon in (*self._paused, self.current):
            if daemon is not None:
                daemon.scrap()

    # ----- daemons

    def leader(self) -> Daemon | None:
        """The daemon that leads, if it has recovered."""
        current = self.current
        return current if current is not None and current.controller is not None else None

    def jobs(self) -> list[JobState]:
        """The jobs that the leader knows; none while there is no leader."""
        leader = self.leader()
        if leader is None or leader.controller is None:
            return []
        known = leader.controller.turn_runner.known
        return [] if known is None else list(known.ledger.jobs.values())

    def _bring_up(self) -> None:
        """Start a daemon, on the other machine than the last where there are two."""
        self._starts += 1
        lots = Random(f"{self.seed}/start/{self._starts}")
        name = "ab"[self._starts % 2] if self.is_shared else "a"
        try:
            daemon = Daemon(
                name, self.disk, self.machines[name], self.site, self._epochs, self.policy, self._keep,
                self._snapshot_every, (lambda: self.timeline.now) if self.is_shared else None,
            )  # fmt: skip
        except (GantreeError, OSError) as error:
            self.note(f"{name} cannot open the journal: {error}")
            return
        self.current = daemon
        if self.site.faulty and self._starts > 1 and lots.random() < DIES_IN_A_START:
            how = lots.choice(("kill", "power cut"))
            daemon.points.plan(lots.randint(1, 30), lambda where: self.dies_at(daemon, how, where))
        self.guarded(daemon, lambda: self._begin(daemon))
        if daemon.controller is None and self.current is daemon:
            self._bury(daemon)

    def _begin(self, daemon: Daemon) -> None:
        while not daemon.campaign():
            self.timeline.advance(CAMPAIGN_EVERY_S)
        self.note(f"{daemon.name} leads, epoch {daemon.term.epoch if daemon.term else 0}")
        self._check_record(daemon)
        controller = daemon.begin(self.cluster)
        newest = daemon.journal.last_observed_at()
        if controller.clock() < newest:
            raise Broken(
                f"the clock says {controller.clock()}, and the newest event is of {newest}"
            )

    def _check_record(self, daemon: Daemon) -> None:
        """Whether all is on record that was, and all that was acknowledged."""
        self.audit.compare(daemon.journal)
        lost = set(self.acknowledged) - daemon.journal.seen(self.acknowledged)
        if lost:
            raise Broken(f"acknowledged and lost: {sorted(lost)}")
        self._read_orders(daemon)
        unknown = [order for order in self._orders_unread if order not in self._orders_on_record]
        if unknown:
            raise Broken(f"orders are carried out, and on record nowhere: {unknown}")
        self._orders_unread.clear()
        self._raise_broken()

    def dies_at(self, daemon: Daemon, how: str, where: str) -> None:
        """A daemon dies at a point."""
        self._end(daemon, how, where)
        raise Died

    def die(self, daemon: Daemon, how: str) -> None:
        """A daemon dies between two steps."""
        self._end(daemon, how, "between two steps")
        self._bury(daemon)

    def _end(self, daemon: Daemon, how: str, where: str) -> None:
        self.tally.came(how)
        self.note(f"{daemon.name}: {how} at {where}")
        daemon.attachment.is_dead = True
        if how == "power cut":
            self.disk.after_power_cut()
        elif not self.is_shared:
            self.disk.after_kill()
        if how == "power cut" or not self.is_shared:
            for paused in self._paused:  # a journal that is gone is gone for all
                paused.attachment.is_dead = True

    def stop(self, daemon: Daemon) -> None:
        """Stop a daemon as on a request."""
        self.tally.came("restart")
        daemon.points.clear()
        daemon.stop()
        self._bury(daemon)

    def reboot(self, name: str) -> None:
        """A machine reboots."""
        if any(paused.name == name for paused in self._paused):
            return
        if self.current is not None and self.current.name == name:
            self.die(self.current, "kill")
        self.tally.came("machine rebooted")
        self.machines[name].boot()

    def pause(self, leader: Daemon, lots: Random, where: str) -> None:
        """A leader stands still at a point, for so long that another begins; then it goes on."""
        if leader.attachment.in_transaction or leader is not self.current or self._paused:
            leader.points.plan(1, lambda later: self.pause(leader, lots, later))
            return
        self.tally.came("two leaders")
        self.note(f"{leader.name} is paused at {where}")
        if lots.random() < 0.6:
            leader.clocks.freeze()
        self._paused.append(leader)
        self.current = None
        self._starts += leader.name == "ab"[(self._starts + 1) % 2]  # the other machine
        self.timeline.advance(LEASE_S + 1)
        for _ in range(lots.randint(1, 6)):
            self.pump()
            self.advance(lots.choice((0.5, 5.0, 20.0)))
            self.check()
        self.note(f"{leader.name} goes on")
        leader.clocks.thaw()

    def miss_renewals(self) -> None:
        """The lease of the leader runs out."""
        leader = self.leader()
        if leader is not None:
            self.tally.came("lease expired")
            self.timeline.advance(LEASE_S + 1)

    # ----- what actions do

    def advance(self, by_s: float) -> None:
        """Time passes, in which a leader renews its lease."""
        while by_s > 0:
            piece_s = min(by_s, SLICE_S)
            self.timeline.advance(piece_s)
            by_s -= piece_s
            daemon = self.current
            if self.is_shared and daemon is not None and daemon.term is not None:
                self.guarded(daemon, daemon.renew)

    def submit(self, jobs: Sequence[Job]) -> None:
        """A user submits jobs."""
        leader = self.leader()
        if leader is None or leader.controller is None:
            return
        self.submitted += len(jobs)
        controller = leader.controller
        for job in jobs:
            self.site.spec_of[job.name] = job

        def work() -> None:
            receipt = controller.submit(jobs, None, {})
            for each, job in zip(receipt.jobs, jobs, strict=True):
                self.acknowledged_jobs[each.job] = job
                self.acknowledged.append(f"{each.job}/submitted")
            self.note(f"submitted {', '.join(each.job for each in receipt.jobs)}")

        self.guarded(leader, work)

    def command(self, name: str, *given: object) -> None:
        """A user requests something of a job."""
        leader = self.leader()
        if leader is not None and leader.controller is not None:
            self._command(leader, getattr(leader.controller.jobs, name), name, *given)

    def node_command(self, name: str, *given: object) -> None:
        """An operator requests something of a node."""
        leader = self.leader()
        if leader is not None and leader.controller is not None:
            self._command(leader, getattr(leader.controller.nodes, name), name, *given)

    def _command(
        self, leader: Daemon, ask: Callable[..., object], name: str, *given: object
    ) -> None:
        def work() -> None:
            ask(*given)
            with leader.journal.database.reading() as connection:
                newest = "SELECT id FROM inbox ORDER BY seq DESC LIMIT 1"
                self.acknowledged.append(connection.exec_driver_sql(newest).scalar_one())
            self.note(f"{name} {' '.join(map(str, given))}: {self.acknowledged[-1]}")

        self.guarded(leader, work)

    def emit(self, make: Callable[[str, float], Event]) -> None:
        """A source beside the cluster tells the leader of something."""
        leader = self.leader()
        if leader is not None and leader.controller is not None:
            controller = leader.controller
            controller.inbox.enqueue(make(self._new_id(), controller.clock()))

    def _new_id(self) -> str:
        self._emitted += 1
        return f"life/{self._emitted}"

    def poison(self, make: Callable[[str, float], Event]) -> None:
        """An event on which the core asserts is made durable, between others."""
        leader = self.leader()
        if leader is None or leader.controller is None:
            return
        controller = leader.controller
        event = make(self._new_id(), controller.clock())
        self.poisoned.add(event.id)

        def work() -> None:
            controller.inbox.append([event])
            self.acknowledged.append(event.id)
            self.tally.came("poison")

        self.guarded(leader, work)

    def free_disk(self) -> None:
        """There is room on the disk again."""
        self.disk.is_full = False

    def calm_orders(self) -> None:
        """Orders arrive again."""
        self.site.network.trouble.orders = 0.0

    def calm_events(self) -> None:
        """Events arrive again."""
        self.site.network.trouble.events = 0.0

    def lose_node(self, name: str, how: str) -> None:
        """A node ends."""
        node = self.site.nodes[name]
        if node.is_up and node.is_reachable:
            self.tally.came(how)
            self.note(f"{name} ends")
            self.site.lose_node(name)

    def cut_off(self, name: str) -> None:
        """A node cannot be reached."""
        node = self.site.nodes[name]
        if node.is_up and node.is_reachable:
            self.tally.came("node cut off")
            self.note(f"{name} is cut off")
            self.site.cut_off(name)

    def fail_order(self) -> None:
        """The executor raises on the next order."""
        leader = self.leader()
        if leader is not None and leader.controller is not None:
            port = leader.controller.cluster
            assert isinstance(port, SimulatedPort)
            port.fails_next = True
            self.tally.came("order failed")

    # ----- checks

    def check(self, *, is_thorough: bool = False) -> None:
        """All that must hold between two steps. Raises Broken."""
        leader = self.leader()
        if leader is not None and leader.controller is not None:
            scheduler = leader.controller.turn_runner.known
            if scheduler is not None and not leader.attachment.is_dead:
                self._check_ledger(scheduler.ledger)
                self.guarded(leader, lambda: self._check_journal(leader, is_thorough=is_thorough))
        self._raise_broken()

    def _check_ledger(self, ledger: Ledger) -> None:
        """All invariants, where anything has changed since they were checked."""
        if self._checked != (ledger, ledger.applied):
            check(ledger)
            self._checked = ledger, ledger.applied

    def _check_journal(self, leader: Daemon, *, is_thorough: bool) -> None:
        self.audit.read(leader.journal)
        with leader.journal.database.reading() as connection:
            newest = connection.exec_driver_sql("SELECT max(seq) FROM inbox").scalar_one()
            self.events = int(newest or 0)
        if not is_thorough:
            return
        assert leader.controller is not None
        live, folded = leader.controller.turn_runner.scheduler, leader.folded()
        found = differences(live.ledger, folded.ledger, any_order=True)
        if found:
            raise Broken(f"a fold of the journal differs from the ledger: {'; '.join(found[:5])}")
        if live.standing_orders() != folded.standing_orders():
            raise Broken("a fold of the journal has other standing orders")
        wrong = self.audit.book.compare(leader.journal, live)
        if wrong:
            raise Broken(f"the book is wrong: {'; '.join(wrong[:5])}")

    def _raise_broken(self) -> None:
        broken = self.site.violations + self.audit.broken
        if broken:
            raise Broken("; ".join(broken[:5]))

    def _on_record(self, order: Order) -> bool:
        """Whether a turn has committed an order, the same but for its epoch.

        A late order may arrive while no daemon lives: then the next one to begin must find it on record.
        """
        if order.id in self._orders_on_record:
            return True
        known = (daemon for daemon in (self.current, *self._paused) if daemon is not None)
        living = [daemon for daemon in known if not daemon.attachment.is_dead]
        for daemon in living:
            self._read_orders(daemon)
        if not living:
            self._orders_unread.append(order.id)
        return not living or order.id in self._orders_on_record

    def _read_orders(self, daemon: Daemon) -> None:
        for seq, order in daemon.journal.orders(self._orders_read):
            self._orders_read = seq
            self._orders_on_record[order.id] = order
