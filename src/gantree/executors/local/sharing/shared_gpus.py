"""The GPUs that gangs share, and how."""

from gantree.model.orders import MemberLaunch, StartGang

SharedGpu = tuple[str, int, str]
"""A GPU of a node, and the way in which it is shared."""


def shared_gpus(order: StartGang, way: str | None = None) -> frozenset[SharedGpu]:
    """The GPUs that members of an order share, in this way only if one is given."""
    found = (_shared(member) for member in order.members)
    return frozenset(each for each in found if each is not None and way in (None, each[2]))


def _shared(member: MemberLaunch) -> SharedGpu | None:
    share = member.share
    return None if share is None else (member.node, share.gpu, share.isolation)
