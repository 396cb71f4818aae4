"""The result of a search: a placement, or a refusal with its reasons. Never an exception."""

from dataclasses import dataclass
from enum import StrEnum

from gantree.model.jobs import Apart, Slices, Spread


class Gate(StrEnum):
    """The first check that refused a gang."""

    LIMIT = "LIMIT"
    """An admission limit or a budget."""
    QUOTA = "QUOTA"
    """The queue's quota is used up."""
    SHAPE = "SHAPE"
    """A member is larger than every machine that its model and labels admit."""
    ROOM = "ROOM"
    """Less of the scarcest resource is free than requested."""
    CONTIGUITY = "CONTIGUITY"
    """The resources are free, but not together: not in one domain, in slices, or on one node."""
    HARM = "HARM"
    """The gang needs an eviction that the policy forbids."""
    RESERVATION = "RESERVATION"
    """The gang needs room that is held for another gang."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """The resource that is short, and by how much."""

    resource: str
    amount: float


PatchValue = str | int | tuple[Slices, ...] | tuple[Apart, ...] | tuple[int, ...] | Spread | None
Patch = tuple[tuple[str, PatchValue], ...]


@dataclass(frozen=True, slots=True)
class Relaxation:
    """A patch of the job (dotted field -> whole new value) under which it fits now, and its cost.

    None removes the field. `members` is that of the only role; the other fields are paths into the job file.
    comm_ratio is its predicted communication time over that of the best placement of the unchanged job on the empty
    fabric; None if that is not known.
    """

    patch: Patch
    comm_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a gang does not start now.

    never: the empty, healthy fabric could not hold it either. nearest: the domain with the most room, with how
    much it has: free GPUs if GPUs are short, else members that would fit there. wakes_on: the resources whose release
    may change the answer.
    """

    gate: Gate
    sentence: str
    never: bool = False
    short_by: Shortage | None = None
    nearest: tuple[str, int] | None = None
    wakes_on: tuple[str, ...] = ()
    would_fit_if: tuple[Relaxation, ...] = ()
