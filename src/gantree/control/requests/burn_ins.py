"""Burn-ins that operators request: cordoned nodes check their own GPUs and links before they return."""

from collections.abc import Callable, Sequence

from gantree.control.requests.node_commands import node_problem
from gantree.control.requests.submission_checks import check_queue
from gantree.core.ledger.ledger import Ledger
from gantree.core.lifecycle.burn_ins import burn_in_place
from gantree.model.cluster import ANY_MARKET, MARKET_LABEL
from gantree.model.errors import BadInput, Conflict, NotFound, Unsupported
from gantree.model.jobs import Check, Job, Restarts, Role, Shape
from gantree.model.node_rules import NAME_KEY, NODES_LABEL, TOLERATES_LABEL

NAME = "burn-in"
SHORTEST_S, LONGEST_S = 10.0, 86_400.0
SOAK_SHARE, COLLECTIVES_S = 0.6, 40.0
"""Of the duration, so long GPUs compute and copy; but so many seconds are left for the start and for collectives."""


class BurnIns:
    """Takes in burn-ins. take makes a job of this kind durable and gives its id; checks_links as of `ClusterPort`."""

    def __init__(
        self, ledger: Callable[[], Ledger], take: Callable[[Job], str], *, checks_links: bool
    ) -> None:
        self._ledger, self._take, self._checks_links = ledger, take, checks_links

    def request(self, nodes: Sequence[str], duration_s: float, queue: str, user: str = "") -> str:
        """Begin the burn-in of nodes that are cordoned and empty, and return the id of its job.

        Raises NotFound for unknown nodes, Conflict where one is in use, BadInput for what cannot be, Unsupported where
        the executor carries out no checks.
        """
        if not self._checks_links:
            raise Unsupported(
                "burn-in: this executor does not check links; on Kubernetes a GangJob with check.soakSeconds does"
            )
        if not SHORTEST_S <= duration_s <= LONGEST_S:
            raise BadInput(f"duration: found {duration_s:g} s; allowed: from 10 s to a day")
        ledger = self._ledger()
        for node in nodes:
            if problem := node_problem(ledger, node):
                raise NotFound(problem)
        spec = burn_in_of(ledger, tuple(dict.fromkeys(nodes)), duration_s, queue, user)
        check_queue(spec, ledger.accounts.tree)
        place = burn_in_place(ledger, spec)
        if isinstance(place, str):
            raise Conflict(place)
        return self._take(spec)


def burn_in_of(
    ledger: Ledger, nodes: tuple[str, ...], duration_s: float, queue: str, user: str
) -> Job:
    """The job: one member with all GPUs and CPUs of each node, whose check is all that it does."""
    fabric = ledger.rooms().fabric
    roles = []
    for number, node in enumerate(nodes):
        machine = fabric.machine_of_node(fabric.index_of_node[node])
        labels = (
            (NODES_LABEL, f"{NAME_KEY} in ({node})"),
            (TOLERATES_LABEL, "*"),
            (MARKET_LABEL, ANY_MARKET),
        )
        shape = Shape(gpus=machine.gpus, cpus=machine.cpus or 0.0, labels=labels)
        roles.append(Role(f"node-{number}", 1, shape, run=("true",)))
    soak_s = max(1.0, min(SOAK_SHARE * duration_s, duration_s - COLLECTIVES_S))
    return Job(
        NAME,
        tuple(roles),
        queue=queue,
        priority=0,
        user=user,
        preemptible=False,
        restarts=Restarts(limit=0),
        check=Check(duration_s, required=True, soak_s=soak_s),
        on_cordoned=nodes,
    )
