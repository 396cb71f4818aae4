"""Pods that share a claim that has no devices yet: one is placed first, with its devices, and the others follow it.

Handed in together, each would count the devices, and might be placed or preempt for them elsewhere. As the first may
never fit, the next is handed in too after a while, and whichever is placed gets the devices.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.workloads.keys import Key

PATIENCE_S = 30.0
"""A gang that is not placed within so long lets the next one try."""
Claim = tuple[str, str]
"""Namespace and name."""


def claims_open_to_others(pods: Sequence[Pod]) -> list[Claim]:
    """The claims without devices that pods have and others may have, too, as often as they have them."""
    return [
        (pod.metadata.namespace, name)
        for pod in pods
        if pod.claimed is not None
        for name in pod.claimed.open
    ]


@dataclass(slots=True)
class _Turn:
    """Whose turn it is since when, who had it before and may still be placed, and who waits for it."""

    key: Key
    since: float
    before: dict[Key, None] = field(default_factory=dict)
    behind: dict[Key, None] = field(default_factory=dict)


class ClaimTurns:
    """The turns of all claims that pending gangs share."""

    def __init__(self) -> None:
        self._turns: dict[Claim, _Turn] = {}
        self._woken: dict[Key, None] = {}

    def acquire(self, key: Key, claims: Sequence[Claim], now: float) -> str:
        """Why a gang waits for others that have these claims, too; "" if it is its turn."""
        for claim in claims:
            turn = self._turns.setdefault(claim, _Turn(key, now))
            if key == turn.key or key in turn.before:
                continue
            if now < turn.since + PATIENCE_S:
                turn.behind[key] = None
                return f"claim {claim[1]!r} is allocated with pod {turn.key[1]} first"
            turn.before[turn.key] = None
            turn.key, turn.since = key, now
            turn.behind.pop(key, None)
        return ""

    def leave(self, key: Key) -> None:
        """A gang is placed or gone: the next has its turn."""
        for turn in self._turns.values():
            turn.before.pop(key, None)
            turn.behind.pop(key, None)
        self.release(key)

    def release(self, key: Key) -> None:
        """A gang that has its turn cannot use it now: the next has it."""
        for claim, turn in list(self._turns.items()):
            if turn.key == key:
                del self._turns[claim]
                self._woken |= turn.behind | turn.before

    def pop_woken(self, now: float) -> list[Key]:
        """Gangs that may have their turn now."""
        for turn in self._turns.values():
            if turn.behind and now >= turn.since + PATIENCE_S:
                self._woken |= turn.behind
        woken, self._woken = list(self._woken), {}
        return woken
