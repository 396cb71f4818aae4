"""The journal's disk has no byte left, and then again."""

from collections.abc import Iterator
from contextlib import contextmanager

from hostile.disks import in_memory, no_room
from hostile.scene import Item
from hostile.site import Site


@contextmanager
def full(site: Site) -> Iterator[None]:
    """Nothing can be written."""
    with no_room(site.home):
        yield


ITEM = Item("the journal's disk is full", full, refuses=True, disk=in_memory("size=24m"))
