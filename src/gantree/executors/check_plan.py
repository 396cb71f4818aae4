"""What plans of checks before a start have in common, whoever starts their programs."""

from gantree.model.cluster import Node
from gantree.model.jobs import Check

NETWORK_VARIABLES = frozenset(
    {
        "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY", "NCCL_IB_GID_INDEX", "NCCL_IB_TC", "NCCL_IB_SL",
        "NCCL_IB_TIMEOUT", "NCCL_IB_ADDR_FAMILY", "NCCL_CROSS_NIC", "GLOO_SOCKET_IFNAME",
    }
)  # fmt: skip
"""What a job may say to its check: by which addresses of the site ranks find each other, and no code."""

CPU_RANKS_OF_SOAK = 2
"""Ranks of a member without real GPUs that computes beforehand: so it has a link of its own to check."""


def cpu_ranks_of(check: Check) -> int:
    """Return the ranks of a member without real GPUs."""
    return CPU_RANKS_OF_SOAK if check.soak_s else 1


def domains_of(tiers: tuple[str, ...], node: Node) -> list[tuple[str, str]]:
    """(tier, path) of the domains of a node outside it, widest first."""
    return [(tiers[n], "/".join(node.at[: n + 1])) for n in range(len(node.at))]
