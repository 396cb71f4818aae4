"""What a daemon on Kubernetes is told beside what every daemon is told. Nothing of the extra is imported here."""

from dataclasses import dataclass

from gantree.executors.kubernetes.reach import Reach
from gantree.model.cluster import Cluster

SCHEDULER = "gantree"


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """How the API server is reached; the schedulerName of pods that are ours; label keys of the tree, wide to narrow.

    levels are empty where the labels that are known make the tree; cluster is a file that describes it instead. lease
    is the name of the Lease by which a daemon with a journal of its own is elected; "": none, whoever is started leads.
    """

    reach: Reach
    scheduler: str = SCHEDULER
    levels: tuple[str, ...] = ()
    name: str = "kubernetes"
    lease: str = ""
    cluster: Cluster | None = None
