"""The resources that a server has without any definition, with the rules and the selectable fields of each."""

from support.kubernetes.rules import admission
from support.kubernetes.rules.budgets import BudgetRules
from support.kubernetes.rules.claims import ClaimRules, ClassRules, SliceRules, TemplateRules
from support.kubernetes.rules.definitions import DefinitionRules
from support.kubernetes.rules.groups import GroupRules, WorkloadRules
from support.kubernetes.rules.namespaces import NamespaceRules
from support.kubernetes.rules.nodes import NodeRules
from support.kubernetes.rules.pods import PodRules
from support.kubernetes.rules.resources import Resource
from support.kubernetes.rules.volumes import VolumeClaimRules, VolumeRules

POD_FIELDS = (
    "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
    "status.phase", "status.podIP", "status.nominatedNodeName",
)  # fmt: skip
EVENT_FIELDS = (
    "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid", "reason", "type",
    "reportingComponent", "source",
)  # fmt: skip
STATUS = ("status",)


def builtin(gang_api: str | None) -> list[Resource]:
    """All of them. gang_api is the version of Workload and PodGroup; None: they are not served."""
    return [*_core(), *_installed(), *_others(), *_dynamic_resources(), *_gangs(gang_api)]


def _core() -> list[Resource]:
    return [
        Resource(
            "", "v1", "pods", "Pod", subresources=("binding", "eviction", "resize", "status"),
            fields=POD_FIELDS,
            short_names=("po",), has_generation=True, rules=PodRules(),
        ),
        Resource(
            "", "v1", "nodes", "Node", namespaced=False, subresources=STATUS,
            fields=("spec.unschedulable",), short_names=("no",), rules=NodeRules(),
        ),
        Resource(
            "", "v1", "namespaces", "Namespace", namespaced=False,
            subresources=("finalize", "status"), fields=("status.phase",), short_names=("ns",),
            rules=NamespaceRules(),
        ),
        Resource("", "v1", "services", "Service", subresources=STATUS, fields=("spec.clusterIP", "spec.type")),
        Resource("", "v1", "configmaps", "ConfigMap", short_names=("cm",)),
        Resource("", "v1", "events", "Event", fields=EVENT_FIELDS, short_names=("ev",)),
        Resource(
            "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", subresources=STATUS, short_names=("pvc",),
            rules=VolumeClaimRules(),
        ),
        Resource(
            "", "v1", "persistentvolumes", "PersistentVolume", namespaced=False, subresources=STATUS,
            short_names=("pv",), rules=VolumeRules(),
        ),
        Resource("", "v1", "podtemplates", "PodTemplate"),
        Resource("", "v1", "secrets", "Secret", fields=("type",)),
        Resource("", "v1", "serviceaccounts", "ServiceAccount", short_names=("sa",)),
    ]  # fmt: skip


def _installed() -> list[Resource]:
    """What manifests of a program are made of; nobody acts on these here."""
    rbac = "rbac.authorization.k8s.io"
    return [
        Resource("apps", "v1", "deployments", "Deployment", subresources=STATUS, has_generation=True),
        Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", has_generation=True),
        Resource(rbac, "v1", "clusterroles", "ClusterRole", namespaced=False),
        Resource(rbac, "v1", "roles", "Role"),
        Resource(rbac, "v1", "rolebindings", "RoleBinding"),
        Resource(rbac, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
        Resource(
            admission.GROUP, "v1", admission.PLURAL, admission.KIND, namespaced=False, has_generation=True,
        ),
    ]  # fmt: skip


def _others() -> list[Resource]:
    return [
        Resource("coordination.k8s.io", "v1", "leases", "Lease", needs_version=True),
        Resource(
            "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", subresources=STATUS,
            short_names=("pdb",), has_generation=True, needs_version=True, rules=BudgetRules(),
        ),
        Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False, short_names=("sc",)),
        Resource(
            "batch", "v1", "jobs", "Job", subresources=STATUS, fields=("status.successful",), has_generation=True,
        ),
        Resource(
            "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False,
            subresources=STATUS, short_names=("crd",), has_generation=True, needs_version=True,
            rules=DefinitionRules(),
        ),
        Resource(
            "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False,
            short_names=("pc",), has_generation=True,
        ),
    ]  # fmt: skip


def _dynamic_resources() -> list[Resource]:
    group = "resource.k8s.io"
    return [
        Resource(
            group, "v1", "deviceclasses", "DeviceClass", namespaced=False, has_generation=True, rules=ClassRules(),
        ),
        Resource(group, "v1", "resourceclaims", "ResourceClaim", subresources=STATUS, rules=ClaimRules()),
        Resource(group, "v1", "resourceclaimtemplates", "ResourceClaimTemplate", rules=TemplateRules()),
        Resource(
            group, "v1", "resourceslices", "ResourceSlice", namespaced=False,
            fields=("spec.nodeName", "spec.driver"), has_generation=True, rules=SliceRules(),
        ),
    ]  # fmt: skip


def _gangs(version: str | None) -> list[Resource]:
    if version is None:
        return []
    group = "scheduling.k8s.io"
    rules = GroupRules("podgroups", "PodGroup", version)
    served = [
        Resource(group, version, "workloads", "Workload", has_generation=True, rules=WorkloadRules(version)),
        Resource(
            group, version, "podgroups", "PodGroup", subresources=STATUS, has_generation=True, rules=rules
        ),
    ]  # fmt: skip
    if version == "v1alpha3":
        rules = GroupRules("compositepodgroups", "CompositePodGroup", version)
        served.append(
            Resource(
                group, version, "compositepodgroups", "CompositePodGroup", subresources=STATUS,
                has_generation=True, rules=rules,
            )
        )  # fmt: skip
    return served
