"""Pods with constraints that match their own kind (affinity, anti-affinity, spread): how many are handed in at once.

Which nodes such a pod may use is worked out with the pods that are placed. Where that holds however others of its kind
are placed, any number is handed in: with affinity, once one of the kind is placed. With a spread it holds for as many
more as the allowed domain with least room may have; else for one. So many are a batch. The next batch begins when all
of this one are placed or gone, or have waited for PATIENCE_S: a pod that fits nowhere must not stop the others of its
kind. A gang of several pods is a batch of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gantree.executors.kubernetes.workloads.keys import Key

AT_ONCE = 256
"""Gangs that are called to join a batch and have not done so, at most."""
PATIENCE_S = 30.0
"""A batch that is not placed within so long lets the next one try."""


@dataclass(slots=True)
class _Turn:
    """The gangs of the present batch, those that were called to join it, and those that wait for it to end."""

    batch: dict[Key, None] = field(default_factory=dict)
    called: dict[Key, None] = field(default_factory=dict)
    waiting: dict[Key, None] = field(default_factory=dict)
    left: int = 0
    """How many more may join."""
    since: float = 0.0
    """When the batch began."""

    def may_join(self, key: Key, limit: int) -> bool:
        has_room = not self.batch or min(self.left, limit) > 0
        return key in self.batch or (has_room and (key in self.called or not self._has_others()))

    def join(self, key: Key, limit: int, now: float) -> None:
        self.since = self.since if self.batch else now
        if key not in self.batch:
            self.left = (min(self.left, limit) if self.batch else limit) - 1
        self.called.pop(key, None)
        self.waiting.pop(key, None)
        self.batch[key] = None

    def call(self, most: int) -> list[Key]:
        """Call those that wait longest."""
        found = list(self.waiting)[: max(0, most)]
        for key in found:
            del self.waiting[key]
            self.called[key] = None
        return found

    def _has_others(self) -> bool:
        return bool(self.called or self.waiting)


class PodTurns:
    """The turns of all selectors, by name."""

    def __init__(self) -> None:
        self._turns: dict[str, _Turn] = {}
        self._names: dict[Key, dict[str, None]] = {}
        self._woken: dict[Key, None] = {}

    def acquire(self, key: Key, limits: Mapping[str, int], now: float) -> bool:
        """Whether a gang may be handed in now; else it waits, and is woken when it may try again.

        limits: for each selector that matches pods of the gang, how many gangs may join one batch (0: it alone).
        """
        for name, limit in limits.items():
            turn = self._turns.setdefault(name, _Turn())
            self._names.setdefault(key, {})[name] = None
            if not turn.may_join(key, limit):
                turn.waiting[key] = None
                return False
        for name in [name for name in self._names.get(key, ()) if name not in limits]:
            self._open(name, key)
        for name, limit in limits.items():
            turn = self._turns[name]
            turn.join(key, limit, now)
            self._wake(turn.call(min(turn.left, AT_ONCE) - len(turn.called)))
        return True

    def leave(self, key: Key) -> None:
        """A gang is placed or gone."""
        for name in list(self._names.get(key, ())):
            self._turns[name].waiting.pop(key, None)
        self.release(key)

    def release(self, key: Key) -> None:
        """A gang that was called, or is in a batch, cannot use that now; if it waits for another, it still does."""
        for name in list(self._names.get(key, ())):
            turn = self._turns[name]
            turn.batch.pop(key, None)
            turn.called.pop(key, None)
            if key not in turn.waiting:
                self._forget(name, key)
            if not turn.batch and not turn.called:
                self._wake(turn.call(1))

    def waits(self, key: Key) -> bool:
        """Whether a gang waits for others."""
        return any(key in self._turns[name].waiting for name in self._names.get(key, ()))

    def pop_woken(self, now: float) -> list[Key]:
        """Gangs that may try again since the last call."""
        for name, turn in list(self._turns.items()):
            if turn.waiting and turn.batch and now >= turn.since + PATIENCE_S:
                self._end_batch(name)
        woken, self._woken = list(self._woken), {}
        return woken

    def _end_batch(self, name: str) -> None:
        """Those that are not placed wait on, and hold nobody back."""
        for key in list(self._turns[name].batch):
            del self._turns[name].batch[key]
            self._forget(name, key)
        if not self._turns[name].called:
            self._wake(self._turns[name].call(1))

    def _open(self, name: str, key: Key) -> None:
        """Any number may be handed in at a selector for which a gang was called."""
        turn = self._turns[name]
        turn.called.pop(key, None)
        self._wake(turn.call(len(turn.waiting)))
        self._forget(name, key)

    def _forget(self, name: str, key: Key) -> None:
        del self._names[key][name]
        if not self._names[key]:
            del self._names[key]
        turn = self._turns[name]
        if not (turn.batch or turn.called or turn.waiting):
            del self._turns[name]

    def _wake(self, keys: list[Key]) -> None:
        self._woken |= dict.fromkeys(keys)
