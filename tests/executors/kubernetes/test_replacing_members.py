"""A pod of a gang goes and its job can live with that: the others stay bound, and another pod takes its place."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gantree.core.ledger.state import JobState
from gantree.executors.kubernetes.apiserver.objects import Group, Metadata, Pod
from gantree.executors.kubernetes.workloads.gang_labels import gang_spec_of_group, gang_spec_of_pod
from gantree.executors.kubernetes.workloads.gang_owners import KUBEFLOW
from gantree.executors.kubernetes.workloads.gangs import gang_of, job_of
from gantree.executors.kubernetes.workloads.keys import key_alone
from support.pods import PodStage
from support.yaml_text import read_yaml

GANG = {"gantree.io/gang": "g", "gantree.io/gang-size": "3"}
CRD = Path(__file__).parents[3] / "deploy/kubernetes/crds/gangjobs.yaml"
URL = "/apis/gantree.io/v1alpha1/namespaces/default/gangjobs"
MANIFEST = """
apiVersion: gantree.io/v1alpha1
kind: GangJob
metadata: {name: g}
spec:
  gang:
    - role: worker
      members: 3
      each: {gpus: 8}
      template: {spec: {containers: [{name: train, image: train:1}]}}
  topology: {required: network.topology.nvidia.com/leaf}
  restarts: {limit: 1, backoffSeconds: 0.1, replaceWithinSeconds: 60}
"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    """Four nodes in leaf l0, which a gang of three fits, and two in l1."""
    with PodStage(tmp_path) as stage:
        stage.nodes("a[0-3]", network_topology_nvidia_com__leaf="l0")
        stage.nodes("b[0-1]", network_topology_nvidia_com__leaf="l1")
        yield stage


def pod(stage: PodStage, number: int, within: str = "60s") -> None:
    """A pod as a Job with indices would make it."""
    told = {
        **GANG,
        "gantree.io/replace-within": within,
        "gantree.io/required-topology": "leaf",
        "gantree.io/index": str(number),
    }
    stage.pod(f"g-{number}", gpus=8, annotations=told)


def gang(stage: PodStage, within: str = "60s") -> dict[str, str]:
    """A gang of three runs; its pods' nodes."""
    for number in range(3):
        pod(stage, number, within)
    stage.start()
    stage.until(lambda: runs(stage))
    return places(stage)


def runs(stage: PodStage) -> bool:
    return any(str(each.phase) == "running" for each in stage.controller.ledger.jobs.values())


def places(stage: PodStage) -> dict[str, str]:
    return {name: each["spec"].get("nodeName", "") for name, each in stage.pods().items()}


def uids(stage: PodStage) -> dict[str, str]:
    return {name: each["metadata"]["uid"] for name, each in stage.pods().items()}


def state(stage: PodStage) -> JobState:
    (found,) = [each for each in stage.controller.ledger.jobs.values() if each.attempt]
    return found


def delete(stage: PodStage, name: str) -> None:
    path = f"/api/v1/namespaces/default/pods/{name}"
    assert stage.api.delete(path).status_code in (200, 202)
    until_gone(stage, name)


def until_gone(stage: PodStage, name: str) -> None:
    stage.until(lambda: name not in stage.pods())


def cordon(stage: PodStage, node: str) -> None:
    body = {"spec": {"unschedulable": True}}
    answer = stage.api.patch(f"/api/v1/nodes/{node}", body, "application/merge-patch+json")
    assert answer.status_code == 200
    stage.until(lambda: node in stage.controller.ledger.site.cordoned)


def is_whole(stage: PodStage) -> bool:
    found = state(stage)
    return not found.missing and all(stage.phase(f"g-{number}") == "Running" for number in range(3))


def test_the_others_stay_bound_and_a_new_pod_goes_beside_them(stage: PodStage) -> None:
    before, ids = gang(stage), {}
    ids = uids(stage)
    cordon(stage, before["g-1"])
    delete(stage, "g-1")
    stage.until(lambda: bool(state(stage).missing))
    pod(stage, 1)
    stage.until(lambda: is_whole(stage))
    after = places(stage)
    assert (after["g-0"], after["g-2"]) == (before["g-0"], before["g-2"])
    assert after["g-1"].startswith("a")
    assert after["g-1"] not in before.values()
    assert all(uids(stage)[name] == ids[name] for name in ("g-0", "g-2"))
    annotations = stage.pods()["g-1"]["metadata"]["annotations"]
    told = {key: annotations[f"gantree.io/{key}"] for key in ("attempt", "member", "rank", "life")}
    assert told == {"attempt": "1", "member": "1", "rank": "1", "life": "1"}
    assert state(stage).attempt == 1
    for number in range(3):
        stage.exit(f"g-{number}")
    stage.until(lambda: str(state(stage).phase) == "succeeded")


def test_a_pod_that_fails_is_replaced_where_it_was_also_after_a_restart(stage: PodStage) -> None:
    before = gang(stage)
    stage.exit("g-2", 1)
    stage.until(lambda: bool(state(stage).missing))
    stage.stop()
    stage.start()
    delete(stage, "g-2")
    pod(stage, 2)
    stage.until(lambda: is_whole(stage))
    assert places(stage) == before
    assert (state(stage).attempt, state(stage).failures) == (1, 1)
    stage.stop()
    stage.start()
    stage.work_for(0.5)
    assert is_whole(stage)
    assert state(stage).lives == ((2, 1),)


def test_a_replacement_that_a_kubelet_refuses_is_replaced_by_the_next(stage: PodStage) -> None:
    gang(stage)
    cordon(stage, "a1")
    delete(stage, "g-1")
    stage.running.call(stage.kubelet.refuse_next)
    stage.until(lambda: bool(state(stage).missing))
    pod(stage, 1)
    stage.until(lambda: state(stage).lives == ((1, 2),))
    delete(stage, "g-1")
    pod(stage, 1)
    stage.until(lambda: is_whole(stage))
    assert stage.pods()["g-1"]["metadata"]["annotations"]["gantree.io/life"] == "2"
    assert state(stage).attempt == 1


@pytest.mark.faults
def test_a_pod_that_goes_while_it_is_bound_is_replaced_by_the_next(stage: PodStage) -> None:
    gang(stage)
    delete(stage, "g-1")
    stage.until(lambda: bool(state(stage).missing))
    faults = stage.running.server.faults
    stage.running.call(lambda: faults.add(resource="pods/binding", is_lost=True, delay_s=1.5))
    members = stage.controller.cluster._attempts._members  # type: ignore[attr-defined]  # a look inside
    pod(stage, 1)
    stage.until(lambda: any(each.binding for each in members.attempts.values()))
    delete(stage, "g-1")
    stage.until(lambda: state(stage).lives == ((1, 2),))
    pod(stage, 1)
    stage.until(lambda: is_whole(stage))
    assert state(stage).attempt == 1


def test_where_it_is_not_replaced_in_time_all_start_anew(stage: PodStage) -> None:
    """Their owner makes each as soon as the one before is gone: a gang that has no pod left is over."""
    gang(stage, within="1s")
    path = "/api/v1/namespaces/default/pods/g-1"
    assert stage.api.delete(path).status_code in (200, 202)
    stage.until(lambda: "not replaced in time: member 1" in state(stage).reason)
    for number in (1, 0, 2):
        until_gone(stage, f"g-{number}")
        pod(stage, number, within="1s")
    stage.until(lambda: all(stage.phase(f"g-{number}") == "Running" for number in range(3)))
    assert state(stage).attempt == 2


def test_without_its_first_pod_no_gang_goes_on(stage: PodStage) -> None:
    gang(stage)
    delete(stage, "g-0")
    stage.until(lambda: not stage.pods())


def test_the_pod_of_a_gangjob_on_a_lost_node_is_made_anew(stage: PodStage) -> None:
    body = read_yaml(CRD.read_text())
    stage.api.define(body)
    stage.start()
    assert stage.api.post(URL, read_yaml(MANIFEST)).status_code == 201
    names = [f"g-worker-{number}" for number in range(3)]
    stage.until(lambda: runs(stage))
    before, ids = places(stage), uids(stage)
    stage.running.run(stage.kubelet.tell_ready(before[names[1]], "Unknown"))
    stage.until(lambda: uids(stage).get(names[1]) not in (None, ids[names[1]]))
    stage.until(lambda: stage.phase(names[1]) == "Running" and not state(stage).missing)
    after = places(stage)
    assert [after[name] for name in (names[0], names[2])] == [before[names[0]], before[names[2]]]
    assert after[names[1]].startswith("a")
    assert after[names[1]] != before[names[1]]
    assert {name for name in names if uids(stage)[name] == ids[name]} == {names[0], names[2]}


def test_who_says_that_its_gang_lives_without_one() -> None:
    told = {"gantree.io/replace-within": "5m"}
    alone = Pod(Metadata("p", "default", uid="u", annotations=told))
    job, _, _ = job_of(gang_of(key_alone(alone), None, [alone]), lambda word: word)
    assert job.restarts.replace_s == 300
    odd = replace_annotations(alone, {"gantree.io/replace-within": "soon"})
    assert gang_spec_of_pod(odd).replace_s is None
    assert gang_spec_of_pod(odd).unknown == (
        "gantree.io/replace-within: 'soon' is no duration, such as 5m",
    )
    kind = next(iter(KUBEFLOW.values()))
    workers = {"pytorchReplicaSpecs": {"Worker": {"replicas": 4}}}
    for spec, replace_s in (
        (workers, None),
        ({**workers, "elasticPolicy": {"minReplicas": 2}}, 300),
    ):
        terms = gang_spec_of_group(kind, Group(Metadata("j", "default"), spec=spec))
        assert terms is not None
        assert terms.replace_s == replace_s


def replace_annotations(pod: Pod, annotations: dict[str, str]) -> Pod:
    return Pod(Metadata("p", "default", uid="v", annotations=annotations))
