"""How many nodes faults may take out: a fifth of them, at least one, whichever sources report them.

Many faults at once point to a driver or an exporter. Nodes beyond the limit stay in use, with their fault on record.
"""

from collections.abc import Collection, Set

from gantree.core.ledger.ledger import Ledger

MOST_SHARE = 0.2


def nodes_out(ledger: Ledger, source: str = "", well: Collection[str] = ()) -> Set[str]:
    """The nodes that faults have taken out, without those where only this source had found one and they are well."""
    return {
        node
        for node, told in ledger.site.unwell.items()
        if any(
            one.takes_out and not (name == source and node in well) for name, one in told.items()
        )
    }


def most_nodes(ledger: Ledger) -> int:
    """So many nodes of the cluster may be out."""
    nodes = 0 if ledger.fabric is None else len(ledger.fabric.nodes)
    return max(1, int(nodes * MOST_SHARE))


def why_kept(ledger: Ledger, node: str, out: Collection[str]) -> str:
    """Why a node with a fault stays in use while these are out; "" where it is taken out."""
    if node in out or len(out) < most_nodes(ledger):
        return ""
    nodes = 0 if ledger.fabric is None else len(ledger.fabric.nodes)
    are = "1 node is" if len(out) == 1 else f"{len(out)} nodes are"
    return f"{are} out already, the limit is a fifth of {nodes} nodes"
