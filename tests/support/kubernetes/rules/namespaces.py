"""What a server does to namespaces: one that was told to go takes nothing new and stays until its content is gone."""

from support.kubernetes.rules.rules import Others, Rules
from support.kubernetes.server.statuses import Json

NAME_LABEL = "kubernetes.io/metadata.name"


class NamespaceRules(Rules):
    """Those of namespaces. Their own finalizer is in their spec; a controller takes it away."""

    def create(self, others: Others, new: Json) -> Json:
        """Active, and labelled with its name."""
        metadata = new["metadata"]
        labels = {**metadata.get("labels", {}), NAME_LABEL: metadata["name"]}
        return {
            **new,
            "metadata": {**metadata, "labels": labels},
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        }

    def deleting(self, content: Json) -> Json:
        """Terminating."""
        return {**content, "status": {**content["status"], "phase": "Terminating"}}

    def holds(self, content: Json) -> bool:
        """Until its own finalizer is gone."""
        return bool(content["spec"].get("finalizers"))
