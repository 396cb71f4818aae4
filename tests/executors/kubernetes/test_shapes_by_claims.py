"""Replicas of a GangService whose claims have alternatives: each gets the first device that is left where it starts."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.devices import GPU, DeviceStage, request

CRDS = Path(__file__).parents[3] / "deploy/kubernetes/crds"
URL = "/apis/gantree.io/v1alpha1/namespaces/default/gangservices"
MANIFEST = """
apiVersion: gantree.io/v1alpha1
kind: GangService
metadata: {name: chat}
spec:
  replicas: {min: 2, max: 2}
  port: 8000
  template:
    spec:
      gang:
        - role: worker
          template:
            spec:
              resourceClaims: [{name: gpu, resourceClaimTemplateName: whole-or-half}]
              containers:
                - {name: serve, image: "serve:1", resources: {claims: [{name: gpu}]}}
"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[DeviceStage]:
    """A node of two GPUs, of one of which a pod has a half."""
    with DeviceStage(tmp_path) as stage:
        for name in ("gangjobs", "gangservices"):
            stage.api.define(yaml.safe_load((CRDS / f"{name}.yaml").read_text()))
        stage.partitioned("n0", gpus=2)
        stage.nodes("n0", gpus=0)
        stage.template("one-half", request("gpu", "half"))
        ways = [
            {"name": kind, "deviceClassName": kind, "allocationMode": "ExactCount", "count": 1}
            for kind in ("whole", "half")
        ]
        stage.template("whole-or-half", {"name": "gpu", "firstAvailable": ways})
        stage.start()
        stage.claimant("h0", "one-half")
        stage.until(lambda: stage.bound("h0"))
        yield stage


def test_each_replica_starts_on_the_first_of_its_devices_that_is_left(stage: DeviceStage) -> None:
    assert stage.api.post(URL, yaml.safe_load(MANIFEST)).status_code == 201
    stage.until(
        lambda: stage.api.get(f"{URL}/chat").json().get("status", {}).get("readyReplicas") == 2
    )
    granted = [
        result["request"]
        for claim in stage.claims().values()
        for result in claim["status"]["allocation"]["devices"]["results"]
    ]
    assert sorted(granted) == ["gpu", "gpu/half", "gpu/whole"]
    assert {driver for driver, _, _ in stage.held()} == {GPU}
