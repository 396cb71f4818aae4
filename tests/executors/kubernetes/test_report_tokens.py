"""Tokens of pods on an API server: each pod gets one with its binding, a successor another; a restart knows them."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gantree.model.errors import Unauthenticated
from support.pods import PodStage
from support.yaml_text import read_yaml

CRD = Path(__file__).parents[3] / "deploy/kubernetes/crds/gangjobs.yaml"
JOBS = "/apis/gantree.io/v1alpha1/namespaces/default/gangjobs"
URL = "https://gantree.gantree.svc:8080"
MANIFEST = """
apiVersion: gantree.io/v1alpha1
kind: GangJob
metadata: {name: g}
spec:
  gang:
    - role: worker
      members: 2
      each: {gpus: 8}
      template: {spec: {containers: [{name: train, image: train:1}]}}
  restarts: {limit: 1, replaceWithinSeconds: 600}
"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    with PodStage(tmp_path) as stage:
        stage.nodes("n[0-2]")
        stage.api.define(read_yaml(CRD.read_text()))
        yield stage


def submit(stage: PodStage) -> None:
    assert stage.api.post(JOBS, read_yaml(MANIFEST)).status_code == 201
    stage.until(lambda: all_run(stage))


def all_run(stage: PodStage) -> bool:
    return [stage.phase(name) for name in stage.pods()] == ["Running"] * 2


def tokens(stage: PodStage) -> dict[str, str]:
    """The token of each pod that has one."""
    told = {name: pod["metadata"].get("annotations", {}) for name, pod in stage.pods().items()}
    key = "gantree.io/report-token"
    return {name: each[key] for name, each in told.items() if each.get(key)}


def report(stage: PodStage, token: str, rank: int) -> float:
    """Report once gantree has heard of the pod; the server says it first."""
    record = {"rank": rank, "local_rank": 0, "local_world_size": 1, "progress": {"step": 5}}
    body, answers = json.dumps(record).encode(), list[float]()

    def is_taken() -> bool:
        with suppress(Unauthenticated):
            answers.append(stage.controller.cluster.take_report(token, body))
        return bool(answers)

    stage.until(is_taken)
    return answers[0]


def test_a_successor_gets_a_token_of_its_own_and_that_of_the_pod_before_is_worth_nothing(
    stage: PodStage,
) -> None:
    stage.start(report_url=URL)
    submit(stage)
    before = tokens(stage)
    assert len(set(before.values())) == 2
    assert {
        pod["metadata"]["annotations"]["gantree.io/report-url"] for pod in stage.pods().values()
    } == {URL}
    report(stage, before["g-worker-1"], 1)
    stage.exit("g-worker-1", 1)
    stage.until(lambda: all_run(stage) and tokens(stage).get("g-worker-1") != before["g-worker-1"])
    after = tokens(stage)
    assert after["g-worker-0"] == before["g-worker-0"]
    assert report(stage, after["g-worker-1"], 1) == 5.0
    with pytest.raises(Unauthenticated):
        stage.controller.cluster.take_report(before["g-worker-1"], b"{}")


def test_after_a_restart_the_pods_say_which_tokens_there_are(stage: PodStage) -> None:
    stage.start(report_url=URL)
    submit(stage)
    known = tokens(stage)
    stage.kill()
    stage.start()
    report(stage, known["g-worker-0"], 0)
    (job,) = stage.controller.ledger.jobs.values()
    progress = stage.controller.cluster.progress(job.job, job.attempt)
    assert progress is not None
    assert progress.step == 5


def test_without_a_url_pods_are_told_nothing(stage: PodStage) -> None:
    stage.start()
    submit(stage)
    assert tokens(stage) == {}
