"""Decides the batches of a journal again: the same events in the same batches lead to the same facts.

A policy that a batch submits rules from then on, over the same past, as `control.turn` has it.
"""

from collections.abc import Callable, Iterable, Sequence

from gantree.core.scheduler import Scheduler, settled
from gantree.model.events import Event, PolicySubmitted
from gantree.model.facts import Fact
from gantree.policy.rules import Policy


def decide_again(
    batches: Iterable[Sequence[Event]], policy: Policy, read: Callable[[str, str], Policy]
) -> list[Fact]:
    """The facts of all batches, in order; policy rules until one is submitted, which read makes of (text, source)."""
    scheduler = Scheduler(policy)
    facts: list[Fact] = []
    for batch in batches:
        first = batch[0]
        if isinstance(first, PolicySubmitted):
            scheduler = Scheduler(read(first.text, first.source))
            scheduler.recover(facts)
        facts += settled(scheduler, batch, batch[-1].observed_at).facts
    return facts
