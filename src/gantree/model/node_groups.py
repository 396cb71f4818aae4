"""Node groups: nodes that an autoscaler can make, as each of them will be."""

from dataclasses import dataclass

from gantree.model.node_rules import Taint


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Up to max_nodes nodes of one kind, which stand in one domain of each tier for which their labels say no other.

    provisioning_class and parameters are those of a ProvisioningRequest. allocatable are quantities of the API.
    """

    name: str
    max_nodes: int
    provisioning_class: str
    parameters: tuple[tuple[str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    allocatable: tuple[tuple[str, str], ...] = ()
