"""Which replica a request goes to: the rule, without a socket or a clock. `haproxy/choice.lua` is its twin for HAProxy.

A replica is usable if it is ready and not draining, and has room if it works on fewer requests than its concurrency.
Its load is the requests that it would then work on, over its speed. It is overloaded if its load is more than GAP times
the least load of those with room, and SLACK more. The rule, in this order:

1. No usable replica: wait until there is one. None with room: wait in the queue.
2. The first of the preferred ones that has room and is not overloaded (reason `affinity`).
3. Of those that have room and are not overloaded, the closest: which shares the most places with the caller, from the
   widest on. Among equally close ones the least loaded; among these the one that `turn` draws.

So a request goes farther than to the closest usable replica only for affinity, or because each closer one is full or
overloaded. Of the latter the reason is `load`, else `full`; with no closer one it is `closest`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from zlib import crc32

GAP = 2.0
SLACK = 4.0
WORD = 0xFFFFFFFF


class Reason(StrEnum):
    """Why a request goes to a replica, or waits."""

    CLOSEST = "closest"
    AFFINITY = "affinity"
    FULL = "full"
    LOAD = "load"
    NO_ROOM = "no-room"
    NOT_READY = "not-ready"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica as the rule sees it. place: domains from wide to narrow, then the node. concurrency 0: no limit."""

    name: str
    place: tuple[str, ...] = ()
    ready: bool = True
    draining: bool = False
    in_flight: int = 0
    concurrency: int = 0
    speed: float = 1.0

    @property
    def usable(self) -> bool:
        """Whether new requests may go to it."""
        return self.ready and not self.draining

    @property
    def has_room(self) -> bool:
        """Whether it may work on one more request."""
        return self.usable and (self.concurrency == 0 or self.in_flight < self.concurrency)

    @property
    def load(self) -> float:
        """Requests with one more, over its speed."""
        return (self.in_flight + 1) / self.speed


@dataclass(frozen=True, slots=True)
class Choice:
    """A replica and why; or none, and why not."""

    replica: str | None
    reason: Reason


def choose(
    candidates: Sequence[Candidate],
    caller: Sequence[str] = (),
    preferred: Sequence[str] = (),
    turn: int = 0,
) -> Choice:
    """Return where a request of a caller at this place goes. preferred: names of replicas, best first."""
    roomy = [each for each in candidates if each.has_room]
    if not roomy:
        waits = Reason.NO_ROOM if any(each.usable for each in candidates) else Reason.NOT_READY
        return Choice(None, waits)
    limit = GAP * min(each.load for each in roomy) + SLACK
    fit = [each for each in roomy if each.load <= limit]
    by_name = {each.name: each for each in fit}
    for name in preferred:
        if name in by_name:
            return Choice(name, Reason.AFFINITY)
    chosen = max(
        fit, key=lambda each: (closeness(each.place, caller), -each.load, _draw(each, turn))
    )
    return Choice(chosen.name, _reason(candidates, roomy, chosen, caller))


def closeness(place: Sequence[str], other: Sequence[str]) -> int:
    """How many places two share, from the widest on."""
    for depth, (one, two) in enumerate(zip(place, other, strict=False)):
        if one != two:
            return depth
    return min(len(place), len(other))


def session_order(
    candidates: Sequence[Candidate], caller: Sequence[str], session: str
) -> list[str]:
    """Return usable replicas for a session, best first: the closest, and among these by rendezvous hashing.

    A replica that comes or goes moves only the sessions that it gets or had.
    """
    key = crc32(session.encode())
    usable = [each for each in candidates if each.usable]
    usable.sort(
        key=lambda each: (-closeness(each.place, caller), -mix(key, crc32(each.name.encode())))
    )
    return [each.name for each in usable]


def cache_order(
    candidates: Sequence[Candidate],
    caller: Sequence[str],
    tokens_of_replica: Mapping[str, int],
    turn: int,
) -> list[str]:
    """Return usable replicas that hold tokens of a prompt, the most first; equally many: in the order of `choose`."""
    holders = [each for each in candidates if each.usable and tokens_of_replica.get(each.name)]
    holders.sort(
        key=lambda each: (
            -tokens_of_replica[each.name],
            -closeness(each.place, caller),
            each.load,
            -_draw(each, turn),
        )
    )
    return [each.name for each in holders]


def mix(one: int, two: int) -> int:
    """A number of 32 bits that depends on all bits of both: the finaliser of MurmurHash3."""
    mixed = (one + two * 0x9E3779B1) & WORD
    mixed = ((mixed ^ (mixed >> 16)) * 0x85EBCA6B) & WORD
    mixed = ((mixed ^ (mixed >> 13)) * 0xC2B2AE35) & WORD
    return mixed ^ (mixed >> 16)


def _draw(candidate: Candidate, turn: int) -> int:
    return mix(turn, crc32(candidate.name.encode()))


def _reason(
    candidates: Sequence[Candidate],
    roomy: Sequence[Candidate],
    chosen: Candidate,
    caller: Sequence[str],
) -> Reason:
    near = closeness(chosen.place, caller)
    if any(closeness(each.place, caller) > near for each in roomy):
        return Reason.LOAD
    if any(each.usable and closeness(each.place, caller) > near for each in candidates):
        return Reason.FULL
    return Reason.CLOSEST
