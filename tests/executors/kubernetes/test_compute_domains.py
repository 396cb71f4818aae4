"""NVLink across nodes: pods get channels of their ComputeDomain, in one NVLink domain, and their daemons can come."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gantree.core.ledger.ledger import Ledger
from gantree.core.view import LedgerView
from gantree.executors.kubernetes.apiserver.device_objects import (
    ClaimSpec,
    DevicesAsked,
    ResourceClaim,
)
from gantree.executors.kubernetes.apiserver.objects import (
    Claimed,
    Group,
    Metadata,
    Node,
    NodeStatus,
    Pod,
)
from gantree.executors.kubernetes.constraints.channels import (
    CHANNEL_CONFIG,
    domains_in,
    together,
)
from gantree.executors.kubernetes.controllers.compute_domains import domain_of
from gantree.executors.kubernetes.controllers.nodes import Nodes
from gantree.executors.kubernetes.nodes.site import SiteReading, site_of
from gantree.executors.kubernetes.pods.gang_spec import GangSpec
from gantree.executors.kubernetes.pods.shapes import OF_COMPUTE_DOMAINS
from gantree.executors.kubernetes.workloads.gangs import gang_of, job_of
from gantree.model.events import ClusterObserved
from gantree.model.phases import Phase
from support.kubernetes.controllers.compute_domains import DRIVER, LABEL
from support.kubernetes.server.statuses import Json
from support.racks import RackStage
from support.yaml_text import read_yaml

DEPLOY = Path(__file__).parents[3] / "deploy/kubernetes"
GANGJOBS = "/apis/gantree.io/v1alpha1/namespaces/default/gangjobs"
GANG = {"annotations": {"gantree.io/gang-size": "2"}, "labels": {"gantree.io/gang": "g"}}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[RackStage]:
    """Two racks of two trays, and a ComputeDomain."""
    with RackStage(tmp_path) as stage:
        stage.rack("a", trays=2)
        stage.rack("b", trays=2)
        yield stage


def phases(stage: RackStage) -> list[Phase]:
    return [state.phase for state in stage.controller.ledger.jobs.values()]


def events(stage: RackStage) -> list[str]:
    return [each["reason"] for each in stage.api.get("/api/v1/events").json()["items"]]


def test_a_gang_runs_with_a_channel_on_each_node_of_one_nvlink_domain(stage: RackStage) -> None:
    """Only by the label that comes with a bound pod does the daemon come for which that pod's start waits."""
    domain = stage.compute_domain("cd", "channel")
    stage.start()
    for name in ("a0", "b1"):
        stage.pod(f"on-{name}", gpus=1, spec={"nodeSelector": {"kubernetes.io/hostname": name}})
    stage.until(lambda: stage.bound("on-a0", "on-b1"))
    for name in ("g-0", "g-1"):
        stage.claimant(name, "channel", gpus=4, **GANG)
    stage.until(lambda: Phase.PENDING in phases(stage))
    stage.work_for(0.5)
    assert not stage.bound("g-0")  # a tray of each rack is free
    stage.exit("on-a0")
    stage.until(lambda: stage.phase("g-0") == stage.phase("g-1") == "Running")
    assert {stage.node_of("g-0"), stage.node_of("g-1")} == {"a0", "a1"}
    for name in ("g-0", "g-1"):
        assert stage.devices_of(name) == [(DRIVER, stage.node_of(name), "channel-0")]
        assert stage.domain_of(stage.node_of(name)) == domain
    assert "SharedDevicePool" not in events(stage)
    for name in ("g-0", "g-1"):
        stage.exit(name)
    stage.until(lambda: stage.domain_of("a0") is stage.domain_of("a1") is None)


def test_a_node_has_one_channel_so_one_pod_of_a_compute_domain_at_a_time(stage: RackStage) -> None:
    """Small pods that could share a node are on two; another domain gets a node when the first has left it."""
    stage.compute_domain("one", "channel-one")
    other = stage.compute_domain("other", "channel-other")
    stage.start()
    for number in range(2):
        stage.claimant(f"one-{number}", "channel-one", gpus=1)
    stage.until(lambda: stage.phase("one-0") == stage.phase("one-1") == "Running")
    for number in range(3):
        stage.claimant(f"other-{number}", "channel-other", gpus=1)
    others = [f"other-{number}" for number in range(3)]
    stage.until(lambda: sum(stage.phase(name) == "Running" for name in others) == 2)
    (late,) = (name for name in others if not stage.bound(name))
    left = stage.node_of("one-0")
    stage.exit("one-0")
    stage.until(lambda: stage.phase(late) == "Running")
    assert (stage.node_of(late), stage.domain_of(left)) == (left, other)
    assert len(stage.held()) == len(set(stage.held()))


def test_a_gang_that_says_what_it_wants_of_the_topology_gets_that(stage: RackStage) -> None:
    stage.compute_domain("cd", "channel")
    stage.start()
    asks = {**GANG["annotations"], "gantree.io/preferred-topology": "nvlink"}
    for name in ("a0", "b0"):
        stage.pod(f"on-{name}", gpus=4, spec={"nodeSelector": {"kubernetes.io/hostname": name}})
    stage.until(lambda: stage.bound("on-a0", "on-b0"))
    for name in ("g-0", "g-1"):
        stage.claimant(name, "channel", gpus=4, labels=GANG["labels"], annotations=asks)
    stage.until(lambda: stage.phase("g-0") == stage.phase("g-1") == "Running")
    assert {stage.node_of("g-0"), stage.node_of("g-1")} == {"a1", "b1"}


def test_the_example_of_a_rack_runs_in_one(stage: RackStage) -> None:
    text = (DEPLOY.parents[1] / "examples/kubernetes/nvlink-rack.yaml").read_text(encoding="utf-8")
    stage.start()
    stage.apply(text)
    stage.until(lambda: stage.phase("rack-0") == stage.phase("rack-1") == "Running")
    assert sorted((stage.node_of("rack-0"), stage.node_of("rack-1"))) in (
        ["a0", "a1"],
        ["b0", "b1"],
    )
    domain = stage.compute_domains()["rack"]["metadata"]["uid"]
    assert stage.domain_of(stage.node_of("rack-0")) == domain


def claimed(name: str, role: str, *domains: str) -> Pod:
    meta = Metadata(name=name, namespace="d", uid=name, labels={"gantree.io/role": role})
    return Pod(meta, claimed=Claimed(domains=domains))


def site(*cliques: str) -> SiteReading:
    labels = [{} if not clique else {"nvidia.com/gpu.clique": clique} for clique in cliques]
    nodes = [Node(Metadata(name=f"n{n}", labels=told)) for n, told in enumerate(labels)]
    return site_of("k", nodes)


RACKS = ("a.0", "a.0", "b.0")


@pytest.mark.parametrize(
    ("domains_of_role", "cliques", "expected"),
    [
        ({"worker": ("u",)}, RACKS, ("nvlink", {"worker": None})),
        ({"worker": ("u",)}, ("", "", ""), (None, {"worker": None})),
        ({"worker": ("u",)}, ("a.0", "b.0", "c.0"), (None, {"worker": None})),
        ({"worker": ()}, RACKS, (None, {"worker": None})),
        ({"a": ("u",), "b": ("u",)}, RACKS, ("nvlink", {"a": None, "b": None})),
        ({"a": ("u",), "b": ("v",)}, RACKS, (None, {"a": "nvlink", "b": "nvlink"})),
        ({"launcher": (), "worker": ("u",)}, RACKS, (None, {"launcher": None, "worker": "nvlink"})),
        ({"a": ("u",), "b": ("u",), "c": ()}, RACKS, ("nvlink", {"a": None, "b": None, "c": None})),
    ],
)
def test_what_has_channels_of_one_compute_domain_is_kept_together(
    domains_of_role: dict[str, tuple[str, ...]],
    cliques: tuple[str, ...],
    expected: tuple[str | None, dict[str, str | None]],
) -> None:
    pods = [
        claimed(f"{role}-{n}", role, *domains)
        for role, domains in domains_of_role.items()
        for n in range(2)
    ]
    gang = gang_of(("d", "g", "word"), GangSpec(members=len(pods)), pods)
    there = site(*cliques)
    job = together(job_of(gang, there.tier)[0], gang, there)
    of_roles = {role.name: role.topology.required for role in job.roles}
    assert (job.topology.required, of_roles) == expected


def test_a_pod_alone_has_nobody_to_be_kept_with() -> None:
    pod, there = claimed("p", "worker", "u"), site(*RACKS)
    gang = gang_of(("d", "p", "word"), GangSpec(members=1), [pod])
    job = job_of(gang, there.tier)[0]
    assert together(job, gang, there) == job


def test_a_label_that_comes_with_every_gang_makes_no_other_site() -> None:
    nodes = Nodes("k", ())
    before = Node(Metadata(name="n0", labels={"a": "b"}), status=NodeStatus({"cpu": "8"}))
    marked = dict.fromkeys(OF_COMPUTE_DOMAINS, "u") | {"a": "b"}
    nodes.update_node("n0", before, 0.0)
    nodes.build(LedgerView(Ledger()), 0.0)
    after = msgspec.structs.replace(before, metadata=Metadata(name="n0", labels=marked))
    nodes.update_node("n0", after, 0.0)
    assert [
        each
        for each in nodes.events(LedgerView(Ledger()), 9.0, 1)
        if isinstance(each, ClusterObserved)
    ] == []
    other = msgspec.structs.replace(before, metadata=Metadata(name="n0", labels={"a": "c"}))
    nodes.update_node("n0", other, 0.0)
    assert [type(each) for each in nodes.events(LedgerView(Ledger()), 9.0, 1)] == [ClusterObserved]


def test_a_configuration_that_is_none_of_the_drivers_names_no_domain() -> None:
    odd: list[dict[str, Any]] = [
        {},
        {"opaque": None},
        {"opaque": {"driver": DRIVER, "parameters": ["ComputeDomainChannelConfig"]}},
        {"opaque": {"parameters": {"kind": CHANNEL_CONFIG, "domainID": 5}}},
        {"opaque": {"parameters": {"kind": "GpuConfig", "domainID": "u"}}},
    ]
    sound = {"opaque": {"parameters": {"kind": CHANNEL_CONFIG, "domainID": "u"}}}
    told = ClaimSpec(DevicesAsked(config=(*odd, sound, sound)))
    assert domains_in([ResourceClaim(Metadata(), told)]) == ("u",)


def gangjob(stage: RackStage, name: str, claims: tuple[str, ...] = (), **spec: Any) -> None:
    """A GangJob of two trays and a launcher without GPUs. claims: templates that the workers name themselves."""
    pod = {"spec": {"containers": [{"name": "main", "image": "i"}]}}
    own = [{"name": f"c{n}", "resourceClaimTemplateName": each} for n, each in enumerate(claims)]
    with_claims = {"spec": {**pod["spec"], **({"resourceClaims": own} if own else {})}}
    worker = {"role": "worker", "members": 2, "each": {"gpus": 4}, "template": with_claims}
    launcher = {"role": "launcher", "members": 1, "each": {"cpus": 1}, "template": pod}
    body = {
        "apiVersion": "gantree.io/v1alpha1",
        "kind": "GangJob",
        "metadata": {"name": name},
        "spec": {"gang": [worker, launcher], **spec},
    }
    answer = stage.api.post(GANGJOBS, body)
    assert answer.status_code == 201, answer.text


def status(stage: RackStage, name: str) -> Json:
    found: Json = stage.api.get(f"{GANGJOBS}/{name}").json().get("status", {})
    return found


def define_gangjobs(stage: RackStage) -> None:
    body = read_yaml((DEPLOY / "crds/gangjobs.yaml").read_text())
    stage.api.define(body)


def test_a_gangjob_that_asks_for_nvlink_gets_a_compute_domain_and_takes_it_with_it(
    stage: RackStage,
) -> None:
    define_gangjobs(stage)
    stage.start()
    gangjob(stage, "llama", topology={"required": "nvlink"})
    stage.until(lambda: status(stage, "llama").get("phase") == "Running")
    workers = ("llama-worker-0", "llama-worker-1")
    assert len({stage.node_of(name)[0] for name in workers}) == 1
    ((name, made),) = stage.compute_domains().items()
    assert name.startswith("llama-")
    assert made["spec"]["numNodes"] == 2
    assert [each["kind"] for each in made["metadata"]["ownerReferences"]] == ["GangJob"]
    for worker in workers:
        assert stage.devices_of(worker) == [(DRIVER, stage.node_of(worker), "channel-0")]
        (container,) = stage.pods()[worker]["spec"]["containers"]
        assert [each["name"] for each in container["resources"]["claims"]] == ["gantree-channel"]
        assert stage.domain_of(stage.node_of(worker)) == made["metadata"]["uid"]
    assert stage.devices_of("llama-launcher-0") == []
    stage.api.delete(f"{GANGJOBS}/llama")
    stage.until(lambda: stage.compute_domains() == {} and stage.held() == [])


def test_a_gangjob_that_starts_again_has_its_channels_again(stage: RackStage) -> None:
    define_gangjobs(stage)
    stage.start()
    for name in ("b0", "b1"):
        stage.pod(f"on-{name}", gpus=4, spec={"nodeSelector": {"kubernetes.io/hostname": name}})
    stage.until(lambda: stage.bound("on-b0", "on-b1"))
    again = {"limit": 1, "backoffSeconds": 0.1, "backoffMaxSeconds": 0.1}
    gangjob(stage, "llama", topology={"required": "nvlink"}, restarts=again)
    stage.until(lambda: status(stage, "llama").get("phase") == "Running")
    before = claims_of_workers(stage)
    stage.exit("llama-worker-0", 7)
    stage.until(lambda: status(stage, "llama").get("attempt") == 2)
    stage.until(lambda: status(stage, "llama").get("phase") == "Running")
    assert len(stage.compute_domains()) == 1
    for worker in ("llama-worker-0", "llama-worker-1"):
        assert stage.devices_of(worker) == [(DRIVER, stage.node_of(worker), "channel-0")]
    stage.until(lambda: len(claims_of_workers(stage)) == 2)
    assert not before & claims_of_workers(stage)


def claims_of_workers(stage: RackStage) -> set[str]:
    return {name for name in stage.claims() if name.startswith("llama-worker-")}


def test_gangjobs_that_ask_for_none_get_none(stage: RackStage) -> None:
    define_gangjobs(stage)
    stage.start()
    gangjob(stage, "never", topology={"required": "nvlink"}, computeDomain="None")
    gangjob(stage, "near", topology={"preferred": "node"})
    gangjob(stage, "plain")
    stage.until(lambda: len(stage.pods()) == 9)
    assert (stage.compute_domains(), stage.claims()) == ({}, {})
    assert not any("resourceClaims" in pod["spec"] for pod in stage.pods().values())


class NewerStage(RackStage):
    """A driver of a later version."""

    version = "v1beta2"


class AloneStage(RackStage):
    """No scheduler but gantree."""

    has_other = False


class BareStage(RackStage):
    """Racks without the driver."""

    version = ""


def test_a_later_version_is_not_told_a_number_of_nodes(tmp_path: Path) -> None:
    with NewerStage(tmp_path) as stage:
        stage.rack("a", trays=2)
        define_gangjobs(stage)
        stage.start()
        gangjob(stage, "llama", computeDomain="Required")
        stage.until(lambda: status(stage, "llama").get("phase") == "Running")
        assert len(stage.compute_domains()) == 1
    group = Group(Metadata(name="llama", namespace="default", uid="0123456789"))
    asked = {version: domain_of(group, version, 2) for version in ("v1beta1", "v1beta2")}
    assert [list(each["spec"]) for each in asked.values()] == [["channel", "numNodes"], ["channel"]]
    assert {each["metadata"]["name"] for each in asked.values()} == {"llama-01234567"}


def test_the_check_before_the_start_has_the_channel_too(stage: RackStage) -> None:
    define_gangjobs(stage)
    stage.start(report_url="https://gantree:8080", check_image="check:1")
    gangjob(stage, "llama", topology={"required": "nvlink"}, check={"collectiveSeconds": 60})
    stage.until(lambda: "llama-worker-1" in stage.pods())
    (check,) = stage.pods()["llama-worker-1"]["spec"]["initContainers"]
    assert check["resources"]["claims"] == [{"name": "gantree-channel"}]
    stage.until(lambda: stage.bound("llama-worker-1"))


def test_a_gangjob_that_brings_its_own_channels_gets_no_others(stage: RackStage) -> None:
    define_gangjobs(stage)
    stage.compute_domain("own", "channel")
    stage.start()
    gangjob(stage, "llama", claims=("channel",), topology={"required": "nvlink"})
    stage.until(lambda: status(stage, "llama").get("phase") == "Running")
    assert list(stage.compute_domains()) == ["own"]


def test_instead_of_the_default_scheduler_it_places_daemons_where_their_domain_is(
    tmp_path: Path,
) -> None:
    with AloneStage(tmp_path) as stage:
        stage.rack("a", trays=3)
        domain = stage.compute_domain("cd", "channel")
        ours = {"schedulerName": "default-scheduler"}
        stage.pod("peek", spec={**ours, "nodeSelector": {LABEL: domain}})
        stage.pod("else", spec=ours)
        stage.start(scheduler="default-scheduler")
        stage.until(lambda: stage.bound("else"))
        assert not stage.bound("peek")  # no node is of the domain yet
        for name in ("g-0", "g-1"):
            stage.claimant(name, "channel", gpus=4, spec=ours, **GANG)
        stage.until(lambda: stage.phase("g-0") == stage.phase("g-1") == "Running")
        stage.until(lambda: stage.bound("peek"))
        assert stage.node_of("peek") in {stage.node_of("g-0"), stage.node_of("g-1")}
        daemons = [name for name in stage.pods() if name.startswith("daemon-")]
        assert {stage.node_of(name) for name in daemons} == {
            stage.node_of("g-0"),
            stage.node_of("g-1"),
        }
        assert stage.devices_of(daemons[0]) == [(DRIVER, stage.node_of(daemons[0]), "daemon-0")]


def test_without_the_driver_only_those_wait_that_must_have_a_compute_domain(tmp_path: Path) -> None:
    with BareStage(tmp_path) as stage:
        stage.rack("a", trays=3)
        define_gangjobs(stage)
        stage.start()
        gangjob(stage, "must", computeDomain="Required")
        gangjob(stage, "may", topology={"required": "nvlink"})
        stage.until(lambda: status(stage, "may").get("phase") == "Running")
        stage.until(lambda: status(stage, "must").get("reason") == "Misconfigured")
        assert "DRA driver" in status(stage, "must")["message"]
        assert not any(name.startswith("must") for name in stage.pods())
