"""Small clusters and jobs for tests, in one line each."""

from gantree.model.cluster import Cluster, Link, Machine, Nic, Node
from gantree.model.jobs import Checkpoint, Job, Restarts, Role, Shape, Slices, TopologySpec


def machine(gpus: int = 8, nics: int = 0, name: str = "m", cpus: float | None = None) -> Machine:
    """A machine whose GPUs are all linked alike, with its NICs spread evenly over two sockets."""
    links = tuple(tuple("X" if a == b else "NV18" for b in range(gpus)) for a in range(gpus))
    per_nic = max(1, gpus // nics) if nics else 0
    cards = tuple(
        Nic(f"mlx5_{n}", tuple(range(n * per_nic, min(gpus, (n + 1) * per_nic))), n)
        for n in range(nics)
    )
    numa = tuple(0 if gpu < (gpus + 1) // 2 else 1 for gpu in range(gpus))
    return Machine(name, gpus, "H100-80GB", links, numa, cards, cpus)


def cluster(
    spines: int = 1, leaves: int = 2, nodes: int = 2, gpus: int = 8, nics: int = 0
) -> Cluster:
    """A tree spine > leaf > node: `leaves` per spine, `nodes` per leaf; nodes are n0, n1, ... in tree order."""
    model = machine(gpus, nics)
    places = [
        (f"s{spine}", f"l{spine * leaves + leaf}")
        for spine in range(spines)
        for leaf in range(leaves)
        for _ in range(nodes)
    ]
    return Cluster(
        name="test",
        tiers=("spine", "leaf", "node"),
        machines={model.name: model},
        nodes=tuple(Node(f"n{i}", model.name, at) for i, at in enumerate(places)),
        links={"spine": Link(25, 12), "leaf": Link(50, 6)},
    )


def job(
    name: str,
    members: int = 1,
    gpus: int = 1,
    *,
    priority: str | int = "batch",
    required: str | None = None,
    preferred: str | None = None,
    slices: tuple[int, str] | None = None,
    processes: int = 1,
    checkpoint: Checkpoint | None = None,
    restarts: int = 0,
    backoff_s: float = 5.0,
    time_limit_s: float | None = None,
    after: tuple[str, ...] = (),
) -> Job:
    """A job of one role."""
    cut = () if slices is None else (Slices(*slices),)
    return Job(
        name=name,
        roles=(Role("worker", members, Shape(gpus=gpus), processes, run=("true",)),),
        priority=priority,
        topology=TopologySpec(required, preferred, cut),
        checkpoint=checkpoint,
        restarts=Restarts(restarts, backoff_s),
        time_limit_s=time_limit_s,
        after=after,
    )
