"""ComputeDomains of GangJobs: for a gang that is to use NVLink across nodes gantree makes one, and puts a claim for its
channel into the pods. Pods that users write bring such claims themselves (`channels`).

`computeDomain` of a GangJob says when: `Auto`, where the gang asks for the NVLink tier, this holds several nodes here
and its templates name no claims of their own, for one of them may be for a channel, of which a node has one;
`Required` in any case, or the GangJob waits and says why; `None` never. The ComputeDomain is owned by the GangJob, so
it goes with it. Its name has a part of the GangJob's uid: neither a user's own of the same name nor the one of an
earlier GangJob, which the driver may take a while to clear away, is taken for it.

It is made before the pods and not waited for: the control plane makes the claims when the driver has made the template.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gantree.executors.kubernetes.apiserver.client import JSON, Resource
from gantree.executors.kubernetes.apiserver.objects import Group
from gantree.executors.kubernetes.constraints.channels import (
    COMPUTE_DOMAIN,
    NVLINK,
    has_wide_nvlink,
)
from gantree.executors.kubernetes.nodes.site import SiteReading
from gantree.executors.kubernetes.pods.gang_spec import InvalidObject, Spec, table, tables, text
from gantree.executors.kubernetes.pods.link_check import NAME as LINK_CHECK
from gantree.executors.kubernetes.watch.api_thread import ApiThread
from gantree.executors.kubernetes.workloads.gangjob import service_of
from gantree.model.jobs import GPU_RESOURCES

Json = dict[str, Any]

AUTO, REQUIRED, NONE = "Auto", "Required", "None"
CLAIM = "gantree-channel"
"""What pods call their claim."""
OLD = "v1beta1"
"""The version that has numNodes, which later ones have not."""


class ComputeDomains:
    """Those of all GangJobs."""

    def __init__(self, api: ApiThread, site: Callable[[], SiteReading | None]) -> None:
        self._api, self._site = api, site

    def fitted(self, group: Group, pods: Mapping[str, Json]) -> dict[str, Json]:
        """The pods of a GangJob, those with GPUs with a channel if it gets a ComputeDomain.

        Raises InvalidObject.
        """
        word = text(group.spec, "computeDomain") or AUTO
        version = self._api.version_of(COMPUTE_DOMAIN)
        with_gpus = {name for name, pod in pods.items() if _has_gpus(pod)}
        if word == REQUIRED and version is None:
            raise InvalidObject(
                "computeDomain is Required, but the server has no ComputeDomain: install NVIDIA's DRA driver"
            )
        is_wanted = word == REQUIRED or (
            word == AUTO
            and version is not None
            and len(with_gpus) > 1
            and _asks_for_nvlink(group.spec, self._site())
            and not any(pod["spec"].get("resourceClaims") for pod in pods.values())
        )
        chosen = (with_gpus or set(pods)) if is_wanted else set()
        template = name_of(group)
        return {
            name: _with_channel(pod, template) if name in chosen else pod
            for name, pod in pods.items()
        }

    def make(self, group: Group, pods: Mapping[str, Json]) -> None:
        """Have the ComputeDomain made of which these pods have channels, if they have."""
        number = sum(map(_has_channel, pods.values()))
        version = self._api.version_of(COMPUTE_DOMAIN)
        if number and version is not None:
            made = Resource(COMPUTE_DOMAIN.path(version), Group)
            nodes = 0 if table(group.spec, "elastic") else number
            body = domain_of(group, version, nodes)
            self._api.request("POST", made.of_namespace(group.metadata.namespace), body, JSON)


def name_of(group: Group) -> str:
    """The name of a GangJob's ComputeDomain, and of its template of claims."""
    return f"{group.metadata.name}-{group.metadata.uid[:8]}"


def domain_of(group: Group, version: str, nodes: int) -> Json:
    """The ComputeDomain of a GangJob. nodes: on how many it will be, 0 where that varies.

    Drivers of today go by that number only to say when a domain is ready; older ones start no pod before so many came.
    """
    spec: Json = {"channel": {"resourceClaimTemplate": {"name": name_of(group)}}}
    if version == OLD:
        spec["numNodes"] = nodes
    of_service = service_of(group)["metadata"]
    return {
        "apiVersion": f"{COMPUTE_DOMAIN.group}/{version}",
        "kind": "ComputeDomain",
        "metadata": {**of_service, "name": name_of(group)},
        "spec": spec,
    }


def _asks_for_nvlink(spec: Spec, site: SiteReading | None) -> bool:
    """Whether a GangJob asks for NVLink domains, of a site where these hold several nodes. Raises InvalidObject."""
    if site is None or not has_wide_nvlink(site):
        return False
    return any(site.tier(word) == NVLINK for word in _asked_tiers(spec))


def _asked_tiers(spec: Spec) -> Iterator[str]:
    topologies = [
        table(spec, "topology"),
        *(table(role, "topology") for role in tables(spec, "gang")),
    ]
    for topology in (*topologies, table(topologies[0], "slices")):
        yield from filter(None, (text(topology, "required"), text(topology, "preferred")))


def _has_gpus(pod: Json) -> bool:
    """Whether a pod asks for GPUs, or for devices by claims, which may be some."""
    told = (each.get("resources") or {} for each in pod["spec"]["containers"])
    names = {
        name for each in told for kind in ("requests", "limits") for name in each.get(kind) or {}
    }
    return bool(names.intersection(GPU_RESOURCES) or pod["spec"].get("resourceClaims"))


def _with_channel(pod: Json, template: str) -> Json:
    """A pod with a claim for a channel, which all its containers use, and its check before the start."""
    spec = pod["spec"]
    wanted = {"name": CLAIM, "resourceClaimTemplateName": template}
    containers = [_using(each) for each in spec["containers"]]
    claims = [*(spec.get("resourceClaims") or ()), wanted]
    told = {**spec, "containers": containers, "resourceClaims": claims}
    if spec.get("initContainers"):
        told["initContainers"] = [
            _using(each) if each["name"] == LINK_CHECK else each for each in spec["initContainers"]
        ]
    return {**pod, "spec": told}


def _using(container: Json) -> Json:
    resources = container.get("resources") or {}
    claims = [*(resources.get("claims") or ()), {"name": CLAIM}]
    return {**container, "resources": {**resources, "claims": claims}}


def _has_channel(pod: Json) -> bool:
    return any(each.get("name") == CLAIM for each in pod["spec"].get("resourceClaims") or ())
