"""Whether a policy suits the site and the jobs that it would rule from now on, before anything is decided by it.

Where it does not, the daemon does not start: jobs that run go on running, and the message says what to change.
"""

from gantree.core.accounts import capacity_of
from gantree.core.ledger import Ledger
from gantree.model.cluster import Cluster
from gantree.model.errors import BadInput
from gantree.model.phases import ENDED
from gantree.planning.cells_book import CellBook
from gantree.policy.admission import in_words
from gantree.policy.queues import ROOT, QueueTree
from gantree.policy.quota import Quota
from gantree.policy.rules import Policy
from gantree.topology.fabric import Fabric


def check_fit(policy: Policy, cluster: Cluster, ledger: Ledger) -> None:
    """Raise BadInput for cells and guarantees that the cluster cannot hold, and for classes of jobs that it lacks."""
    _check_classes(policy, ledger)
    if not policy.queues:
        return
    recorded = ledger.fabric
    is_known = recorded is not None and recorded.cluster == cluster
    fabric = recorded if is_known and recorded is not None else Fabric.build(cluster)
    if any(rule.cells for rule in policy.queues):
        try:
            CellBook.of(policy.queues, fabric)
        except BadInput as error:
            raise BadInput(f"policy: {error}") from None
    _check_guarantees(policy, fabric)


def _check_guarantees(policy: Policy, fabric: Fabric) -> None:
    tree, capacity = QueueTree(policy.queues), capacity_of(fabric)
    guaranteed = Quota(tree, capacity).guaranteed(ROOT)
    for resource, amount in guaranteed.items():
        there = capacity.get(resource, 0.0)
        if amount > there:
            queues = ", ".join(
                f"{rule.path} {rule.guarantee[resource]:g}"
                for rule in policy.queues
                if rule.guarantee.get(resource)
            )
            raise BadInput(
                f"policy: {amount:g} {in_words(resource)} are guaranteed altogether ({queues}), and cluster "
                f"{fabric.cluster.name} has {there:g}; guarantee less, or start on a larger cluster"
            )


def _check_classes(policy: Policy, ledger: Ledger) -> None:
    for state in ledger.jobs.values():
        if state.phase in ENDED:
            continue
        try:
            policy.priority_of(state.spec.priority)
        except BadInput as error:
            way_out = "keep the class in `priorities`, or start with the policy as it was and cancel the job first"
            raise BadInput(
                f"policy: {state.job} has not ended, and its {error} {way_out}"
            ) from None
