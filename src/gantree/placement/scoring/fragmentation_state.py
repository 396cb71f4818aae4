"""The state of nodes for the fragmentation score, updated as members come and go.

Nodes in equal states are scored once: a state is what is left on a node with its GPUs in falling order, and gets a
number when it first occurs. Cached by state: its worth, the amounts of its slots, and per request the states that it
can change to. So a decision reads two numbers per node and possible GPU, and only new states are computed. Scarcity is
counted again after every REWEIGH_EVERY changes; in between the weights do not change, so all nodes have the same.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gantree.placement.scoring.fragmentation import (
    SLOT_VALUE_DECIMALS,
    WORTH_DECIMALS,
    Demand,
    Loss,
    NodeStates,
    amounts,
    members_beside_gpus,
    slots,
    weights,
    worth,
)
from gantree.placement.scoring.share_prices import WHOLE_MILLI
from gantree.placement.scoring.simplex import FloatArray
from gantree.topology.fabric.fabric import IntArray

REWEIGH_EVERY = 50
"""Changed nodes after which slots anywhere are counted anew; a thousand nodes have changed little by then."""

MOST_STATES = 1 << 17
"""Most states cached; then only those of the nodes are kept. Half a GiB with a hundred classes."""

NO_STATE, UNKNOWN = -1, -2

StateArray = NDArray[np.int32]
"""Numbers of states."""


@dataclass(frozen=True, slots=True)
class MemberDemand:
    """What one member requests of one node; gpu_milli below WHOLE_MILLI is a share of one GPU."""

    cpu_milli: int
    memory_MiB: int
    gpus: int
    gpu_milli: int

    @property
    def is_share(self) -> bool:
        """Whether it requests a part of a GPU."""
        return self.gpus == 1 and self.gpu_milli < WHOLE_MILLI


class States:
    """All states met so far, numbered, with what the score needs to know of each."""

    def __init__(self, demand: Demand, gpus: int) -> None:
        self.demand = demand
        self.gpus = gpus
        self.count = 0
        self._number_of: dict[bytes, int] = {}
        self._rows = np.zeros((256, 3 + gpus), dtype=np.int64)
        self.worth: FloatArray = np.zeros(256)
        self.slots = np.zeros((256, len(demand.classes)), dtype=np.int32)
        self.amounts: FloatArray = np.zeros(self.slots.shape)

    def read(self, numbers: IntArray) -> NodeStates:
        """The states of these numbers, GPUs in falling order."""
        rows = self._rows[numbers]
        return NodeStates(rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3:])

    def numbers(self, states: NodeStates) -> IntArray:
        """The number of each of these states; new ones are numbered and computed."""
        rows = self._canonical(states)
        keys = [row.tobytes() for row in rows]
        new = {key: row for row, key in enumerate(keys) if key not in self._number_of}
        if new:
            self._learn(rows[np.array(list(new.values()))], list(new))
        return np.array([self._number_of[key] for key in keys], dtype=np.int64)

    def _canonical(self, states: NodeStates) -> IntArray:
        """States as rows in which what no class distinguishes is equal."""
        memory = states.memory_MiB if self.demand.memory_MiB.any() else 0 * states.memory_MiB
        model = np.minimum(states.model, self.demand.models)
        falling = -np.sort(-states.gpu_milli, axis=1)
        return np.column_stack([states.cpu_milli, memory, model, falling])

    def _learn(self, rows: IntArray, keys: list[bytes]) -> None:
        first, end = self.count, self.count + len(keys)
        while end > len(self._rows):
            self._grow()
        self._rows[first:end] = rows
        self.count = end
        self._number_of |= dict(zip(keys, range(first, end), strict=True))
        states = NodeStates(rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3:])
        members = members_beside_gpus(self.demand, states)
        self.worth[first:end] = worth(self.demand, states, members)
        new = slots(self.demand, states, members)
        self.slots[first:end] = new
        self.amounts[first:end] = amounts(self.demand, new)

    def _grow(self) -> None:
        self._rows = np.vstack([self._rows, np.zeros_like(self._rows)])
        self.worth = np.concatenate([self.worth, np.zeros_like(self.worth)])
        self.slots = np.vstack([self.slots, np.zeros_like(self.slots)])
        self.amounts = np.vstack([self.amounts, np.zeros_like(self.amounts)])

    def after(self, numbers: IntArray, asked: MemberDemand) -> IntArray:
        """after[state, choice]: what each state turns into; NO_STATE where the member does not fit.

        A share has a choice for each GPU of the state; of equal GPUs only the last is one. Others have one choice.
        """
        before = self.read(numbers)
        held, gpu_milli = _choices(before.gpu_milli, asked)
        held &= (before.cpu_milli >= asked.cpu_milli)[:, None]
        row, choice = np.nonzero(held)
        memory = np.maximum(before.memory_MiB - asked.memory_MiB, 0)
        left = NodeStates(
            (before.cpu_milli - asked.cpu_milli)[row],
            memory[row],
            before.model[row],
            gpu_milli[row, choice],
        )
        after = np.full(held.shape, NO_STATE, dtype=np.int64)
        if len(row):
            after[row, choice] = self.numbers(left)
        return after


def _choices(falling: IntArray, asked: MemberDemand) -> tuple[np.ndarray, IntArray]:
    """held[state, choice], and gpu_milli[state, choice, gpu] afterwards."""
    states, gpus = falling.shape
    if asked.is_share:
        last_of_equals = np.ones(falling.shape, dtype=np.bool_)
        last_of_equals[:, :-1] = falling[:, :-1] != falling[:, 1:]
        held = last_of_equals & (falling >= asked.gpu_milli)
        return held, falling[:, None, :] - asked.gpu_milli * np.eye(gpus, dtype=np.int64)
    if asked.gpus > gpus:
        return np.zeros((states, 1), dtype=np.bool_), falling[:, None, :]
    taken = falling.copy()
    taken[:, : asked.gpus] = 0
    held = (falling[:, : asked.gpus] == WHOLE_MILLI).all(axis=1, keepdims=True)
    return held, taken[:, None, :]


class FragmentationState:
    """The states of a cluster's nodes. A caller reads `losses`, chooses, and reports what changed to `changed`."""

    def __init__(self, demand: Demand, nodes: NodeStates) -> None:
        self.states = States(demand, nodes.gpu_milli.shape[1])
        self.state_of_node = self.states.numbers(nodes)
        self._after: dict[MemberDemand, StateArray] = {}
        self._weigh()

    def _weigh(self) -> None:
        """Count the slots of each class in the whole cluster and weigh all states by them."""
        number, nodes = np.unique(self.state_of_node, return_counts=True)
        self._weights = weights(self.states.demand, nodes @ self.states.slots[number])
        self._slot_values = self._weighed(0)
        self._changes = 0

    def _weigh_new(self) -> None:
        known = len(self._slot_values)
        if known < self.states.count:
            self._slot_values = np.concatenate([self._slot_values, self._weighed(known)])

    def _weighed(self, first: int) -> FloatArray:
        """The slot values of the states from a number on; not by BLAS, whose threads cost more than they save."""
        amounts = self.states.amounts[first : self.states.count]
        slot_value: FloatArray = np.einsum("sc,c->s", amounts, self._weights)
        return slot_value

    def after(self, asked: MemberDemand, numbers: IntArray) -> StateArray:
        """after[row, choice]: what the states of these numbers would turn into; see `States.after`."""
        known = self._after.get(asked)
        if known is None or len(known) < self.states.count:
            choices = self.states.gpus if asked.is_share else 1
            room = np.full((len(self.states.worth), choices), UNKNOWN, dtype=np.int32)
            if known is not None:
                room[: len(known)] = known
            known = self._after[asked] = room
        after = known[numbers]
        unknown = numbers[after[:, 0] == UNKNOWN]
        if len(unknown):
            unknown = np.unique(unknown)
            known[unknown] = self.states.after(unknown, asked)
            self._weigh_new()
            after = known[numbers]
        return after

    def losses(self, asked: MemberDemand, numbers: IntArray) -> Loss:
        """Losses[row, choice] of placing a member on a node in each of these states; infinite where it has no room.

        Of room CPU and GPUs are looked at: whether a node admits the member otherwise (memory, GPU model, labels,
        health) is the caller's to know. Choices are the GPUs of a node in falling order of what is left; members of
        whole GPUs have one choice.
        """
        after = self.after(asked, numbers)
        before = numbers[:, None]
        worth = np.round(self.states.worth[before] - self.states.worth[after], WORTH_DECIMALS)
        slot_value = np.round(
            self._slot_values[before] - self._slot_values[after], SLOT_VALUE_DECIMALS
        )
        no = after == NO_STATE
        worth[no] = np.inf
        slot_value[no] = np.inf
        return Loss(worth, slot_value)

    def gpu_left(self, node: int, choice: int) -> int:
        """What is left of the GPU that a choice stands for, before the placement."""
        number = self.state_of_node[node : node + 1]
        return int(self.states.read(number).gpu_milli[0, choice])

    def changed(self, nodes: IntArray, states: NodeStates) -> None:
        """Take note of what is left on these nodes now, whatever the cause."""
        self.state_of_node[nodes] = self.states.numbers(states)
        self._weigh_new()
        self._changes += len(nodes)
        if self._changes >= REWEIGH_EVERY:
            self._forget()
            self._weigh()

    def _forget(self) -> None:
        """Start the list of states anew where it has grown too long."""
        if self.states.count > MOST_STATES:
            number, state_of_node = np.unique(self.state_of_node, return_inverse=True)
            kept = self.states.read(number)
            self.states = States(self.states.demand, self.states.gpus)
            self.state_of_node = self.states.numbers(kept)[state_of_node]
            self._after.clear()
