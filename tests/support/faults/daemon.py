"""One process of the control plane: the production controller on a journal of the simulated disk.

The journal is that of one process (`SqliteJournal`), or one that two daemons share: the same tables and statements with
leases on, whose clock is the database's. That one stands for PostgreSQL, of which a life has no server.
"""

import sqlite3
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import Double, literal_column

from gantree.control.clock import SteadyClock
from gantree.control.engine.controller import Controller
from gantree.control.engine.leadership import MARGIN, Term
from gantree.control.engine.retention import RetentionLimits
from gantree.control.ports import Clock, Emit
from gantree.core.scheduler import Scheduler
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sqlite import FILE, SqliteJournal, connect, database_at
from gantree.model.cluster import Cluster
from gantree.model.errors import GantreeError, NotLeading
from gantree.policy.rules import Policy
from support.faults.clocks import MachineClocks
from support.faults.cluster import SimulatedCluster
from support.faults.disk import Disk
from support.faults.points import Points
from support.faults.port import SimulatedPort

LEASE_S = 30.0
"""Long enough that a life need not renew it every second."""
DATABASE_NOW: Any = literal_column("database_now()", Double)


class SharedJournal(SqlJournal):
    """A journal that several daemons have open, with leases."""

    def __init__(
        self,
        place: Path,
        kind: type[sqlite3.Connection],
        check: Callable[[], None],
        database_now: Callable[[], float],
    ) -> None:
        SqliteJournal(place).close()  # makes the tables

        def opened() -> sqlite3.Connection:
            connection = connect(place / FILE, kind)
            connection.create_function("database_now", 0, database_now)
            return connection

        database = database_at(place / FILE, opened)
        super().__init__(replace(database, owned=False, now=DATABASE_NOW), check)


class AtOnce(Executor):
    """An executor that has done what it is given before it returns, so that lives do not depend on threads."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Do it."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Daemon:
    """A process on a machine. `controller` is there once it leads and has recovered."""

    def __init__(
        self,
        name: str,
        disk: Disk,
        clocks: MachineClocks,
        site: SimulatedCluster,
        epochs: Path,
        policy: Policy,
        keep: RetentionLimits,
        snapshot_every: int,
        database_now: Callable[[], float] | None,
    ) -> None:
        """database_now is the clock of a database that is shared; None: the journal is of this process alone."""
        self.name, self.clocks = name, clocks
        self.points = Points()
        self._disk, self._site, self._epochs = disk, site, epochs
        self._policy, self._keep, self._snapshot_every = policy, keep, snapshot_every
        kind = disk.attached(self.points)
        self.attachment: Any = kind.process  # type: ignore[attr-defined]  # as `attached` makes it
        self._shared = database_now is not None
        self.term: Term | None = None
        self.renewed_at = 0.0
        self.journal: SqlJournal = (
            SqliteJournal(disk.place, kind)
            if database_now is None
            else SharedJournal(disk.place, kind, self._check, database_now)
        )
        self.controller: Controller | None = None

    def _check(self) -> None:
        if self.term is not None:
            self.term.check()

    @property
    def leads(self) -> bool:
        """Whether it may act for the leader."""
        return self.term is not None and self.term.is_on

    def campaign(self) -> bool:
        """Try to lead; say whether it does."""
        sent_s = self.clocks.since_boot()
        epoch = self.journal.lead(self.name, LEASE_S)
        if epoch is None:
            return False
        lease_s = LEASE_S * (1 - MARGIN) if self._shared else float("inf")
        self.term = Term(epoch, sent_s + lease_s, self.clocks.since_boot)
        return True

    def renew(self) -> bool:
        """Renew the lease, as the keeper of a lease does; say whether it was."""
        assert self.term is not None
        sent_s = self.clocks.since_boot()
        if not self.journal.renew(self.term.epoch, LEASE_S):
            self.term.end()
            return False
        self.term.extend(sent_s + LEASE_S * (1 - MARGIN))
        return True

    def begin(self, cluster: Cluster) -> Controller:
        """Build the controller and recover. Raises what they raise."""
        assert self.term is not None
        controller = Controller(
            self.journal,
            self._policy,
            self._port,
            site=cluster,
            make_clock=lambda newest: SteadyClock(newest, self.clocks.wall, self.clocks.since_boot),
            epoch=self.term.epoch,
            keep=self._keep,
        )
        snapshots = (
            controller._snapshots
        )  # no setting of the daemon: lives are too short for 25,000 facts
        snapshots._every_facts, snapshots._writer = self._snapshot_every, AtOnce()  # type: ignore[assignment]  # same use
        controller.recover()
        self.controller = controller
        return controller

    def _port(self, cluster: Cluster, emit: Emit, clock: Clock) -> SimulatedPort:
        return SimulatedPort(
            cluster,
            emit,
            clock,
            site=self._site,
            epochs=self._epochs,
            leads=lambda: self.leads,
            points=self.points,
        )

    def folded(self) -> Scheduler:
        """What a start would make of the journal as it is now."""
        from gantree.control.snapshots import Snapshots

        assert self.controller is not None and self.term is not None
        return Snapshots(self.journal, self.term.epoch).fold(self.controller.policy)

    def stop(self) -> None:
        """Stop as on a request: what is worth keeping is kept."""
        try:
            if self.controller is not None:
                self.controller.close()
            if self.term is not None and self._shared:
                self.journal.resign(self.term.epoch)
        except (GantreeError, NotLeading, OSError):
            pass  # it stops all the same
        finally:
            self.scrap()

    def scrap(self) -> None:
        """Drop everything that the process had open: from now on it is dead."""
        self.attachment.is_dead = True
        self.points.clear()
        self.controller = None
        if self.term is not None:
            self.term.end()
        self.journal.close()
