"""The kernel finds an error on the journal's disk and makes it read-only; an operator mounts it anew."""

from collections.abc import Iterator
from contextlib import contextmanager

from hostile.disks import break_ext4, ext4, mount_ext4, unmount
from hostile.scene import Item
from hostile.site import Site


@contextmanager
def broken(site: Site) -> Iterator[None]:
    """The file system is read-only; then it is repaired and the daemon started anew."""
    break_ext4(site.home)
    try:
        yield
    finally:
        site.daemon.kill()
        unmount(site.home)
        mount_ext4(site.home)
        site.daemon.start()


ITEM = Item("the journal's disk becomes read-only", broken, rounds=1, refuses=True, disk=ext4)
