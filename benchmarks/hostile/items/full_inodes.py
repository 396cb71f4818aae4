"""The journal's file system has no inode left: no file can be made, but the journal can be written."""

from collections.abc import Iterator
from contextlib import contextmanager

from hostile.disks import in_memory, no_inodes
from hostile.scene import Item
from hostile.site import Site


@contextmanager
def full(site: Site) -> Iterator[None]:
    """No file can be made; a job that is to start meanwhile fails or waits, and others go on."""
    with no_inodes(site.home):
        site.run("hostile", "true")
        yield


ITEM = Item("no inode is left", full, refuses=True, disk=in_memory("size=64m,nr_inodes=2000"))
