"""Members of a role `w` on a node, for tests of what an occupancy holds."""

from gantree.model.placements import MemberPlacement


def member(node: str = "n0", gpus: tuple[int, ...] = (0,), **more: float) -> MemberPlacement:
    """A member of rank 0 with whole GPUs; more: cpus, and memory in GiB."""
    return MemberPlacement(
        "w", 0, node, gpus, cpus=more.get("cpus", 0.0), memory_GiB=more.get("memory", 0.0)
    )
