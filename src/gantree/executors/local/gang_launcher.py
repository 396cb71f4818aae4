"""Starts the members of a gang: writes the order and the launch records into the run directory, then spawns shims."""

import os
import signal
from collections.abc import Callable, Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gantree.executors.local.checking.plan import CheckLauncher, PriceCheck, no_prices
from gantree.executors.local.gang import Gang
from gantree.executors.local.launch.environment import inherited
from gantree.executors.local.launch.launch_record import launch_record
from gantree.executors.local.launch.lent_package import lent_package
from gantree.executors.local.launch.master_port import free_port
from gantree.executors.local.launch.rank_map import rank_map
from gantree.executors.local.launch.service_ports import endpoints_for, port_variables
from gantree.executors.local.launch.visible_gpus import GpuIds, MigIds, missing_partition
from gantree.executors.local.partitions.created_instances import NodePart
from gantree.executors.local.partitions.worker import GpuPreparation, PreparationFailed
from gantree.executors.local.recording.recorder import Recorder, rank_map_in
from gantree.executors.local.run_directory import order_to_json, previous_world_size, write_plain
from gantree.executors.local.run_limits import DEFAULT_LIMITS, RunLimits
from gantree.executors.local.sharing.shared_gpus import SharedGpu
from gantree.executors.local.shim.lease import FILE as LEASE_FILE
from gantree.executors.local.unix_users import RunAs, UnixUser
from gantree.model.cluster import Cluster
from gantree.model.errors import BadInput
from gantree.model.orders import StartGang
from gantree.model.placements import MigPart


class GangLauncher:
    """Starts gangs, each once. run_as gives the Unix user of a job's user; None: all run as the daemon's user.

    epoch gives the epoch of the leader whose orders are carried out now. open_files is the soft limit of the jobs.
    held_by_others: MIG instances of all gangs but one that are not over. price_check prices what checks measure.
    """

    def __init__(
        self,
        site: Cluster,
        state_dir: Path,
        recorder: Recorder,
        gpu_ids: GpuIds,
        mig_ids: MigIds,
        failure_grace_s: float,
        run_as: RunAs | None,
        epoch: Callable[[], int],
        preparation: GpuPreparation,
        held_by_others: Callable[[Gang], Collection[NodePart]],
        limits: RunLimits = DEFAULT_LIMITS,
        open_files: int | None = None,
        price_check: PriceCheck = no_prices,
    ) -> None:
        self._site, self._state_dir, self._recorder = site, state_dir, recorder
        self._limits = limits
        self._node_of_name = {node.name: node for node in site.nodes}
        self._gpu_ids, self._mig_ids = gpu_ids, mig_ids
        self._failure_grace_s, self._run_as, self._epoch = failure_grace_s, run_as, epoch
        self._open_files = open_files
        self._preparation, self._held_by_others = preparation, held_by_others
        self._checks = CheckLauncher(site, gpu_ids, price_check)

    def start(self, gang: Gang, order: StartGang, taken_ports: Collection[int]) -> None:
        """Start a gang, unless it exists. What goes wrong fails the gang. Raises OSError if that cannot be written."""
        if gang.exists:
            return
        try:
            obstacle = self._obstacle(order)
            if obstacle is not None:
                gang.fail(obstacle)
                return
            mig_ids = cache(self._mig_ids)
            permanent = self._missing(order, mig_ids)
            if permanent is not None:
                gang.fail(permanent, final=True)
                return
            port = free_port(order.job, order.attempt, taken_ports)
            endpoints = endpoints_for(order, self._node_of_name, {*taken_ports, port}, gang.run)
            gang.begin(order, port, order_to_json(order), self._user(order), endpoints)
            self._prepare(gang, order, mig_ids)
        except OSError as error:
            gang.fail(f"the gang could not be started: {error}")

    def resume(self, gang: Gang, order: StartGang) -> None:
        """Start the members that have no shim yet, after a restart of the daemon."""
        if all(member.began for member in gang.members):
            self._recorder.begin(gang.run, order, rank_map_in(gang.run))
            return
        mig_ids = cache(self._mig_ids)
        try:
            permanent = self._missing(order, mig_ids)
            if permanent is not None:
                gang.fail(permanent, final=True, gpus_unchanged=True)
            else:
                self._prepare(gang, order, mig_ids)
        except (OSError, KeyError) as error:
            gang.fail(f"the gang could not be started: {error}")

    def start_replacements(self, gang: Gang) -> None:
        """Start members that were replaced and of which nothing is left. What goes wrong fails the gang."""
        order = gang.order
        assert order is not None, "a gang without an order has no members"
        try:
            if self._preparation.concerns(order):
                gang.fail("a member holds a part of a GPU, so all of its gang must start again")
            elif (obstacle := self._obstacle(order)) is not None:
                gang.fail(obstacle)
            else:
                self._start_members(gang, self._mig_ids)
        except (OSError, KeyError) as error:
            gang.fail(f"a member could not be replaced: {error}")

    def poll(self) -> None:
        """Launch the gangs whose GPUs are prepared by now. What went wrong fails the gang. Raises OSError."""
        for gang, prepared in self._preparation.finished():
            if not gang.may_go_on:
                continue
            if isinstance(prepared, PreparationFailed):
                gang.fail(prepared.reason, final=prepared.is_final, gpus_unchanged=True)
                continue
            try:
                self._launch(gang, _with(self._mig_ids, prepared))
            except (OSError, KeyError) as error:
                gang.fail(f"the gang could not be started: {error}")

    def tidy(self, held: Collection[NodePart], shared: Collection[SharedGpu]) -> None:
        """After a restart, bring MIG instances and what lets GPUs be shared up to date, before any gang is resumed."""
        self._preparation.tidy(held, shared)

    def end_sharing(self, ended: StartGang, shared: Collection[SharedGpu]) -> None:
        """Once a gang is over, end what lets GPUs be shared that no other gang shares."""
        self._preparation.end_sharing(ended, shared)

    def close(self) -> None:
        """Let the preparation of GPUs come to an end; their gangs are resumed by the next daemon."""
        self._preparation.close()

    def _prepare(self, gang: Gang, order: StartGang, mig_ids: MigIds) -> None:
        """Launch the gang, at once or when its GPUs are prepared."""
        if self._preparation.concerns(order):
            self._preparation.begin(gang, order, self._held_by_others(gang), self._user(order))
        else:
            self._launch(gang, mig_ids)

    def _missing(self, order: StartGang, mig_ids: MigIds) -> str | None:
        """Why an order would fail however often it is tried."""
        no_user = self._missing_user(order)
        return no_user or missing_partition(order, mig_ids, self._preparation.may_change)

    def _obstacle(self, order: StartGang) -> str | None:
        """Why an order cannot be started on this site."""
        for member in order.members:
            if member.node not in self._node_of_name:
                return f"the cluster has no node {member.node!r}"
            if not member.run:
                return f"role {member.role!r} has no command to run"
        name = order.checkpoint_signal
        if name is not None and name not in signal.Signals.__members__:
            return f"this machine has no signal {name!r}"
        return None

    def _user(self, order: StartGang) -> UnixUser | None:
        """The user that its processes run as; None: the daemon's. Raises BadInput if there is no such user."""
        return None if self._run_as is None else self._run_as(order.user)

    def _missing_user(self, order: StartGang) -> str | None:
        """Why there is no user that its processes may run as."""
        try:
            self._user(order)
        except BadInput as error:
            return str(error)
        return None

    def _launch(self, gang: Gang, mig_ids: MigIds) -> None:
        """Start the shim of every member that has none, and record what runs. Its MIG instances must exist."""
        map_of_ranks = self._start_members(gang, mig_ids)
        assert gang.order is not None
        self._recorder.begin(gang.run, gang.order, map_of_ranks)

    def _start_members(self, gang: Gang, mig_ids: MigIds) -> dict[str, Any]:
        """Start the shim of every member that has none and may start; return where each rank is. Raises OSError."""
        order, port = gang.order, gang.master_port
        assert order is not None and port is not None
        base, taken_ports = inherited(os.environ), set(gang.ports)
        map_of_ranks = rank_map(order, self._site, self._node_of_name)
        unix = self._user(order)
        write_plain(gang.run.ranks, map_of_ranks)
        if unix is not None:
            os.chown(gang.run.ranks, 0, unix.gid)
            gang.run.ranks.chmod(0o640)
        before, lent = previous_world_size(gang.run), lent_package(self._state_dir)
        log_limits = self._limits.of_logs(self._state_dir)
        for member in gang.startable:
            member.folder.mkdir(mode=0o700, exist_ok=True)
            record = launch_record(
                order, member.launch, self._node_of_name, gang.run, port, base,
                self._gpu_ids, self._failure_grace_s, mig_ids, before, unix, lent, log_limits,
                self._open_files, self._preparation.mps_variables(member.launch, unix),
                member.life, port_variables(order, gang.endpoints, member.launch.node_rank),
            )  # fmt: skip
            if order.leased:
                record["lease"] = str(self._state_dir / LEASE_FILE)
            if not member.life:  # a check before the start is made by all members together
                check = self._checks.record(gang.run, order, member.launch, base, taken_ports)
                record |= {"check": check}
            member.start(record, self._state_dir, self._epoch())
        return map_of_ranks


def _with(mig_ids: MigIds, prepared: Mapping[NodePart, str]) -> MigIds:
    """UUIDs of instances, of which these are known."""

    def ids(node: str) -> Mapping[MigPart, str]:
        known = {part: uuid for (where, part), uuid in prepared.items() if where == node}
        return known or mig_ids(node)

    return ids
