"""The role is least: gantree runs in all tests with no more than it (`PodStage`), and uses all of it here."""

from pathlib import Path

import pytest

from gantree.executors.kubernetes.apiserver.rbac import RBAC_RULES
from gantree.executors.kubernetes.nodes.topologies import TOPOLOGY_KINDS
from gantree.executors.kubernetes.workloads.gang_labels import GROUP_KINDS
from gantree.executors.kubernetes.workloads.serving import GANGSERVICE
from gantree.executors.kubernetes.writes import pod_status as telling
from support.kubernetes.server.statuses import Json
from support.pods import GANTREE, PodStage

SERVED = ("scheduling.k8s.io", "batch")
"""Groups that the server has by itself."""
WATCHED = (*GROUP_KINDS, *TOPOLOGY_KINDS, GANGSERVICE)
UNUSED = {
    ("list", "scheduling.k8s.io", "compositepodgroups"): "from 1.37 on: test_composite_groups",
    ("watch", "scheduling.k8s.io", "compositepodgroups"): "from 1.37 on: test_composite_groups",
    ("patch", "", "pods"): "a checkpoint is asked for: test_leaving",
    ("create", "", "pods"): "the pods of a GangJob: test_gangjobs",
    ("create", "", "services"): "the service of a GangJob: test_gangjobs",
    ("get", "", "services"): "a service of its name that is another's: test_gangjobs",
    (
        "create",
        "resource.nvidia.com",
        "computedomains",
    ): "the ComputeDomain of a GangJob: test_compute_domains",
    (
        "delete",
        "gantree.io",
        "gangjobs",
    ): "a GangJob that is to be deleted when it ends: test_gangjobs",
    ("create", "gantree.io", "gangjobs"): "a replica of a GangService: test_gangservices",
    ("patch", "gantree.io", "gangjobs"): "a replica that drains: test_gangservices",
    ("patch", "gantree.io", "gangjobs/status"): "how a GangJob is: test_gangjobs",
    **dict.fromkeys(
        ((verb, "gantree.io", "gangservices") for verb in ("create", "patch", "delete")),
        "a service of a federation: test_federated_objects",
    ),
    ("patch", "gantree.io", "gangservices/status"): "how a GangService is: test_gangservices",
    ("patch", "gantree.io", "gangservices/scale"): "one that has targets: test_routed_gangservices",
    (
        "update",
        "gantree.io",
        "gangjobs/finalizers",
    ): "asked for by an admission plugin that the server here has not",
    (
        "update",
        "gantree.io",
        "gangservices/finalizers",
    ): "asked for by an admission plugin that the server here has not",
    ("create", "", "pods/eviction"): "a gang leaves for another: test_leaving",
    ("list", "policy", "poddisruptionbudgets"): "a gang leaves for another: test_leaving",
    ("get", "", "persistentvolumeclaims"): "a volume is made: test_volumes",
    ("patch", "", "persistentvolumeclaims"): "a volume is made: test_volumes",
    ("get", "", "persistentvolumes"): "a free volume is given: test_static_volumes",
    ("patch", "", "persistentvolumes"): "a free volume is given: test_static_volumes",
    ("get", "resource.k8s.io", "resourceclaims"): "devices are given: test_claims_on_a_server",
    (
        "create",
        "resource.k8s.io",
        "resourceclaims",
    ): "devices are given: test_extended_resources_by_claims",
    ("patch", "resource.k8s.io", "resourceclaims"): "devices are given: test_claims_on_a_server",
    (
        "patch",
        "resource.k8s.io",
        "resourceclaims/status",
    ): "devices are given: test_claims_on_a_server",
    (
        "patch",
        "resource.k8s.io",
        "resourceclaims/binding",
    ): "asked for by servers newer than the one here",
    ("get", "", "configmaps"): "devices are given: test_claims_on_a_server",
    ("create", "", "configmaps"): "devices are given: test_claims_on_a_server",
    ("update", "", "configmaps"): "devices are given: test_claims_on_a_server",
    **{
        (verb, group, kind): "nodes of a whole gang are asked for: test_provisioning"
        for group, kind in (("autoscaling.x-k8s.io", "provisioningrequests"), ("", "podtemplates"))
        for verb in ("list", "watch", "create", "delete")
        if kind != "podtemplates" or verb in ("create", "delete")
    },
    ("get", "coordination.k8s.io", "leases"): "one of several leads: test_lease",
    ("create", "coordination.k8s.io", "leases"): "one of several leads: test_lease",
    ("patch", "coordination.k8s.io", "leases"): "one of several leads: test_lease",
}
"""Rights that this life of a gang does not use, each with what does, or why gantree has it."""


def define_groups(stage: PodStage) -> None:
    """What others define that gantree watches, as far as it is needed to be watched."""
    for kind in (kind for kind in WATCHED if kind.group not in SERVED):
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {
            "name": kind.versions[0],
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": schema},
        }
        spec: Json = {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {"kind": kind.plural.title(), "plural": kind.plural},
            "versions": [version],
        }
        body: Json = {"metadata": {"name": f"{kind.plural}.{kind.group}"}, "spec": spec}
        stage.api.define(body)


def live(stage: PodStage) -> None:
    """A gang waits, is told why, is bound by a write whose answer is lost, and is stopped because a pod of it fails."""
    stage.nodes("n0")
    stage.start()
    url = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    assert stage.api.post(url, {"metadata": {"name": "g"}, "spec": spec}).status_code == 201
    for number in range(2):
        stage.pod(f"g-{number}", gpus=8, spec={"schedulingGroup": {"podGroupName": "g"}})
    stage.until(lambda: "conditions" in stage.api.get(f"{url}/g").json().get("status", {}))
    stage.running.call(
        lambda: stage.running.server.faults.add(
            verb="create", resource="pods/binding", is_lost=True, times=1
        )
    )
    stage.nodes("n1")
    stage.until(lambda: stage.phase("g-0") == stage.phase("g-1") == "Running")
    stage.exit("g-0", 1)
    stage.until(lambda: stage.phase("g-1") == "")


@pytest.mark.faults
def test_every_right_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telling, "EVERY_S", 0.2)
    with PodStage(tmp_path) as stage:
        define_groups(stage)
        live(stage)
        asked = stage.running.server.asked
        used = {(verb, group, resource) for who, verb, group, resource in asked if who == GANTREE}
    granted = {(verb, rule.group, rule.resource) for rule in RBAC_RULES for verb in rule.verbs}
    assert granted - used == UNUSED.keys()
    assert used <= granted
    assert all(rule.why for rule in RBAC_RULES)
