"""What a watch of links makes of readings, in one step."""

from typing import Any

from gantree.api.gpu_metrics.polling import Judge
from gantree.core.ledger.ledger import Ledger
from gantree.model.events import LinkHealthObserved


def events_of(watch: Judge, told: Any, ledger: Ledger, now: float) -> list[LinkHealthObserved]:
    """The events that follow at a moment in seconds."""
    fabric = ledger.fabric
    assert fabric is not None
    found = watch.events(watch.judge(told, fabric, now), ledger, now, 1)
    return [event for event in found if isinstance(event, LinkHealthObserved)]
