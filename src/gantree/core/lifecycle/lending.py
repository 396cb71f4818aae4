"""What is decided as guarantees are used or left idle: how much of them queues keep (`core.ledger.accounts.lending`).

It is decided before each cycle, so that whoever starts in it finds lent what was idle for long enough and kept what
was used before; and after it, for what it has started.
"""

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.model.facts import GuaranteeKept


def review_lending(builder: DecisionBuilder) -> None:
    """Record what queues keep that keep more or less than was last recorded."""
    lending = builder.ledger.accounts.lending
    if not lending or builder.ledger.occupancy is None:
        return
    for queue, _ in lending.rules():
        keeps = tuple(lending.keeps(queue, builder.now).items())
        before = lending.kept.get(queue)
        if before is None or before.keeps != keeps:
            begins = before is None
            builder.record(GuaranteeKept(at=builder.now, queue=queue, keeps=keeps, begins=begins))
