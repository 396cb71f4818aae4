"""The guide to moving: each pair of manifests is valid, gantree leaves the first alone and starts the second whole."""

import re
from collections.abc import Iterator
from pathlib import Path

import kubernetes_validate
import pytest

from gantree.executors.kubernetes.workloads.pod_groups import VOLCANO
from support.kubernetes.server.statuses import Json
from support.pods import PodStage
from support.yaml_text import read_yaml_documents

GUIDE = (Path(__file__).parents[2] / "docs" / "migrating.md").read_text()
SECTIONS = re.findall(r"^## From (?:the )?(.+?)\n(.*?)(?=^## )", GUIDE, re.MULTILINE | re.DOTALL)
PAIRS = {name: re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) for name, text in SECTIONS}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    """A leaf with one node and a leaf with two: a gang of two whole nodes fits one of them alone."""
    with PodStage(tmp_path) as stage:
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {
            "name": VOLCANO.versions[0],
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": schema},
        }
        spec = {
            "group": VOLCANO.group,
            "scope": "Namespaced",
            "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"},
            "versions": [version],
        }
        body = {"metadata": {"name": f"podgroups.{VOLCANO.group}"}, "spec": spec}
        stage.api.define(body)
        stage.nodes("a0", network_topology_nvidia_com__leaf="l0")
        stage.nodes("b[0-1]", network_topology_nvidia_com__leaf="l1")
        stage.start()
        yield stage


def apply(stage: PodStage, text: str) -> None:
    """Create what a manifest says; a Job's pods as the Job controller makes them."""
    for each in read_yaml_documents(text):
        if each["kind"] == "Job":
            for index in range(each["spec"]["completions"]):
                create(stage, pod_of(each, index))
        else:
            create(stage, each)


def pod_of(job: Json, index: int) -> Json:
    template = job["spec"]["template"]
    metadata = template.get("metadata", {})
    annotations = metadata.get("annotations", {}) | {
        "batch.kubernetes.io/job-completion-index": str(index)
    }
    name = f"{job['metadata']['name']}-{index}"
    told = {"name": name, "labels": metadata.get("labels", {}), "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": told, "spec": template["spec"]}


def create(stage: PodStage, body: Json) -> None:
    version = body["apiVersion"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    answer = stage.api.post(f"{root}/namespaces/default/{body['kind'].lower()}s", body)
    assert answer.status_code == 201, answer.text


def test_the_guide_has_a_pair_for_every_scheduler() -> None:
    assert list(PAIRS) == ["default scheduler", "Volcano", "Kueue", "KAI", "YuniKorn", "HiveD"]
    assert {len(pair) for pair in PAIRS.values()} == {2}


@pytest.mark.parametrize("name", PAIRS)
def test_before_it_is_another_schedulers_and_after_it_starts_in_one_leaf(
    stage: PodStage, name: str
) -> None:
    before, after = PAIRS[name]
    for each in [*read_yaml_documents(before), *read_yaml_documents(after)]:
        if each["kind"] == "Job":
            kubernetes_validate.validate(each, "1.36.0", strict=True)
    apply(stage, before)
    stage.pod("ours", gpus=1)
    stage.until(lambda: stage.bound("ours"))
    assert not any(stage.pods()[f"llama-{index}"]["spec"].get("nodeName") for index in range(2))
    for each in ("ours", "llama-0", "llama-1"):
        options = {"gracePeriodSeconds": 0}
        stage.api.delete(f"/api/v1/namespaces/default/pods/{each}", options)
    stage.until(lambda: stage.pods() == {})
    for each in read_yaml_documents(before):
        if each["kind"] == "PodGroup":
            url = f"/apis/{each['apiVersion']}/namespaces/default/podgroups/llama"
            assert stage.api.delete(url).status_code == 200
    apply(stage, after)
    stage.until(lambda: stage.bound("llama-0", "llama-1"))
    assert {stage.node_of("llama-0"), stage.node_of("llama-1")} == {"b0", "b1"}
    ranks = [
        stage.pods()[f"llama-{n}"]["metadata"]["annotations"]["gantree.io/rank"] for n in (0, 1)
    ]
    assert ranks == ["0", "1"]
