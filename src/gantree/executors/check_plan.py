"""What plans of checks before a start have in common, whoever starts their programs."""

from gantree.model.cluster import Node

NETWORK_VARIABLES = frozenset(
    {
        "NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY", "NCCL_IB_GID_INDEX", "NCCL_IB_TC", "NCCL_IB_SL",
        "NCCL_IB_TIMEOUT", "NCCL_IB_ADDR_FAMILY", "NCCL_CROSS_NIC", "GLOO_SOCKET_IFNAME",
    }
)  # fmt: skip
"""What a job may say to its check: by which addresses of the site ranks find each other, and no code."""


def domains_of(tiers: tuple[str, ...], node: Node) -> list[tuple[str, str]]:
    """(tier, path) of the domains of a node outside it, widest first."""
    return [(tiers[n], "/".join(node.at[: n + 1])) for n in range(len(node.at))]
