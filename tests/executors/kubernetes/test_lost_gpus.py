"""A condition of a node says that a GPU is lost: who holds all GPUs there goes elsewhere at once, without saving."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gantree.model.facts import CheckpointRequested, StopDecided
from gantree.model.phases import Phase
from support.pods import PodStage
from support.yaml_text import read_yaml

CRD = Path(__file__).parents[3] / "deploy/kubernetes/crds/gangjobs.yaml"
URL = "/apis/gantree.io/v1alpha1/namespaces/default/gangjobs"
SENTINEL = (
    "ErrorCode:79 PCI:0000:ef:00 GPU_UUID:GPU-b5f21324-f1f9-f1a4-1a37-1166234f6e4f MESSAGE=NVRM: Xid (PCI:0000:ef:00):"
    " 79, pid=0, name=<unknown>, GPU has fallen off the bus. Recommended Action=RESTART_BM;"
)
MANIFEST = """
apiVersion: gantree.io/v1alpha1
kind: GangJob
metadata: {name: g}
spec:
  gang:
    - role: worker
      members: 3
      each: {gpus: 8}
      template:
        metadata: {annotations: {gantree.io/checkpoint: first, gantree.io/checkpoint-grace: 600s}}
        spec: {containers: [{name: train, image: train:1}]}
  restarts: {limit: 0, backoffSeconds: 600, backoffMaxSeconds: 600}
"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    with PodStage(tmp_path) as stage:
        stage.nodes("n[0-4]")
        yield stage


def gang(stage: PodStage, **restarts: object) -> dict[str, str]:
    """A gang of three nodes runs; the node of each pod."""
    spec = read_yaml(MANIFEST)
    spec["spec"]["restarts"] |= restarts
    stage.api.define(read_yaml(CRD.read_text()))
    stage.start()
    assert stage.api.post(URL, spec).status_code == 201
    stage.until(lambda: all_run(stage) and is_running(stage))
    return places(stage)


def is_running(stage: PodStage) -> bool:
    return all(each.phase is Phase.RUNNING for each in stage.controller.ledger.jobs.values())


def places(stage: PodStage) -> dict[str, str]:
    return {name: each["spec"].get("nodeName", "") for name, each in stage.pods().items()}


def all_run(stage: PodStage) -> bool:
    return [stage.phase(name) for name in stage.pods()] == ["Running"] * 3


def loses_a_gpu(stage: PodStage, node: str, message: str = SENTINEL) -> None:
    told = {"type": "SysLogsXIDError", "status": "True", "reason": "NotHealthy", "message": message}
    body = {"status": {"conditions": [told]}}
    media_type = "application/strategic-merge-patch+json"
    assert stage.api.patch(f"/api/v1/nodes/{node}/status", body, media_type).status_code == 200


def facts(stage: PodStage, kind: type) -> list[object]:
    return [each.fact for each in stage.controller.journal.facts() if isinstance(each.fact, kind)]


def test_a_gang_is_not_asked_to_save_and_runs_elsewhere(stage: PodStage) -> None:
    before = gang(stage)
    lost = before["g-worker-0"]
    loses_a_gpu(stage, lost)
    stage.until(lambda: all_run(stage) and lost not in places(stage).values())
    (state,) = stage.controller.ledger.jobs.values()
    assert (state.attempt, state.failures) == (2, 0)
    assert facts(stage, CheckpointRequested) == []


def test_another_xid_asks_the_gang_to_save_first(stage: PodStage) -> None:
    before = gang(stage)
    loses_a_gpu(stage, before["g-worker-0"], SENTINEL.replace("79", "119").replace("fallen", "-"))
    stage.until(lambda: facts(stage, CheckpointRequested) != [])
    assert facts(stage, StopDecided) == []


def test_a_pod_alone_is_replaced_where_the_job_says_so(stage: PodStage) -> None:
    before = gang(stage, replaceWithinSeconds=600)
    uids = {name: each["metadata"]["uid"] for name, each in stage.pods().items()}
    loses_a_gpu(stage, before["g-worker-1"])
    stage.until(lambda: all_run(stage) and before["g-worker-1"] not in places(stage).values())
    (state,) = stage.controller.ledger.jobs.values()
    assert state.attempt == 1
    after = {name: each["metadata"]["uid"] for name, each in stage.pods().items()}
    assert [name for name in uids if uids[name] != after[name]] == ["g-worker-1"]
