"""Small sites with tori, jobs on boxes, and flat tori drawn as text, for tests."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from gantree.model.cluster import Cluster, Machine, Node, Torus
from gantree.model.jobs import Job, Role, Shape, TopologySpec
from gantree.model.placements import MemberPlacement
from gantree.model.verdicts import Patch
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.catalog import machine
from gantree.topology.occupancy.occupancy import Occupancy

Sides = tuple[int, ...]


def site_of(*tori: Torus, model: Machine | None = None) -> Fabric:
    """Tori, each a pod of its own; nodes hold what their place on the grid does, unless told."""
    model = model or Machine("m", prod(tori[0].host), "X")
    nodes = tuple(Node(name, model.name, (torus.name,)) for torus in tori for name in torus.nodes)
    return Fabric.build(Cluster("c", ("pod", "node"), {model.name: model}, nodes, tori=tori))


def torus(
    name: str, dims: Sides, host: Sides = (), wrap: Sequence[bool] = (), cube: Sides = ()
) -> Torus:
    """A torus whose nodes are its name and a number; hosts of one GPU and closed axes unless told."""
    host = host or (1,) * len(dims)
    nodes = tuple(f"{name}{at}" for at in range(prod(dims) // prod(host)))
    return Torus(name, dims, host, nodes, tuple(wrap) or (True,) * len(dims), (), cube)


def job_on_box(
    box: Sides | None, members: int, gpus: int = 1, name: str = "g", **shape: object
) -> Job:
    """A job of one role that asks for a box; further words are fields of its shape."""
    asked = replace(Shape(gpus=gpus), **shape)  # type: ignore[arg-type]  # fields by name
    return Job(name, (Role("worker", members, asked),), topology=TopologySpec(box=box))


def drawn_torus(picture: str, wrap: Sequence[bool] = ()) -> Occupancy:
    """A flat torus as rows of letters: a dot is a free node of one GPU, "!" one that may not be used."""
    rows = picture.split()
    made = torus("t", (len(rows), len(rows[0])), wrap=wrap)
    occupancy = Occupancy(site_of(made))
    for letter, name in zip("".join(rows), made.nodes, strict=True):
        if letter == "!":
            occupancy.mark(name, False)
        elif letter != ".":
            rank = len(occupancy.owners.get(letter, ()))
            occupancy.take(letter, [MemberPlacement("worker", rank, name, (0,))])
    return occupancy


def pods(model: str, dims: Sides, host: Sides, count: int, cube: Sides = ()) -> Fabric:
    """Like tori of a machine of the catalogue: pod0-, pod1-, ...; nodes are pod0-0, pod0-1, ..."""
    tori = (torus(f"pod{at}-", dims, host, cube=cube) for at in range(count))
    return site_of(*tori, model=machine(model))


def patched(asked: Job, patch: Patch) -> Job:
    """A job with the box and the number of members that a refusal offers."""
    for key, value in patch:
        if key == "topology.box":
            asked = replace(asked, topology=replace(asked.topology, box=value))  # type: ignore[arg-type]  # Patch values are wide
        else:
            assert key == "members" and isinstance(value, int)
            asked = replace(asked, roles=(replace(asked.roles[0], members=value),))
    return asked
