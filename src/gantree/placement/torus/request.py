"""The torus slice that a job requests, and how the members of its gang are laid out in a box of a shape.

A gang on a torus has one role. Where a node holds several GPUs of the grid, the box is the gang: as many GPUs as its
members have, each member on one host. Where a node is one point of the grid, whatever it holds, the box counts nodes,
and every node of it gets as many members.

A member's GPUs are themselves a small box (2x2 of a 2x4 host), the most compact that fits, and members are numbered
over these in row-major order of the slice, the last axis fastest: consecutive ranks are neighbours.
"""

from dataclasses import dataclass
from math import prod

from gantree.model.errors import Unsupported
from gantree.model.jobs import Job, Role
from gantree.topology.fabric.torus_pieces import Pieces
from gantree.topology.hardware.tpu_slices import Shape, factored


@dataclass(frozen=True, slots=True)
class BoxRequest:
    """The request of a gang of one role for a box: its shape in GPUs, axis by axis; () for any that holds the gang."""

    job: Job
    role: Role
    box: Shape

    @property
    def gpus(self) -> int:
        """GPUs of the gang."""
        return self.role.members * self.role.shape.gpus


@dataclass(frozen=True, slots=True)
class Layout:
    """A slice of a shape and its members: GPUs of a member along each axis (block), members on each host.

    block is () where a node is one point of the grid: then it matters how many GPUs a member has, not which.
    """

    shape: Shape
    block: Shape
    members_on_host: int


def box_request_of(job: Job) -> BoxRequest:
    """Return the box that a job with `topology.box` requests. Raises Unsupported for what a box cannot have."""
    box = job.topology.box
    assert box is not None, f"job {job.name} asks for no box"
    if len(job.roles) != 1:
        raise Unsupported(
            f"job {job.name}: topology.box is for a gang of one role, found {len(job.roles)}; "
            f"submit the others as jobs of their own"
        )
    role = job.roles[0]
    for request in (job.topology, role.topology):
        if request.slices or request.spread:
            raise Unsupported(
                f"job {job.name}: role {role.name}: topology.box with slices or spread cannot be placed by this "
                f"version; leave them out: members that follow each other are neighbours in the box"
            )
    if role.shape.memory_GBps:
        raise Unsupported(
            f"job {job.name}: role {role.name}: each.memory_GBps with topology.box cannot be placed by this version; "
            f"leave it out: a box is made of whole hosts or equal parts of one"
        )
    if role.shape.part:
        raise Unsupported(
            f"job {job.name}: role {role.name}: topology.box is made of whole GPUs, not of parts; use each.gpus"
        )
    return BoxRequest(job, role, box)


def layouts(pieces: Pieces, box_request: BoxRequest) -> tuple[Layout, ...]:
    """Return the layouts of the gang on such pieces, best shape first; () where there is none."""
    shapes = (
        (box_request.box,)
        if box_request.box
        else pieces.any_torus.shapes(_size(pieces, box_request))
    )
    found = (
        layout_of(pieces, box_request, shape)
        for shape in shapes
        if pieces.any_torus.is_legal(shape)
    )
    return tuple(one for one in found if one is not None)


def layout_of(pieces: Pieces, box_request: BoxRequest, shape: Shape) -> Layout | None:
    """Return the layout of the gang in a slice of a legal shape; None where the slice is not the gang's size."""
    if pieces.points:
        members, over = divmod(box_request.role.members, prod(shape))
        return Layout(shape, (), members) if members and not over else None
    each = box_request.role.shape.gpus
    on_host = tuple(min(size, most) for size, most in zip(shape, pieces.host, strict=True))
    if prod(shape) != box_request.gpus or not each or prod(on_host) % each:
        return None
    blocks = [
        block
        for block in factored(each, on_host)
        if not any(most % side for side, most in zip(block, on_host, strict=True))
    ]
    return Layout(shape, min(blocks, key=_order), prod(on_host) // each)


def _size(pieces: Pieces, box_request: BoxRequest) -> int:
    """GPUs (or nodes, where these are points) of a box for the gang."""
    if not pieces.points:
        return box_request.gpus
    nodes, over = divmod(box_request.gpus, max(pieces.most_gpus, 1))
    return nodes if nodes and not over else box_request.role.members


def _order(block: Shape) -> tuple[int, Shape]:
    """Compact blocks first, then those longer along the later axes."""
    return sum(prod(block) // side for side in block), block
