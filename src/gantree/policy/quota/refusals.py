"""Refusals by a quota or a limit, with their numbers."""

from gantree.model.verdicts import Gate
from gantree.policy.amounts import TICKS
from gantree.policy.queues import ROOT, QueueTree
from gantree.policy.quota.admission import Admission
from gantree.policy.quota.resource_quota import Over, ResourceQuota


def above_quota(
    gate: Gate,
    quota: ResourceQuota,
    over: Over,
    amount: int,
    path: tuple[int, ...],
    *,
    owed: bool,
    ever: bool,
) -> Admission:
    """Return the refusal of an amount by the quota or the limit of one node.

    Reclaim helps only if a node other than the job's own queue refuses. If nothing is left to borrow in the whole
    cluster, the refusal names the job's queue.
    """
    tree = quota.tree
    of_queue = path[1] if tree.user[path[0]] is not None else path[0]
    node = of_queue if over.node == ROOT else over.node
    used = 0 if ever else quota.used[node]
    return Admission(
        "refused",
        gate,
        tree.label(node),
        tree.queue[node],
        quota.resource,
        used=used / TICKS,
        most=(used + amount - over.by) / TICKS,
        asked=amount / TICKS,
        short_by=over.by / TICKS,
        never=ever,
        reclaim=owed and not ever and over.node not in (path[0], of_queue),
    )


def must_not_borrow(
    quota: ResourceQuota, amount: int, borrowed: int, path: tuple[int, ...], *, ever: bool
) -> Admission:
    """Return the refusal of an amount above the guarantee for a job that may not borrow."""
    tree = quota.tree
    return Admission(
        "refused",
        Gate.QUOTA,
        tree.label(path[0]),
        tree.queue[path[0]],
        quota.resource,
        asked=amount / TICKS,
        short_by=borrowed / TICKS,
        never=ever,
        may_not_borrow=True,
    )


def too_many(
    tree: QueueTree, node: int, what: str, used: int, most: int, *, never: bool = False
) -> Admission:
    """Return the refusal of one more job by a limit on the number of jobs of a node."""
    return Admission(
        "refused",
        Gate.LIMIT,
        tree.label(node),
        tree.queue[node],
        what,
        used=used,
        most=most,
        asked=1,
        short_by=used + 1 - most,
        never=never,
    )
