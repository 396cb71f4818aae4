"""What one kind of resource asks of its writes, beyond what all resources do.

The rules of a kind are asked after an object was read and before it is kept. They answer with the object to keep, or
raise a Refusal. This is what all kinds have that ask for nothing; others are in the modules of their nouns.
"""

from typing import Protocol

from support.kubernetes.server.statuses import Json


class Others(Protocol):
    """What rules may ask of the rest of the server."""

    def lookup(self, group: str, plural: str, namespace: str, name: str) -> Json | None:
        """Another object, if it is there."""

    def listed(self, group: str, plural: str, namespace: str = "") -> list[Json]:
        """All objects of a resource, or those of one namespace."""

    def serves(self, group: str, plural: str) -> bool:
        """Whether a resource is served at all."""

    def may(self, verb: str, group: str, resource: str, namespace: str) -> bool:
        """Whether the one who asks has a right beside that which the request itself needs."""

    def now(self) -> str:
        """The time, as objects tell it."""


class Rules:
    """Those of a kind that asks for nothing."""

    keeps_status_on_create = False
    tells_deletion_first = False
    """Whether an object that goes at once is told to go before: a change, then its deletion."""

    def defaulted(self, new: Json) -> Json:
        """An object as it came, with what it does not say."""
        return new

    def create(self, others: Others, new: Json) -> Json:
        """The object to keep for one that is to be created."""
        return new

    def update(self, others: Others, old: Json, new: Json) -> Json:
        """The object to keep for one whose status stays."""
        return new

    def resize(self, old: Json, new: Json) -> Json:
        """The object to keep for one whose amounts alone are written."""
        return old

    def update_status(self, others: Others, old: Json, new: Json) -> Json:
        """The object to keep for one of which only the status is written."""
        return new

    def grace_s(self, old: Json, asked_s: int | None) -> int:
        """How long an object stays after it was told to go."""
        return 0

    def answers_object_on_delete(self) -> bool:
        """Whether the answer to a deletion is the object, not a Status."""
        return False

    def deleting(self, content: Json) -> Json:
        """The object as it stays when its deletion has begun and something still holds it."""
        return content

    def holds(self, content: Json) -> bool:
        """Whether an object that was told to go stays for a reason that is neither a finalizer nor its grace."""
        return False
