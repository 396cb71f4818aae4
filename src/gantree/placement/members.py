"""From counts per node to members: ranks, GPUs and NICs.

Members are numbered per role in topology order, so consecutive ranks are neighbours and slices are aligned. On a
node the gang's GPUs are chosen first as one best set, then each member's as the best part of what is left of it;
NICs are the nearest that are still free.
"""

from gantree.model.jobs import Job
from gantree.model.placements import MemberPlacement, Placement
from gantree.placement.devices import choose_nics
from gantree.placement.exact import inside_node
from gantree.placement.problem import Counts, Problem, Spread
from gantree.topology.cost import predict


def placement_of(problem: Problem, spread: Spread, job: Job | None = None) -> Placement:
    """The placement that a spread stands for; roles in the job's order, members by rank.

    Where the job is given and tells its traffic, the price of its step is predicted too.
    """
    of_role: list[list[MemberPlacement]] = [[] for _ in problem.members]
    for node, counts in spread:
        _fill_node(problem, node, counts, of_role)
    members = tuple(member for role in of_role for member in role)
    fabric = problem.fabric
    domain = fabric.domain(*fabric.narrowest_domain(node for node, _ in spread))
    return Placement(members, domain, predict(fabric, members, job))


def _fill_node(
    problem: Problem, node: int, counts: Counts, of_role: list[list[MemberPlacement]]
) -> None:
    """Append the members on one node to those of their roles."""
    fabric, occupancy = problem.fabric, problem.occupancy
    gpus_of_role = inside_node(problem, node, counts)
    assert gpus_of_role is not None, f"{counts} do not fit inside {fabric.nodes[node].name}"
    free_nics = occupancy.free_nics_of_index(node) if _asks_nics(problem) else ()
    for role, members, gpus_of_member in zip(
        problem.wish.roles, of_role, gpus_of_role, strict=True
    ):
        for gpus in gpus_of_member:
            nics: tuple[str, ...] = ()
            machine = fabric.machine_of_node(node)
            if role.shape.nics and machine.nics_counted:
                nics = choose_nics(machine, gpus, free_nics, role.shape.nics)
                free_nics = tuple(nic for nic in free_nics if nic not in nics)
            members.append(
                MemberPlacement(
                    role=role.name,
                    rank=len(members),
                    node=fabric.nodes[node].name,
                    gpus=gpus,
                    nics=nics,
                    cpus=role.shape.cpus,
                    memory_GiB=role.shape.memory_GiB,
                )
            )


def _asks_nics(problem: Problem) -> bool:
    return any(role.shape.nics for role in problem.wish.roles)
