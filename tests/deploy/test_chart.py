"""The Helm chart, rendered by Helm's own code: what it makes is valid, is applied, and lets gantree do what it must."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer

from gantree.cli.kubernetes.commands import app
from gantree.executors.kubernetes.apiserver.rbac import RBAC_RULES, RBAC_TO_PARTITION
from gantree.executors.kubernetes.tools.release import BEFORE, SWITCH
from support.kubernetes.server.thread import Api, ServerThread
from support.manifests import DEPLOY, MANIFESTS, PLAIN, objects, rendered
from support.yaml_text import read_yaml_documents

helm = pytest.importorskip("helm_python", reason="Helm's library is for Linux on x86-64 alone")

VERSION = "1.36.0"
TLS = {"api": {"tlsSecret": "tls"}}
IN_DATABASE = {"replicas": 2, "journal": {"databaseSecret": {"name": "db", "key": "url"}}}
HOOK = {"webhook": {"enabled": True, "tlsSecret": "hook", "caBundle": "Q0E="}}
SITE = {
    "env": {"NCCL_SOCKET_IFNAME": "eth0,eth1", "NCCL_DEBUG": "WARN"},
    "rdmaResource": "rdma/hca=2",
}
VALUES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "tls": TLS,
    "database": IN_DATABASE | TLS,
    "monitored": TLS | {"podMonitor": {"enabled": True, "tokenSecret": "viewer"}},
    "a pool": {"schedulerName": "gantree-b", "nodeSelector": {"pool": "b"}, "levels": ["a/spine", "a/leaf"]},
    "dry run": {"dryRun": True},
    "node groups": {"nodeGroups": "groups: []"},
    "MIG": {"partitionNodes": {"selector": {"pool": "mig"}, "configs": "mig-configs: {}"}},
    "prices": {"prices": "gpus: {H100-80GB: {on_demand: 2, source: x, date: 2026-11-01}}"},
    "lemons": {"cordonLemons": True},
    "AMD partitions": {"partitionNodes": {"selector": {"pool": "amd"}, "profiles": '{"gpu-config-profiles": {}}'}},
    "repair": {"repair": {"hooks": "repairs: []", "scripts": {"reboot": "#!/bin/sh"}, "secret": "bmc"}},
    "namespaces": {"namespaces": {"enabled": True, "from": ["default-scheduler", "volcano"]}},
    "metrics": {"gpuMetrics": ["http://{node}:9400/metrics"]},
    "reports": {"api": {"tlsSecret": "tls", "reports": True}, "check": {"image": "check:1"}},
    "federation": TLS | {"federation": {"namespace": "jobs", "volumes": {"/mnt/ckpt": "checkpoints"}}},
    "links": {"nodeMetrics": ["http://{node}:9100/metrics"], "fabricPorts": ["file:///run/ports.json"],
              "linkLoad": ["http://prometheus:9090/federate?match[]=gantree_link_load"]},
    "reached": {"networkPolicy": {"allowFrom": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]}},
    "webhook": HOOK,
    "webhook by cert-manager": {"webhook": {"enabled": True, "certManager": {"enabled": True}, **SITE}},
    "all else": {
        "imagePullSecrets": [{"name": "pull"}],
        "journal": {"existingClaim": "mine"},
        "extraArgs": ["--log-level=info"],
        "tolerations": [{"operator": "Exists"}],
        "podNodeSelector": {"role": "infra"},
        "affinity": {"nodeAffinity": {}},
        "podAnnotations": {"a": "b"},
        "serviceAccount": {"annotations": {"c": "d"}},
    },
}  # fmt: skip
OF_OTHERS = ("monitoring.coreos.com/", "cert-manager.io/")
"""Kinds that Kubernetes itself does not have."""


def of_kind(
    kind: str, values: dict[str, Any] | None = None, name: str = "gantree"
) -> dict[str, Any]:
    (found,) = (
        each
        for each in objects(values)
        if each["kind"] == kind and each["metadata"]["name"] == name
    )
    return found


def container(values: dict[str, Any] | None = None, name: str = "gantree") -> dict[str, Any]:
    pod = of_kind("Deployment", values, name)["spec"]["template"]["spec"]
    told: dict[str, Any] = pod["containers"][0]
    return told


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_the_manifests_are_the_chart(path: Path) -> None:
    assert path.read_text() == MANIFESTS[path](), "write it anew: make manifests"


@pytest.mark.parametrize("name", VALUES)
def test_what_the_chart_makes_is_valid(name: str) -> None:
    for each in objects(VALUES[name]):
        if not each["apiVersion"].startswith(OF_OTHERS):
            kubernetes_validate.validate(each, VERSION, strict=True)


def test_the_validation_sees() -> None:
    """As all checks, it could be one that cannot fail."""
    deployment = of_kind("Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, VERSION, strict=True)


def test_the_monitor_is_shaped_as_its_operator_reads_it() -> None:
    endpoint = of_kind("PodMonitor", VALUES["monitored"])["spec"]["podMetricsEndpoints"][0]
    ports = [port["name"] for port in container(VALUES["monitored"])["ports"]]
    assert endpoint["port"] in ports
    assert endpoint["authorization"]["credentials"] == {"name": "viewer", "key": "token"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replicas": 2}, "several replicas need a journal in PostgreSQL"),
        (IN_DATABASE | {"dryRun": True}, "a dry run keeps its journal in a directory"),
        ({"podMonitor": {"enabled": True}}, "podMonitor needs api.tlsSecret"),
        ({"api": {"reports": True}}, "api.reports needs api.tlsSecret"),
        ({"check": {"image": "check:1"}}, "check.image needs api.reports"),
        ({"api": {"tlsSecret": "t", "reports": True}, "dryRun": True}, "of no use in a dry run"),
        ({"repair": {"hooks": "repairs: []"}, "dryRun": True}, "of no use in a dry run"),
        ({"repair": {"secret": "bmc"}}, "need repair.hooks"),
        ({"webhook": {"enabled": True}}, "the webhook needs a certificate"),
        ({"webhook": {"rdmaResource": "hca"}}, "rdmaResource"),
        ({"replica": 2}, "replica"),
        ({"api": {"port": 80}}, "port"),
        ({"schedulerName": "No Name"}, "schedulerName"),
    ],
)
def test_values_that_make_no_sense_are_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(helm.HelmError, match=said):
        objects(values)


def test_every_value_is_in_the_schema_and_every_default_is_valid() -> None:
    with helm.Chart.load(DEPLOY / "chart" / "gantree") as chart:
        chart.validate_schema({})
        assert set(chart.schema["properties"]) - {"global"} == set(chart.values)
        definitions = {Path(each["filename"]).name for each in chart.crds}
    assert definitions == {each.name for each in (DEPLOY / "kubernetes" / "crds").glob("*.yaml")}


def test_exporters_that_are_named_are_asked_and_may_be_reached() -> None:
    def ports(name: str) -> set[int]:
        rules = of_kind("NetworkPolicy", VALUES[name])["spec"]["egress"]
        return {port["port"] for rule in rules for port in rule["ports"]}

    assert "--gpu-metrics=http://{node}:9400/metrics" in container(VALUES["metrics"])["args"]
    assert ports("metrics") - ports("defaults") == {9400, 9100}
    assert ports("links") == ports("metrics")
    assert {
        "--node-metrics=http://{node}:9100/metrics",
        "--fabric-ports=file:///run/ports.json",
        "--link-load=http://prometheus:9090/federate?match[]=gantree_link_load",
    } <= set(container(VALUES["links"])["args"])


def test_pods_report_to_the_service_where_they_are_to() -> None:
    service = of_kind("Service", VALUES["reports"])
    (port,) = service["spec"]["ports"]
    url = f"https://{service['metadata']['name']}.{service['metadata']['namespace']}.svc:{port['port']}"
    assert {f"--report-url={url}", "--check-image=check:1"} <= set(
        container(VALUES["reports"])["args"]
    )
    assert not any("report" in each for each in container(TLS)["args"])


def test_a_cluster_of_a_federation_has_its_namespace_and_volumes() -> None:
    told = {"--federation-namespace=jobs", "--federation-volume=/mnt/ckpt=checkpoints"}
    assert told <= set(container(VALUES["federation"])["args"])
    assert not any("federation" in each for each in container()["args"])


def test_the_container_runs_without_root_on_a_file_system_that_it_cannot_write() -> None:
    pod = of_kind("Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    context = container()["securityContext"]
    assert (context["readOnlyRootFilesystem"], context["allowPrivilegeEscalation"]) == (True, False)
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert "USER 65532" in (DEPLOY / "Containerfile").read_text()


@pytest.mark.parametrize("name", VALUES)
def test_the_options_in_the_deployment_are_those_of_the_command(name: str) -> None:
    words = container(VALUES[name])["args"]
    group: Any = typer.main.get_command(app)
    assert words[:2] == ["kubernetes", "schedule"]
    group.load("schedule").make_context("schedule", list(words[2:]))


@pytest.mark.parametrize("name", ["webhook", "webhook by cert-manager"])
def test_the_webhook_has_an_account_without_rights_and_options_of_its_command(name: str) -> None:
    pod = of_kind("Deployment", VALUES[name], "gantree-webhook")["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pod
    words = container(VALUES[name], "gantree-webhook")["args"]
    assert words[:2] == ["kubernetes", "webhook"]
    group: Any = typer.main.get_command(app)
    told = group.load("webhook").make_context("webhook", list(words[2:])).params
    if name != "webhook":
        assert list(told["env"]) == ["NCCL_DEBUG=WARN", "NCCL_SOCKET_IFNAME=eth0,eth1"]
        assert told["rdma_resource"] == "rdma/hca=2"


@pytest.mark.parametrize("name", ["webhook", "webhook by cert-manager"])
def test_the_webhook_is_asked_about_gantrees_pods_and_holds_nobody_up(name: str) -> None:
    values = VALUES[name] | {"schedulerName": "gantree-b"}
    told = of_kind("MutatingWebhookConfiguration", values, "gantree-webhook")
    (webhook,) = told["webhooks"]
    assert (webhook["failurePolicy"], webhook["sideEffects"]) == ("Ignore", "None")
    (condition,) = webhook["matchConditions"]
    assert condition["expression"] == "object.spec.schedulerName == 'gantree-b'"
    service = of_kind("Service", values, "gantree-webhook")
    home = {"name": "gantree-webhook", "namespace": "gantree", "path": "/mutate"}
    assert webhook["clientConfig"]["service"] == home
    pods = of_kind("Deployment", values, "gantree-webhook")["spec"]["template"]["metadata"]
    assert service["spec"]["selector"].items() <= pods["labels"].items()
    of_scheduler = of_kind("Deployment", values)["spec"]["selector"]["matchLabels"]
    assert not of_scheduler.items() <= pods["labels"].items()
    if name != "webhook":
        made = of_kind("Certificate", values, "gantree-webhook")["spec"]
        assert made["dnsNames"][0] == "gantree-webhook.gantree.svc"
        assert "caBundle" not in webhook["clientConfig"]
        assert told["metadata"]["annotations"] == {
            "cert-manager.io/inject-ca-from": "gantree/gantree-webhook"
        }
    else:
        assert webhook["clientConfig"]["caBundle"] == "Q0E="


def test_node_groups_are_a_file_beside_the_policy() -> None:
    told = of_kind("ConfigMap", VALUES["node groups"], "gantree-policy")["data"]
    assert told["node-groups.yaml"] == "groups: []"
    assert "--node-groups=/etc/gantree/node-groups.yaml" in container(VALUES["node groups"])["args"]


def test_repair_hooks_their_scripts_and_their_secret_are_mounted() -> None:
    values = VALUES["repair"]
    assert of_kind("ConfigMap", values, "gantree-policy")["data"]["repair.yaml"] == "repairs: []"
    assert of_kind("ConfigMap", values, "gantree-repair")["data"] == {"reboot": "#!/bin/sh"}
    assert "--repair-hooks=/etc/gantree/repair.yaml" in container(values)["args"]
    pod = of_kind("Deployment", values)["spec"]["template"]["spec"]
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert volumes["repair"]["configMap"] == {"name": "gantree-repair", "defaultMode": 0o555}
    assert volumes["repair-secret"]["secret"] == {"secretName": "bmc", "defaultMode": 0o440}
    paths = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    assert paths["repair"] == "/etc/gantree-repair"
    assert paths["repair-secret"] == "/etc/gantree-repair-secret"
    assert {"port": 443} in of_kind("NetworkPolicy", values)["spec"]["egress"][-1]["ports"]
    assert of_kind("ClusterRole", values)["rules"] == of_kind("ClusterRole")["rules"]


def test_a_namespace_is_switched_by_the_schedulers_name() -> None:
    values = {"schedulerName": "gantree-b", **VALUES["namespaces"]}
    told = of_kind("MutatingAdmissionPolicyBinding", values, "gantree-namespaces")["spec"]
    selector = told["matchResources"]["namespaceSelector"]
    assert selector == {"matchLabels": {SWITCH: "gantree-b"}}
    policy = of_kind("MutatingAdmissionPolicy", values, "gantree-namespaces")
    assert (policy["metadata"]["name"], policy["spec"]["failurePolicy"]) == (
        told["policyName"],
        "Ignore",
    )
    conditions = [each["expression"] for each in policy["spec"]["matchConditions"]]
    assert conditions[0] == 'object.spec.schedulerName in ["default-scheduler","volcano"]'
    (mutation,) = policy["spec"]["mutations"]
    assert '"/spec/schedulerName", value: "gantree-b"' in mutation["jsonPatch"]["expression"]
    assert f'escapeKey("{BEFORE}")' in mutation["jsonPatch"]["expression"]


def rights_of(values: dict[str, Any], kind: str = "ClusterRole") -> set[tuple[str, str, str]]:
    """(verb, group, resource) of each right that a role gives."""
    return {
        (verb, group, resource)
        for rule in of_kind(kind, values)["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


@pytest.mark.parametrize(("kind", "at_home"), [("ClusterRole", False), ("Role", True)])
def test_the_roles_are_what_the_tests_run_gantree_with(kind: str, at_home: bool) -> None:
    rights = [rule for rule in RBAC_RULES if rule.own_namespace is at_home]
    told = {(verb, rule.group, rule.resource) for rule in rights for verb in rule.verbs}
    assert rights_of({}, kind) == told
    assert not any("*" in each for each in told)
    assert not any(resource.startswith("secrets") for _, _, resource in told)


def test_nodes_may_be_changed_only_where_their_gpus_may_be_partitioned() -> None:
    rule, there = RBAC_TO_PARTITION, of_kind("ConfigMap", VALUES["MIG"], "gantree-policy")["data"]
    told = {(verb, rule.group, rule.resource) for verb in rule.verbs}
    assert rights_of(VALUES["MIG"]) - rights_of({}) == told
    assert there["mig-configs.yaml"] == "mig-configs: {}"
    arguments = container(VALUES["MIG"])["args"]
    assert {"--partition-nodes=pool=mig", "--mig-configs=/etc/gantree/mig-configs.yaml"} <= set(
        arguments
    )
    assert not any("partition" in each for each in container()["args"])


def test_editors_and_viewers_of_a_namespace_are_so_of_gangjobs_and_gangservices() -> None:
    aggregate = "rbac.authorization.k8s.io/aggregate-to"
    edit, view = (of_kind("ClusterRole", name=f"gantree-{word}") for word in ("edit", "view"))
    labels = [set(each["metadata"]["labels"]) for each in (edit, view)]
    assert {f"{aggregate}-admin", f"{aggregate}-edit"} <= labels[0] & labels[1]
    assert (f"{aggregate}-view" in labels[0], f"{aggregate}-view" in labels[1]) == (False, True)
    verbs = [{verb for rule in each["rules"] for verb in rule["verbs"]} for each in (edit, view)]
    assert verbs[1] == {"get", "list", "watch"}
    assert not verbs[0] & verbs[1]
    resources = {what for rule in edit["rules"] for what in rule["resources"]}
    assert resources == {"gangjobs", "gangservices", "gangjobs/scale", "gangservices/scale"}


def test_in_a_dry_run_the_role_lets_nobody_write() -> None:
    looks = rights_of({"dryRun": True})
    assert {verb for verb, _, _ in looks} == {"get", "list", "watch"}
    assert looks < rights_of({})
    assert not any(each["kind"] == "Role" for each in objects({"dryRun": True}))


@pytest.fixture
def api() -> Iterator[Api]:
    with ServerThread() as running, Api(running.url) as api:
        yield api


def test_an_api_server_takes_the_manifest(api: Api) -> None:
    taken = set()
    for each in read_yaml_documents(PLAIN.read_text()):
        group, _, version = each["apiVersion"].rpartition("/")
        root = f"/apis/{group}/{version}" if group else "/api/v1"
        rows = api.get(root).json()["resources"]
        row = next(row for row in rows if row["kind"] == each["kind"])
        home = f"{root}/namespaces/{each['metadata']['namespace']}" if row["namespaced"] else root
        answer = api.post(f"{home}/{row['name']}", each)
        assert answer.status_code == 201, answer.text
        taken.add(each["kind"])
    assert {"Deployment", "ClusterRole", "NetworkPolicy", "PersistentVolumeClaim"} <= taken


def test_no_template_is_left_empty() -> None:
    told = rendered(VALUES["database"] | HOOK | VALUES["namespaces"])
    assert {name for name, text in told.items() if not text.strip()} == set()
