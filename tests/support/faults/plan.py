"""What happens in a life, drawn from its seed: a list of actions, of which any may be left out.

An action is a kind and a number from which it draws all that it does, by what it finds there. So a plan without some of
its actions is a plan too, and a failing one can be shortened (`shrink`). Not every kind comes in every life: faults
that come all the time hide each other.
"""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple


class Action(NamedTuple):
    """One thing that happens, and the seed of its details."""

    kind: str
    lot: int


DAILY: dict[str, int] = {
    "time passes": 45,
    "submit": 22,
    "cancel": 2,
    "hold": 2,
    "release": 3,
    "suspend": 2,
    "scale": 2,
    "reprioritise": 2,
    "cordon": 2,
    "uncordon": 2,
    "health": 2,
    "measure": 12,
}
"""What happens in every life, and how often."""
SERVING: dict[str, int] = {
    "serve": 8,
    "scale a service": 5,
    "end a service": 1,
    "requests drained": 8,
}
"""What happens in lives with services, and how often."""
SERVED = 0.3
"""The share of lives with services. They are drawn apart, so lives without are as they were before there were any."""
FAULTY: dict[str, int] = {
    "kill": 1,
    "power cut after a submission": 1,
    "kill at a write": 2,
    "power cut at a write": 2,
    "restart": 1,
    "disk full": 2,
    "write error": 3,
    "lost answer": 3,
    "poison": 2,
    "executor fails": 1,
    "trouble with orders": 4,
    "trouble with events": 4,
    "event of the past": 3,
    "node lost": 3,
    "node lost in a start": 4,
    "node cut off": 2,
    "gang vanishes": 2,
    "wall clock set": 2,
    "machine reboots": 1,
    "pause the leader": 3,
    "lease expires": 1,
}
LEFT_OUT = 0.4
"""The share of faulty kinds that do not come in a life."""


def plan_of(seed: int) -> Iterator[Action]:
    """All actions of a life, without an end."""
    lots = Random(f"{seed}/plan")
    chosen = {kind: weight for kind, weight in FAULTY.items() if lots.random() >= LEFT_OUT}
    is_served = Random(f"{seed}/services").random() < SERVED
    weights = DAILY | chosen | (SERVING if is_served else {})
    kinds, shares = list(weights), list(weights.values())
    while True:
        yield Action(lots.choices(kinds, shares)[0], lots.getrandbits(32))
