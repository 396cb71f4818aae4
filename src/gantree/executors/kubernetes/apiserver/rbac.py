"""What gantree may ask of an API server, and why: the rows of its roles, and what preflight asks about.

Tests hold the roles that are installed equal to this, and run gantree with no more than it.
"""

from dataclasses import dataclass

LOOK = ("list", "watch")


@dataclass(frozen=True, slots=True)
class Right:
    """Verbs on one resource of an API group, "" for the core; a subresource stands behind a slash.

    at_home: in the namespace that gantree runs in, and in no other.
    """

    group: str
    resource: str
    verbs: tuple[str, ...]
    why: str
    at_home: bool = False


OWNERS = (
    ("jobset.x-k8s.io", "jobsets"),
    ("leaderworkerset.x-k8s.io", "leaderworkersets"),
    ("ray.io", "rayclusters"),
    ("batch", "jobs"),
    *(
        ("kubeflow.org", f"{kind}jobs")
        for kind in ("pytorch", "tf", "mpi", "xgboost", "paddle", "jax")
    ),
)
"""Objects that say how many pods make a gang."""

RIGHTS = (
    Right("", "nodes", LOOK, "the site"),
    Right(
        "",
        "pods",
        (*LOOK, "get", "delete", "patch", "create"),
        "who waits and what runs; to look up a binding whose answer was lost; to stop gangs; to ask for a checkpoint;"
        " to make the pods of GangJobs",
    ),
    Right("", "pods/binding", ("create",), "to start gangs"),
    Right("", "pods/eviction", ("create",), "to preempt gangs, within PodDisruptionBudgets"),
    Right("", "pods/status", ("patch",), "to say why a pod waits, and where room is freed for it"),
    Right("", "events", ("create",), "to say what is not honoured, and why gangs wait"),
    Right("", "namespaces", LOOK, "pods that must be near to others, or away from them"),
    Right("", "persistentvolumes", (*LOOK, "get", "patch"), "where volumes are, and to give free ones to claims"),
    Right("", "persistentvolumeclaims", (*LOOK, "get", "patch"), "to say for which node a volume is to be made"),
    Right("storage.k8s.io", "storageclasses", LOOK, "where volumes may be made"),
    Right("policy", "poddisruptionbudgets", ("list",), "which of a gang's pods may go"),
    Right("resource.k8s.io", "resourceslices", LOOK, "the devices of nodes"),
    Right("resource.k8s.io", "deviceclasses", LOOK, "what claims may ask for"),
    Right("resource.k8s.io", "resourceclaims", (*LOOK, "get", "patch"), "claims, and their finalizer"),
    Right("resource.k8s.io", "resourceclaims/status", ("patch",), "to give devices to claims"),
    Right("resource.k8s.io", "resourceclaims/binding", ("patch",), "the same, on servers that ask for it by itself"),
    Right("", "configmaps", ("get", "create", "update"), "who has each device of a node", at_home=True),
    Right("coordination.k8s.io", "leases", ("get", "create", "patch"), "who of several leads", at_home=True),
    Right("scheduling.k8s.io", "podgroups", LOOK, "gangs of Kubernetes' own API"),
    Right("scheduling.k8s.io", "podgroups/status", ("patch",), "to say why a gang waits"),
    Right("scheduling.x-k8s.io", "podgroups", LOOK, "gangs of scheduler-plugins"),
    Right("scheduling.volcano.sh", "podgroups", LOOK, "gangs of Volcano"),
    Right("scheduling.run.ai", "podgroups", LOOK, "gangs of KAI"),
    *(Right(group, resource, LOOK, "how many pods make a gang") for group, resource in OWNERS),
    Right("kueue.x-k8s.io", "topologies", LOOK, "where nodes stand"),
    Right("kai.scheduler", "topologies", LOOK, "where nodes stand"),
    Right("topology.volcano.sh", "hypernodes", LOOK, "where nodes stand"),
    Right("topology.node.k8s.io", "noderesourcetopologies", LOOK, "which GPUs of a node are on one socket"),
    Right("gantree.io", "gangjobs", (*LOOK, "delete"), "gantree's own jobs, which may ask to be deleted when they end"),
    Right("gantree.io", "gangjobs/status", ("patch",), "to say how a GangJob is"),
    Right("gantree.io", "gangjobs/finalizers", ("update",), "to own pods, where the server asks for it"),
    Right("resource.nvidia.com", "computedomains", ("create",), "NVLink across nodes for the pods of a GangJob"),
    Right("", "services", ("create",), "the names by which the pods of a GangJob find each other"),
)  # fmt: skip
