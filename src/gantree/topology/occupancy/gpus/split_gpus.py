"""Index of split GPUs: in MIG mode, or shared. Splitting is in `gpu_state` and `mig_cut`."""

from typing import Self

from gantree.model.placements import GpuChange, MemberPlacement
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.gpus.free_gpus import FreeGpus
from gantree.topology.occupancy.gpus.gpu_state import GpuStates, rules_of, states_of_mask
from gantree.topology.occupancy.gpus.mig_cut import undone
from gantree.topology.occupancy.gpus.node_state import NodeState, taken
from gantree.topology.occupancy.gpus.release import given_back
from gantree.topology.occupancy.holders import Holders


class SplitGpus:
    """states_of_node has an entry for each node with split GPUs: the states of all its GPUs.

    Whether a GPU of such a node is free follows from its state, and is written to the free GPUs whenever that changes.
    """

    def __init__(self, fabric: Fabric, free: FreeGpus, holders: Holders) -> None:
        self._fabric, self._free, self._holders = fabric, free, holders
        self.states_of_node: dict[int, GpuStates] = {}

    def state(self, node: int) -> NodeState:
        """The GPUs of a node as parts of them can be held now."""
        machine, its = self._fabric.machine_of_node(node), self._fabric.nodes[node]
        states = self.states_of_node.get(node)
        if states is None:
            states = states_of_mask(machine.gpus, self._free.mask_of_node[node])
        recut = its.mig_by == "gpu" or (its.mig_by == "node" and not self._holders.get(node))
        return NodeState(rules_of(machine, its), states, recut)

    def set(self, node: int, states: GpuStates) -> None:
        """Say in which states the GPUs of a node are."""
        self.states_of_node[node] = states
        self.refresh(node)

    def add(self, node: int, member: MemberPlacement, sign: int) -> None:
        """Let a member take (-1) or give back (+1) GPUs and parts of them; whether it may was checked before."""
        state = self.state(node)
        self.set(node, (taken if sign < 0 else given_back)(state, member))

    def undo(self, node: int, change: GpuChange) -> None:
        """Take back a change of a GPU that was counted and not made."""
        state = self.state(node)
        gpu = undone(state.rules.table, state.gpus[change.gpu], change)
        self.set(node, state.with_gpu(change.gpu, gpu).gpus)

    def refresh(self, node: int) -> None:
        """Count the free GPUs of a node again, and remove its entry if no GPU is split any more."""
        state = self.state(node)
        self._free.set_mask(node, state.free_mask())
        if not any(one.mig or one.tenants or one.kept or one.cut for one in state.gpus):
            del self.states_of_node[node]

    def copy(self, fabric: Fabric, free: FreeGpus, holders: Holders) -> Self:
        """The same for a copy of these, to be changed on its own."""
        twin = type(self)(fabric, free, holders)
        twin.states_of_node = self.states_of_node.copy()
        return twin
