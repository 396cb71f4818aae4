"""The connections of one listener: how many there may be, how long each may take over its request, which one gives way.

A connection that has shown no valid credentials is a stranger's. Strangers are limited for each peer (an address of
TCP, a user id of the Unix socket), all connections by their number. At a limit the oldest stranger gives way to the
newcomer, first of those that have sent no whole request; where there is none the newcomer is refused. So sockets that
send nothing keep nobody out.

No sockets here: `server.http_server` accepts, and tells of each connection how far it is.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from gantree.model.errors import BadInput

STATE = "connection"
"""Where a request's state has its connection."""
ALL_KEPT, LEAST_KEPT = 4, 128
"""Of the descriptors, one of so many is kept back for journal, engine and readers, and never fewer than these."""
LEAST_LEFT = 32
"""Connections that are taken however few descriptors there are."""
MOST = 4096
"""Connections of a listener where descriptors allow more."""
HEAD_WITHIN_S = 30.0
REQUEST_FACTOR = 4
"""So many times as long as for its headers a request may take for its body, and a stranger's answer."""


class Phase(Enum):
    """How far a connection is with its request."""

    NEW = auto()
    HEAD = auto()
    BODY = auto()
    ANSWER = auto()
    IDLE = auto()


BETWEEN = frozenset({Phase.NEW, Phase.HEAD, Phase.IDLE})
"""No request is known yet."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """most: connections at once; most_of_peer: of these, strangers of one peer.

    head_within_s: a request's headers must be there, from the first of it (or the connection) on; an idle connection
    ends after as long.
    """

    most: int
    most_of_peer: int
    head_within_s: float = HEAD_WITHIN_S

    def seconds(self, phase: Phase) -> float:
        """How long a phase may take."""
        return self.head_within_s * (1 if phase in BETWEEN else REQUEST_FACTOR)


def descriptors_left(descriptors: int) -> int:
    """How many of the process's descriptors connections may have."""
    kept = max(LEAST_KEPT, descriptors // ALL_KEPT)
    return max(LEAST_LEFT, descriptors - kept)


def socket_limits(descriptors: int, *, for_all: bool) -> ConnectionLimits:
    """Limits of the Unix socket, which has a quarter of what is left. for_all: users share it."""
    most = min(MOST, descriptors_left(descriptors) // 4)
    return ConnectionLimits(most, max(1, most // 4) if for_all else most)


def tcp_limits(
    descriptors: int, most: int | None = None, head_within_s: float = HEAD_WITHIN_S
) -> ConnectionLimits:
    """Limits of the address of TCP: three quarters of what is left, or `most`. Raises BadInput if that is more."""
    left = descriptors_left(descriptors)
    left -= left // 4
    if most is not None and most > left:
        raise BadInput(
            f"--max-connections {most}: the hard limit of open files is {descriptors}, which leaves {left} for"
            " connections over TCP; raise it (ulimit -Hn, LimitNOFILE= of systemd), or allow fewer connections"
        )
    at_once = min(MOST, left) if most is None else most
    return ConnectionLimits(at_once, max(1, at_once // 4), head_within_s)


class Connection:
    """One connection. end closes it at once, expire because its time is over."""

    __slots__ = ("_connections", "deadline", "end", "expire", "is_stranger", "peer", "phase")

    def __init__(self, connections: "Connections", peer: str) -> None:
        self._connections, self.peer = connections, peer
        self.is_stranger = True
        self.end: Callable[[], object] = lambda: None
        self.expire: Callable[[], object] = lambda: None
        self.enter(Phase.NEW)

    def enter(self, phase: Phase) -> None:
        """Go on to a phase; each begins its time anew."""
        self.phase = phase
        if phase is Phase.ANSWER and not self.is_stranger:
            self.deadline = math.inf
        else:
            self.deadline = self._connections.clock() + self._connections.limits.seconds(phase)

    def authenticate(self) -> None:
        """Its caller has shown valid credentials: it is no stranger any more, and may wait for answers."""
        if self.is_stranger:
            self.is_stranger = False
            self._connections.forget_stranger(self)
            if self.phase is Phase.ANSWER:
                self.deadline = math.inf

    def release(self) -> None:
        """It is closed."""
        self._connections.release(self)


class Connections:
    """All connections of a listener. ended counts those that were not ended by their peers, by why."""

    def __init__(
        self, limits: ConnectionLimits, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits, self.clock = limits, clock
        self.ended: Counter[str] = Counter()
        self._all: dict[Connection, None] = {}
        self._strangers_of_peer: dict[str, dict[Connection, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def admit(self, peer: str) -> Connection | None:
        """A connection of a peer, if need be in the place of another; None: refused."""
        of_peer = self._strangers_of_peer.get(peer, {})
        if len(of_peer) >= self.limits.most_of_peer:
            self._give_way(list(of_peer))
        if len(self._all) >= self.limits.most and not self._give_way(self._strangers()):
            self.ended["refused"] += 1
            return None
        made = Connection(self, peer)
        self._all[made] = None
        self._strangers_of_peer.setdefault(peer, {})[made] = None
        return made

    def overdue(self) -> list[Connection]:
        """Those whose time is over."""
        now = self.clock()
        return [each for each in self._all if each.deadline <= now]

    def release(self, connection: Connection) -> None:
        """Count it no more."""
        self._all.pop(connection, None)
        self.forget_stranger(connection)

    def forget_stranger(self, connection: Connection) -> None:
        """Count it among its peer's strangers no more."""
        of_peer = self._strangers_of_peer.get(connection.peer, {})
        of_peer.pop(connection, None)
        if not of_peer:
            self._strangers_of_peer.pop(connection.peer, None)

    def _strangers(self) -> list[Connection]:
        return [each for each in self._all if each.is_stranger]

    def _give_way(self, strangers: Sequence[Connection]) -> bool:
        """End the oldest that has not asked yet, or else the oldest; whether there is one."""
        not_asked = (each for each in strangers if each.phase is not Phase.ANSWER)
        oldest = next(not_asked, next(iter(strangers), None))
        if oldest is None:
            return False
        self.release(oldest)
        oldest.end()
        self.ended["gave way"] += 1
        return True
