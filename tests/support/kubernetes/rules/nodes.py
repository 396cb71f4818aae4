"""What a server does to nodes: a kubelet that registers one tells its status with it; a taint keeps pods from a node
that is not ready yet only where something sets it, so none is set here."""

from support.kubernetes.rules.rules import Others, Rules
from support.kubernetes.server.statuses import Json


class NodeRules(Rules):
    """Those of nodes."""

    keeps_status_on_create = True

    def create(self, others: Others, new: Json) -> Json:
        """What can be allocated is what there is, if it is not said."""
        status = new.get("status") or {}
        if "capacity" in status:
            status = {"allocatable": status["capacity"], **status}
        return {**new, "spec": new.get("spec") or {}, "status": status}
