"""GangJobs and GangServices of a federation: what they are made of, and that each assignment makes one GangJob."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gantree.executors.federated_jobs import FederatedJobs, federated_jobs_of
from gantree.executors.kubernetes.apiserver.objects import Group, Metadata
from gantree.executors.kubernetes.federation.gangjob_of_job import gangjob_name, gangjob_of
from gantree.executors.kubernetes.federation.gangservice_of_service import gangservice_of
from gantree.executors.kubernetes.services.gang_service import gang_service
from gantree.formats import read_submission
from gantree.model.errors import BadInput, Conflict, NotFound, Unreachable, Unsupported
from gantree.model.jobs import Job
from gantree.model.services import ServiceSpec
from support.pods import PodStage

CRDS = Path(__file__).parents[3] / "deploy/kubernetes/crds"
GANGSERVICES = "/apis/gantree.io/v1alpha1/namespaces/default/gangservices"
GANGJOBS = "/apis/gantree.io/v1alpha1/namespaces/default/gangjobs"
JOB = """
name: Llama_7b
queue: default
priority: batch
gang:
  - role: worker
    members: 2
    processes: 4
    each: {gpus: 4, cpus: 8, memory_GiB: 64}
    node_labels: {pool: a}
    image: train:1
    run: [torchrun, "$(HOME)/train.py"]
    env: {SEED: "1"}
    workdir: /work
topology: {required: node, slices: {members: 1, required: node}}
checkpoint: {grace: 90s}
restarts: {limit: 1, backoff: 2s}
time_limit: 8h
"""


SERVICE = """
kind: service
name: chat
gang: [{role: server, members: 1, each: {gpus: 2}, image: serve:1, run: [serve]}]
replicas: {min: 1, max: 4, floor: 1}
ready: {http: /health, every: 100ms}
drain: 5s
spread: node
scale: {on: [{metric: concurrency, target: 8}, {query: up, target: 2, per_replica: false}]}
route: {models: [tiny], concurrency: 4, affinity: session}
"""


def service(text: str = SERVICE, number: int = 1, of: str = "world") -> ServiceSpec:
    (found,) = read_submission(text, "job.yaml").services
    replica = replace(found.replica, assignment=f"{of}/{found.name}/{number}")
    return replace(found, replica=replica)


def job(text: str = JOB, number: int = 1) -> Job:
    (found,) = read_submission(text, "job.yaml").jobs
    return replace(found, assignment=f"world/{found.name}/{number}")


def test_a_gangjob_says_what_the_job_file_says() -> None:
    manifest = gangjob_of(job(), "team", "gantree")
    assert manifest["metadata"]["namespace"] == "team"
    assert manifest["metadata"]["annotations"] == {"gantree.io/assignment": "world/Llama_7b/1"}
    spec = manifest["spec"]
    (role,) = spec["gang"]
    assert role.pop("template") == {
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "train:1",
                    "command": ["torchrun", "$$(HOME)/train.py"],
                    "env": [{"name": "SEED", "value": "1"}],
                    "workingDir": "/work",
                }
            ],
            "nodeSelector": {"pool": "a"},
            "terminationGracePeriodSeconds": 90,
        }
    }
    assert role == {
        "role": "worker",
        "members": 2,
        "processes": 4,
        "each": {"gpus": 4, "cpus": 8, "memoryGiB": 64},
        "topology": {},
    }
    assert spec["topology"] == {
        "required": "node",
        "slices": {"members": 1, "required": "node"},
    }
    assert (spec["restarts"]["limit"], spec["timeLimitSeconds"]) == (1, 8 * 3600)


def test_pods_have_the_volumes_of_the_federation() -> None:
    manifest = gangjob_of(job(), "team", "gantree", [("/mnt/ckpt", "checkpoints")])
    pod = manifest["spec"]["gang"][0]["template"]["spec"]
    assert pod["volumes"] == [
        {"name": "volume-0", "persistentVolumeClaim": {"claimName": "checkpoints"}}
    ]
    (container,) = pod["containers"]
    assert container["volumeMounts"] == [{"name": "volume-0", "mountPath": "/mnt/ckpt"}]


def test_names_are_of_one_assignment_and_short_enough() -> None:
    names = [gangjob_name(job(number=number)) for number in (1, 2)]
    assert len(set(names)) == 2
    assert all(name.startswith("llama-7b-") for name in names)
    long = gangjob_name(job(JOB.replace("Llama_7b", "7" * 60)))
    assert len(long) <= 40
    assert long.startswith("j7")


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("image: train:1", "", "role without image"),
        ("node_labels: {pool: a}", "gpu: [H100-80GB]", "gpu"),
        ("gpus: 4, cpus: 8", "nics: 1, cpus: 8", "nics"),
        ("each: {gpus: 4,", "each: {gpu_share: 0.5,", "gpu_share"),
        ("time_limit: 8h", "budget_USD: 3", "budget_USD"),
        ("topology: {", "topology: {spread: node, ", "topology.spread"),
        ("time_limit: 8h", "spot: true", "spot"),
    ],
)
def test_what_a_gangjob_cannot_say_is_refused_with_the_field(
    old: str, new: str, field: str
) -> None:
    with pytest.raises(Unsupported, match=f"a GangJob of Kubernetes has no {field}"):
        gangjob_of(job(JOB.replace(old, new)), "team", "gantree")


@pytest.fixture
def stage(tmp_path: Path) -> Any:
    with PodStage(tmp_path) as stage:
        for name in ("gangjobs", "gangservices"):
            stage.api.define(yaml.safe_load((CRDS / f"{name}.yaml").read_text()))
        stage.nodes("n0", pool="a")
        stage.start(federation_namespace="default")
        yield stage


def jobs_of(stage: PodStage) -> FederatedJobs:
    jobs = federated_jobs_of(stage.controller.cluster)
    assert jobs is not None
    return jobs


def test_an_assignment_makes_one_gangjob_however_often_it_comes(stage: PodStage) -> None:
    jobs = jobs_of(stage)
    lost = {"verb": "create", "resource": "gangjobs", "is_lost": True}
    stage.running.call(lambda: stage.running.server.faults.add(**lost))
    with pytest.raises(Unreachable):
        jobs.create(job()).result()
    names = {jobs.create(job()).result() for _ in range(2)}
    (gangjob,) = stage.api.get(GANGJOBS).json()["items"]
    assert names == {f"default/{gangjob['metadata']['name']}"}
    stage.until(lambda: bool(jobs.rows("world")))
    assert jobs.rows("other") == []
    (row,) = jobs.rows("world")
    assert (row["assignment"], row["phase"]) == ("world/Llama_7b/1", "pending")


def test_what_the_api_server_refuses_is_refused_and_nothing_of_others_is_touched(
    stage: PodStage,
) -> None:
    jobs = jobs_of(stage)
    with pytest.raises(BadInput, match="the API server refuses GangJob"):
        jobs.create(job(JOB.replace("members: 2", "members: 5000"))).result()
    own = gangjob_of(job(), "default", "gantree")
    own["metadata"] |= {"name": "own", "annotations": {}}
    assert stage.api.post(GANGJOBS, own).status_code == 201
    for word in ("default/own", "default/none", "kube-system/own"):
        with pytest.raises(NotFound):
            jobs.cancel(word, is_service=False, assignment=None).result()
        with pytest.raises(NotFound):
            jobs.row(word, is_service=False).result()


def test_without_a_lease_no_pod_is_bound(stage: PodStage) -> None:
    jobs = jobs_of(stage)
    name = jobs.create(job(JOB.replace("gpus: 4, cpus: 8, memory_GiB: 64", "cpus: 1"))).result()
    stage.until(
        lambda: jobs.row(name, is_service=False).result()["attempt"] > 1
    )  # it was placed, and not bound
    assert not any(pod["spec"].get("nodeName") for pod in stage.pods().values())


def test_one_that_is_cancelled_is_there_until_its_pods_are_gone(stage: PodStage) -> None:
    jobs = jobs_of(stage)
    name = jobs.create(job(JOB.replace("members: 2", "members: 3"))).result()
    stage.until(lambda: len(stage.pods()) == 3)
    jobs.cancel(name, is_service=False, assignment=None).result()
    stage.until(lambda: not jobs.rows("world"))
    assert stage.pods() == {}
    with pytest.raises(NotFound):
        jobs.cancel(name, is_service=False, assignment=None).result()


def test_one_that_has_ended_is_not_cancelled(stage: PodStage) -> None:
    jobs = jobs_of(stage)
    name = jobs.create(job()).result()
    path = f"{GANGJOBS}/{name.partition('/')[2]}/status"
    status = {"status": {"phase": "Failed", "message": "a process exited with 1"}}
    stage.until(lambda: jobs.row(name, is_service=False).result()["phase"] == "pending")
    assert stage.api.patch(path, status).status_code == 200
    row = jobs.row(name, is_service=False).result()
    assert (row["phase"], row["reason"]) == ("failed", "a process exited with 1")
    with pytest.raises(Conflict, match="has ended: failed"):
        jobs.cancel(name, is_service=False, assignment=None).result()


def test_a_gangservice_says_what_the_service_says() -> None:
    asked = service()
    manifest = gangservice_of(asked, "team", "gantree")
    read = gang_service(Group(Metadata(name="chat", namespace="team"), spec=manifest["spec"]))
    assert read.replicas == asked.replicas
    assert (read.port, read.drain_s, read.spread) == (8000, 5.0, "node")
    assert read.ready == replace(asked.ready, every_s=1.0, timeout_s=1.0)
    assert read.scaling == asked.scaling
    assert read.routing == asked.routing
    assert read.update == asked.update
    (role,) = read.template["spec"]["gang"]
    assert role["template"]["spec"]["containers"][0]["image"] == "serve:1"
    assert "limit" not in read.template["spec"]["restarts"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("name: chat", "name: Chat", "no name Chat: at most 34 lower-case letters"),
        ("image: serve:1, ", "", "no role without image"),
        ("drain: 5s", "cache_events: {}", "no free port for cache_events"),
    ],
)
def test_what_a_gangservice_cannot_say_is_refused(old: str, new: str, said: str) -> None:
    with pytest.raises(Unsupported, match=f"of Kubernetes has {said}"):
        gangservice_of(service(SERVICE.replace(old, new)), "team", "gantree")


def test_a_service_is_updated_by_a_newer_assignment_alone_and_keeps_its_number(
    stage: PodStage,
) -> None:
    jobs = jobs_of(stage)

    def there() -> Any:
        return stage.api.get(f"{GANGSERVICES}/chat").json()

    assert jobs.create(service()).result() == "default/chat"
    scale = {"spec": {"replicas": 3}}
    assert stage.api.patch(f"{GANGSERVICES}/chat/scale", scale).status_code == 200
    without = service(SERVICE.replace("spread: node\n", "").replace("max: 4", "max: 5"), number=3)
    jobs.create(without).result()
    jobs.create(service(number=2)).result()  # it comes late
    spec = there()["spec"]
    assert (spec["replicas"]["max"], spec["replicas"]["wanted"], spec.get("spread")) == (5, 3, None)
    stage.until(lambda: [row["assignment"] for row in jobs.rows("world")] == ["world/chat/3"])
    (row,) = jobs.rows("world")
    assert (row["job"], row["service"], row["phase"]) == ("default/chat", True, "running")
    with pytest.raises(BadInput, match="did not come from federation other"):
        jobs.create(service(of="other")).result()
    with pytest.raises(Conflict, match="came by assignment world/chat/3"):
        jobs.cancel("default/chat", is_service=True, assignment="world/chat/2").result()
    jobs.cancel("default/chat", is_service=True, assignment="world/chat/3").result()
    stage.until(lambda: not jobs.rows("world"))
    with pytest.raises(NotFound):
        jobs.row("default/chat", is_service=True).result()
