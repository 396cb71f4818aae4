"""Which jobs a caller sees in pictures of the cluster; others are drawn as allocated, without a name."""

from collections.abc import Callable

from gantree.api.access.access import Caller
from gantree.api.access.permissions import Need, has

MayRead = Callable[[str, str], bool]
"""Whether a caller may see jobs of a user in a queue."""


def visible_jobs(caller: Caller) -> MayRead:
    """What a caller may see."""
    return lambda user, queue: has(caller, Need.SEE, user, queue)
