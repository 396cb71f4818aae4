"""The journal's file system has no inode left: no file can be made, but the journal can be written."""

from collections.abc import Iterator
from contextlib import contextmanager

from hostile.disks import in_memory, no_inodes
from hostile.scene import Item
from hostile.site import CREATED, Site


@contextmanager
def full(site: Site) -> Iterator[None]:
    """No file can be made, so no gang can start, and `/readyz` has to say so; jobs are taken all the same."""
    with no_inodes(site.home):
        site.can_start_jobs = False
        status, one = site.submit(site.caller, "hostile")
        site.require(status == CREATED, f"a job was refused: {one}")
        yield
    site.can_start_jobs = True


ITEM = Item("no inode is left", full, refuses=True, disk=in_memory("size=64m,nr_inodes=2000"))
