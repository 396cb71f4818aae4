"""What a server does to nodes: a kubelet that registers one tells its status with it; a taint keeps pods from a new
node until the controller of nodes finds it ready."""

from support.kubernetes.rules.rules import Others, Rules
from support.kubernetes.server.statuses import Json

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


class NodeRules(Rules):
    """Those of nodes."""

    keeps_status_on_create = True

    def create(self, others: Others, new: Json) -> Json:
        """What can be allocated is what there is, if it is not said."""
        status = new.get("status") or {}
        if "capacity" in status:
            status = {"allocatable": status["capacity"], **status}
        spec = new.get("spec") or {}
        taints = [each for each in spec.get("taints") or () if each != NOT_READY]
        return {**new, "spec": {**spec, "taints": [*taints, NOT_READY]}, "status": status}
