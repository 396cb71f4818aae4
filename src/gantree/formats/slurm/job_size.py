"""The size of the job that a header requests: members, processes, and resources of each member.

Slurm counts tasks, and puts them on nodes. Where nodes (or tasks of a node) are named a member is a node; where only
tasks are, a member is a task, and several may come to one node.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gantree.formats.slurm import values
from gantree.formats.slurm.header import Option
from gantree.model.errors import Problem


@dataclass(frozen=True, slots=True)
class Sizes:
    """Members of a gang, processes of each, and what each has. None: not said.

    named_nodes: members are nodes, each its own. gpu_type is the option that named a type, and the type.
    """

    members: int
    processes: int
    named_nodes: bool
    nodes_at_most: int | None
    gpus: int | None
    gpu_type: tuple[Option, str] | None
    cpus: int | None
    memory_GiB: float | None


def sizes_of(read: Any, options: Mapping[str, Option], problems: list[Problem]) -> Sizes:
    """Read the sizes. read gives an option's value by a parser, None where there is none; problems go to the list."""
    reading = _Reading(read, options, problems)
    members, processes, named_nodes = reading.layout()
    gpus, gpu_type = reading.gpus(members, processes, named_nodes)
    nodes = read("nodes", values.node_range)
    return Sizes(
        members=members,
        processes=processes,
        named_nodes=named_nodes,
        nodes_at_most=nodes[1] if nodes and nodes[1] > nodes[0] else None,
        gpus=gpus,
        gpu_type=gpu_type,
        cpus=reading.cpus(processes, gpus),
        memory_GiB=reading.memory(processes, gpus, members, named_nodes),
    )


class _Reading:
    def __init__(self, read: Any, options: Mapping[str, Option], problems: list[Problem]) -> None:
        self._read = read
        self._options = options
        self._problems = problems

    def layout(self) -> tuple[int, int, bool]:
        """Members, processes of each, and whether members are nodes."""
        members = self._read("members", values.count)
        processes = self._read("processes", values.count)
        if members is not None or processes is not None:
            return members or 1, processes or 1, False
        nodes = self._read("nodes", values.node_range)
        tasks = self._read("ntasks", values.count)
        per_node = self._read("ntasks-per-node", values.count)
        if nodes is None and per_node is None:
            return tasks or 1, 1, False
        if nodes is None:
            total = tasks or per_node
            return self._divided("ntasks", total, per_node, "--ntasks-per-node"), per_node, True
        if tasks is None:
            return nodes[0], per_node or 1, True
        if per_node is not None and per_node * nodes[0] != tasks:
            allowed = f"nodes x ntasks-per-node, which is {per_node * nodes[0]}"
            self._problem("ntasks", f"`{tasks}`", allowed)
        return nodes[0], self._divided("ntasks", tasks, nodes[0], "--nodes"), True

    def gpus(
        self, members: int, processes: int, named_nodes: bool
    ) -> tuple[int | None, tuple[Option, str] | None]:
        """GPUs of a member, and the type. Several ways to say it must come to the same."""
        gpus_by_option: dict[str, int] = {}
        types: list[tuple[Option, str]] = []
        for name, parse in (
            ("gpus-per-node", values.gpus),
            ("gres", values.gres),
            ("gpus-per-task", values.gpus),
            ("gpus", values.gpus),
        ):
            requested = self._read(name, parse)
            if requested is None:
                continue
            types += [(self._options[name], requested.type)] if requested.type else []
            gpus_by_option[name] = self._of_member(
                name, requested.count, members, processes, named_nodes
            )
        if len(set(gpus_by_option.values())) > 1:
            first, *others = gpus_by_option
            allowed = f"the number of --{first}, which is {gpus_by_option[first]} per member"
            self._problem(others[-1], f"{gpus_by_option[others[-1]]} of each", allowed)
        return next(iter(gpus_by_option.values()), None), types[-1] if types else None

    def _of_member(
        self, name: str, count: int, members: int, processes: int, named_nodes: bool
    ) -> int:
        if name == "gpus":
            return self._divided(name, count, members, "members") if count else 0
        if name == "gpus-per-task":
            return count * processes
        if not named_nodes and members > 1 and "members" not in self._options:
            self._problem(name, "GPUs of a node", "--nodes as well, or --gpus-per-task")
        return count

    def cpus(self, processes: int, gpus: int | None) -> int | None:
        """Cores of a member."""
        of_task = self._read("cpus-per-task", values.count)
        of_gpu = self._read("cpus-per-gpu", values.count)
        if of_task is not None and of_gpu is not None:
            self._problem("cpus-per-gpu", "it together with --cpus-per-task", "one of them")
        if of_task is not None:
            return int(of_task * processes)
        return None if of_gpu is None else int(of_gpu * (gpus or 0))

    def memory(
        self, processes: int, gpus: int | None, members: int, named_nodes: bool
    ) -> float | None:
        """Memory of a member in GiB."""
        names = [name for name in ("mem", "mem-per-cpu", "mem-per-gpu") if name in self._options]
        for name in names[1:]:
            self._problem(name, f"it together with --{names[0]}", "one of them")
        if not names:
            return None
        amount = self._read(names[0], values.gib)
        if amount is None:
            return None
        if names[0] == "mem":
            if not named_nodes and members > 1 and "members" not in self._options:
                self._problem("mem", "memory of a node", "--nodes as well, or --mem-per-cpu")
            return float(amount)
        cpus = self.cpus(processes, gpus) or processes
        return float(amount * (cpus if names[0] == "mem-per-cpu" else (gpus or 0)))

    def _divided(self, name: str, count: int, by: int, what: str) -> int:
        if count % by:
            self._problem(name, f"`{count}`", f"a multiple of {what}, which is {by}")
        return max(1, count // by)

    def _problem(self, name: str, found: str, allowed: str) -> None:
        option = self._options.get(name) or next(iter(self._options.values()))
        self._problems.append(option.problem(found, allowed))
