"""Default host names: a node with one was probably never set up for jobs."""

from collections.abc import Iterable

from gantree.topology.discovery.merging import some

DEFAULT_NAMES = frozenset({
    "localhost", "localhost4", "localhost6", "ip6-localhost", "ubuntu", "debian", "centos", "rocky", "almalinux",
    "fedora", "rhel", "redhat", "suse", "opensuse", "linux", "archlinux", "raspberrypi", "cumulus", "switch", "sonic",
    "unknown", "none", "(none)",
})  # fmt: skip
"""Host names that installers and images of Linux distributions and switch systems set, without a domain."""


def warnings_of_names(names: Iterable[str]) -> tuple[str, ...]:
    """Warn of nodes that are called as installers call hosts."""
    found = [name for name in names if name.partition(".")[0].lower() in DEFAULT_NAMES]
    if not found:
        return ()
    return (
        f"{some(found)}: a name that hosts have by default, likely of no compute node; leave out those that are none "
        f"(--leave-out {','.join(found[:3])})",
    )
