"""Which members hold a GPU that a health source reports as lost: no process there can use it, not even to save.

A source that does not know which GPU of a node is lost is sure only of a member that holds all of them.
"""

from gantree.core.ledger.ledger import Ledger
from gantree.model.placements import MemberPlacement, Placement


def members_on_lost_gpus(ledger: Ledger, placement: Placement) -> list[MemberPlacement]:
    """The members of a placement that hold a lost GPU, whole or in part."""
    if not ledger.site.unwell:
        return []
    return [member for member in placement.members if _holds_lost(ledger, member)]


def _holds_lost(ledger: Ledger, member: MemberPlacement) -> bool:
    held = {*member.gpus, *member.parts}
    reports = (
        illness.lost_gpus
        for illness in ledger.site.unwell.get(member.node, {}).values()
        if illness.takes_out and illness.lost_gpus is not None
    )
    return any(
        not held.isdisjoint(lost) if lost else _holds_all(ledger, member) for lost in reports
    )


def _holds_all(ledger: Ledger, member: MemberPlacement) -> bool:
    fabric = ledger.fabric
    if fabric is None or member.node not in fabric.index_of_node:
        return False
    gpus = fabric.machine_of_node(fabric.index_of_node[member.node]).gpus
    return 0 < gpus <= len({*member.gpus, *member.parts})
