"""The limit on open files (RLIMIT_NOFILE): the daemon takes all that it may have, jobs get what it was started with."""

import resource
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """The soft limit that a process was started with, and the one that it has now."""

    at_start: int
    now: int


def raise_limit() -> OpenFiles:
    """Raise the soft limit of this process to the hard one."""
    at_start, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return OpenFiles(at_start, hard)
