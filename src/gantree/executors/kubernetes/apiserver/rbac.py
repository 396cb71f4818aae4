"""RBAC rules that gantree needs, with reasons: the rows of its roles, and what preflight checks.

Tests hold the roles that are installed equal to this, and run gantree with no more than it.
"""

from dataclasses import dataclass

READ = ("list", "watch")


@dataclass(frozen=True, slots=True)
class RbacRule:
    """Verbs on one resource of an API group, "" for the core; a subresource stands behind a slash.

    at_home: in the namespace that gantree runs in, and in no other.
    """

    group: str
    resource: str
    verbs: tuple[str, ...]
    why: str
    own_namespace: bool = False


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

RBAC_RULES = (
    RbacRule("", "nodes", READ, "the site"),
    RbacRule(
        "",
        "pods",
        (*READ, "get", "delete", "patch", "create"),
        "who waits and what runs; to look up a binding whose answer was lost; to stop gangs; to ask for a checkpoint;"
        " to make the pods of GangJobs",
    ),
    RbacRule("", "pods/binding", ("create",), "to start gangs"),
    RbacRule("", "pods/eviction", ("create",), "to preempt gangs, within PodDisruptionBudgets"),
    RbacRule("", "pods/status", ("patch",), "to say why a pod waits, and where room is freed for it"),
    RbacRule("", "events", ("create",), "to say what is not honoured, and why gangs wait"),
    RbacRule("", "namespaces", READ, "pods that must be near to others, or away from them"),
    RbacRule("", "persistentvolumes", (*READ, "get", "patch"), "where volumes are, and to give free ones to claims"),
    RbacRule("", "persistentvolumeclaims", (*READ, "get", "patch"), "to say for which node a volume is to be made"),
    RbacRule("storage.k8s.io", "storageclasses", READ, "where volumes may be made"),
    RbacRule("policy", "poddisruptionbudgets", ("list",), "which of a gang's pods may go"),
    RbacRule("resource.k8s.io", "resourceslices", READ, "the devices of nodes"),
    RbacRule("resource.k8s.io", "deviceclasses", READ, "what claims may ask for"),
    RbacRule(
        "resource.k8s.io",
        "resourceclaims",
        (*READ, "get", "patch", "create"),
        "claims, and their finalizer; to make those for extended resources",
    ),
    RbacRule("resource.k8s.io", "resourceclaims/status", ("patch",), "to give devices to claims"),
    RbacRule("resource.k8s.io", "resourceclaims/binding", ("patch",), "the same, on servers that ask for it by itself"),
    RbacRule("", "configmaps", ("get", "create", "update"), "who has each device of a node", own_namespace=True),
    RbacRule("coordination.k8s.io", "leases", ("get", "create", "patch"), "who of several leads", own_namespace=True),
    RbacRule("scheduling.k8s.io", "podgroups", READ, "gangs of Kubernetes' own API"),
    RbacRule("scheduling.k8s.io", "compositepodgroups", READ, "gangs of several pod groups"),
    RbacRule("scheduling.k8s.io", "podgroups/status", ("patch",), "to say why a gang waits"),
    RbacRule("scheduling.x-k8s.io", "podgroups", READ, "gangs of scheduler-plugins"),
    RbacRule("scheduling.volcano.sh", "podgroups", READ, "gangs of Volcano"),
    RbacRule("scheduling.run.ai", "podgroups", READ, "gangs of KAI"),
    RbacRule("scheduler.grove.io", "podgangs", READ, "gangs of Grove"),
    *(RbacRule(group, resource, READ, "how many pods make a gang") for group, resource in OWNERS),
    RbacRule("kueue.x-k8s.io", "topologies", READ, "where nodes stand"),
    RbacRule("kai.scheduler", "topologies", READ, "where nodes stand"),
    RbacRule("topology.volcano.sh", "hypernodes", READ, "where nodes stand"),
    RbacRule("topology.node.k8s.io", "noderesourcetopologies", READ, "which GPUs of a node are on one socket"),
    RbacRule(
        "gantree.io",
        "gangjobs",
        (*READ, "create", "patch", "delete"),
        "gantree's own jobs; to make the replicas of GangServices, to say that one drains, and to delete those that are"
        " done",
    ),
    RbacRule("gantree.io", "gangjobs/status", ("patch",), "to say how a GangJob is"),
    RbacRule("gantree.io", "gangjobs/finalizers", ("update",), "to own pods, where the server asks for it"),
    RbacRule(
        "gantree.io",
        "gangservices",
        (*READ, "create", "patch", "delete"),
        "gantree's own services; to make, update and delete those of a federation",
    ),
    RbacRule("gantree.io", "gangservices/status", ("patch",), "to say how a GangService is"),
    RbacRule("gantree.io", "gangservices/scale", ("patch",), "to scale those that have targets"),
    RbacRule("gantree.io", "gangservices/finalizers", ("update",), "to own GangJobs, where the server asks for it"),
    RbacRule("resource.nvidia.com", "computedomains", ("create",), "NVLink across nodes for the pods of a GangJob"),
    RbacRule(
        "autoscaling.x-k8s.io", "provisioningrequests", (*READ, "create", "delete"),
        "to ask an autoscaler for the nodes of a whole gang",
    ),
    RbacRule("", "podtemplates", ("create", "delete"), "what the pods of such a gang are like"),
    RbacRule(
        "", "services", ("create", "get"),
        "the names of the pods of a GangJob, and that of a GangService; to see whose one is that has the name",
    ),
)  # fmt: skip
RBAC_TO_PARTITION = RbacRule("", "nodes", ("patch",), "to have nodes given another MIG config")
"""Needed with `--partition-nodes` alone."""
