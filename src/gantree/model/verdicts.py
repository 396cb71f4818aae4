"""The result of a search: a placement, or a refusal with its reasons. Never an exception."""

from dataclasses import dataclass
from enum import StrEnum

from gantree.model.jobs import Apart, Slices, Spread


class Gate(StrEnum):
    """The first gate that said no."""

    LIMIT = "LIMIT"
    """An admission limit or a budget."""
    QUOTA = "QUOTA"
    """The queue's quota is used up."""
    SHAPE = "SHAPE"
    """A member is larger than every machine that its model and labels admit."""
    ROOM = "ROOM"
    """Fewer of the scarcest resource are free than asked."""
    CONTIGUITY = "CONTIGUITY"
    """The resources are free, but not together: not in one domain, in slices, or on one node."""
    HARM = "HARM"
    """It would need an eviction that policy forbids."""
    RESERVATION = "RESERVATION"
    """It would take room that is held for another gang."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """How much more of which resource is needed."""

    resource: str
    amount: float


PatchValue = str | int | tuple[Slices, ...] | tuple[Apart, ...] | tuple[int, ...] | Spread | None
Patch = tuple[tuple[str, PatchValue], ...]


@dataclass(frozen=True, slots=True)
class Relaxation:
    """A patch to the job (dotted field -> its whole new value) under which it fits now, and what it costs.

    None removes the field. `members` is that of the only role; the other fields are paths into the job file.
    comm_ratio is predicted communication time over that of the best place the wish as written could have on
    the empty fabric; None where there is nothing to compare with.
    """

    patch: Patch
    comm_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a gang does not start now.

    never: the empty, healthy fabric could not hold it either. nearest: the domain with the most room, with how
    much it has: free GPUs where these are what is short, else members that would fit there. wakes_on: the resources
    whose release could change the answer.
    """

    gate: Gate
    sentence: str
    never: bool = False
    short_by: Shortage | None = None
    nearest: tuple[str, int] | None = None
    wakes_on: tuple[str, ...] = ()
    would_fit_if: tuple[Relaxation, ...] = ()
