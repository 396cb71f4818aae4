"""A Job of which some pods have succeeded: those that its controller makes in place of failed ones are all there is."""

from pathlib import Path

from support.kubernetes.server.statuses import Json
from support.pods import PodStage

JOBS = "/apis/batch/v1/namespaces/default/jobs"


def make_job(stage: PodStage, pods: int) -> Json:
    """Create a Job; gives what its pods say of their owner."""
    template = {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    }
    spec = {"parallelism": pods, "completions": pods, "template": template}
    kind = {"apiVersion": "batch/v1", "kind": "Job"}
    answer = stage.api.post(JOBS, {**kind, "metadata": {"name": "train"}, "spec": spec})
    assert answer.status_code == 201, answer.text
    return {**kind, "name": "train", "uid": answer.json()["metadata"]["uid"], "controller": True}


def make_pod(stage: PodStage, name: str, owner: Json) -> None:
    stage.pod(name, gpus=1, owners=[owner], labels={"gantree.io/gang": "train"})


def test_the_pod_that_is_left_starts(tmp_path: Path) -> None:
    with PodStage(tmp_path) as stage:
        stage.nodes("n0")
        owner = make_job(stage, 3)
        stage.start()
        for number in range(3):
            make_pod(stage, f"train-{number}", owner)
        stage.until(lambda: all(stage.phase(f"train-{n}") == "Running" for n in range(3)))
        for number in range(2):
            stage.exit(f"train-{number}")
        stage.exit("train-2", 1)
        stage.until(lambda: stage.phase("train-2") == "Failed")
        status = {"status": {"startTime": "2026-01-01T00:00:00Z", "succeeded": 2, "failed": 1}}
        answer = stage.api.patch(f"{JOBS}/train/status", status)
        assert answer.status_code == 200, answer.text
        make_pod(stage, "train-3", owner)
        stage.until(lambda: stage.phase("train-3") == "Running", within_s=15.0)
