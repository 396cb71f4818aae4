"""What the programs of a check are told, and how shims start them."""

import json
import sys
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from gantree.executors.check_plan import cpu_ranks_of, domains_of
from gantree.executors.local.launch.environment import check_environment
from gantree.executors.local.launch.master_port import free_port
from gantree.executors.local.launch.visible_gpus import GpuIds
from gantree.executors.local.run_directory import RunDirectory, write_first
from gantree.executors.local.shim.shim import read_json
from gantree.model.cluster import Cluster
from gantree.model.orders import MemberLaunch, StartGang

PROGRAM = "gantree.telemetry.checking.member"
PriceCheck = Callable[[StartGang], Mapping[str, Any]]
"""Priced bus bandwidths of an order's place, as `gantree.telemetry.checking.spec` reads them; {} for none."""


def no_prices(order: StartGang) -> Mapping[str, Any]:
    """Nothing is known: members are compared with each other."""
    return {}


class CheckLauncher:
    """Makes the launch records of checks. gpu_ids are as in `launch_record`."""

    def __init__(self, site: Cluster, gpu_ids: GpuIds, price: PriceCheck) -> None:
        self._tiers = site.tiers
        self._node_of_name = {node.name: node for node in site.nodes}
        self._gpu_ids, self._price = gpu_ids, price

    def record(
        self,
        run: RunDirectory,
        order: StartGang,
        member: MemberLaunch,
        base: Mapping[str, str],
        taken_ports: Collection[int],
    ) -> dict[str, Any] | None:
        """What a shim is told of the check of its member; None for a job without one. Raises OSError.

        A gang of one process has no links, and no check but a burn-in.
        """
        if order.check is None or self._has_no_link(order):
            return None
        plan = self._plan(run, order, taken_ports)
        path = run.check / f"spec-{member.node_rank}.json"
        path.write_text(json.dumps({**plan, "index": member.node_rank}), encoding="utf-8")
        launch = self._node_of_name[member.node].launch
        return {
            "rank": member.rank_of_process[0],
            "log": str(run.log(member.rank_of_process[0])),
            "report": str(run.check / "report.json"),
            "env": {},
            "instead": {
                "argv": [*launch, sys.executable, "-m", PROGRAM, str(path)],
                "env": with_absolute_path(
                    check_environment(order, member, run, base, self._gpu_ids)
                ),
                "workdir": str(run.check),
                "as": None,
            },
        }

    def _plan(
        self, run: RunDirectory, order: StartGang, taken_ports: Collection[int]
    ) -> dict[str, Any]:
        """The same for all members, also for those that another daemon starts."""
        path = run.check / "plan.json"
        known = read_json(str(path))
        if known is None:
            run.check.mkdir(mode=0o700, exist_ok=True)
            write_first(path, self._made(run, order, taken_ports))
            known = read_json(str(path))
        plan: dict[str, Any] = known
        return plan

    def _made(
        self, run: RunDirectory, order: StartGang, taken_ports: Collection[int]
    ) -> dict[str, Any]:
        assert order.check is not None, "a job with a check"
        members = sorted(order.members, key=lambda each: each.node_rank)
        cuda = all(self._has_real_gpus(member) for member in members)
        nodes = [self._node_of_name[member.node] for member in members]
        return {
            "made_at": time.time(),
            "seconds": order.check.collective_s,
            "required": order.check.required,
            "may_replace": order.check_replaces,
            "members": [
                self._member(member, cpu_ranks_of(order.check), cuda=cuda) for member in members
            ],
            "address": nodes[0].address,
            "port": free_port(f"{order.job}/check", order.attempt, taken_ports),
            "folder": str(run.check),
            "cuda": cuda,
            "on_loopback": all(node.address.startswith("127.") for node in nodes),
            "expected": dict(self._price(order)) if cuda else {},
            "soak_s": order.check.soak_s,
        }

    def _has_no_link(self, order: StartGang) -> bool:
        only, *others = order.members
        is_one_process = len(only.gpus) <= 1 or not self._has_real_gpus(only)
        return not others and is_one_process and order.check is not None and not order.check.soak_s

    def _has_real_gpus(self, member: MemberLaunch) -> bool:
        """Whether its GPUs are known by UUID: those of virtual nodes are not."""
        return bool(member.gpus) and self._gpu_ids(member.node, member.gpus).startswith("GPU-")

    def _member(self, member: MemberLaunch, cpu_ranks: int, *, cuda: bool) -> dict[str, Any]:
        return {
            "node": member.node,
            "gpus": list(member.gpus) if cuda else [],
            "nics": list(member.nics),
            "domains": domains_of(self._tiers, self._node_of_name[member.node]),
            "processes": len(member.gpus) if cuda else cpu_ranks,
        }


def with_absolute_path(env: Mapping[str, str]) -> Mapping[str, str]:
    """Variables with the daemon's own PYTHONPATH, which holds for its working directory."""
    if not env.get("PYTHONPATH"):
        return env
    folders = [str(Path(folder).absolute()) for folder in env["PYTHONPATH"].split(":") if folder]
    return {**env, "PYTHONPATH": ":".join(folders)}
