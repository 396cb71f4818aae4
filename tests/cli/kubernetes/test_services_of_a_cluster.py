"""Services of a Kubernetes cluster at a daemon: listed, shown, explained, scaled and measured as services anywhere."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gantree.api.client.client import Client
from support.command_line import CommandLine
from support.daemon import Program
from support.kubernetes.server.statuses import Json
from support.pods import PodStage

CRDS = Path(__file__).parents[3] / "deploy/kubernetes/crds"
URL = "/apis/gantree.io/v1alpha1/namespaces/default/gangservices"
MANIFEST = """
apiVersion: gantree.io/v1alpha1
kind: GangService
metadata: {name: chat}
spec:
  replicas: {min: 1, max: 4, wanted: 2}
  port: 8000
  drainSeconds: 0
  route: {models: [llama-8b]}
  template:
    spec: {gang: [{role: worker, each: {gpus: 8}, template: {spec: {containers: [{name: serve, image: "serve:1"}]}}}]}
"""
WITHIN_S = 300.0
CHAT = "default.chat"


class Site:
    """Three nodes of eight GPUs, and a daemon on them."""

    def __init__(self, stage: PodStage, state: Path, gantree: CommandLine) -> None:
        self.stage, self.state, self._gantree = stage, state, gantree
        self.client = Client(state)

    def run(self, *words: object) -> Any:
        """A command at the daemon."""
        return self._gantree(*words, "--state", self.state)

    def service(self, name: str = CHAT) -> Json:
        """What the API says of a service."""
        return self.client.service(name)

    def until(self, is_so: Callable[[], object]) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + WITHIN_S
        while not is_so():
            assert time.monotonic() < deadline, self.client.services()
            time.sleep(0.05)

    def listed(self) -> dict[str, Json]:
        """The rows of the list by name."""
        return {row["service"]: row for row in self.client.services()}

    def ready(self, replicas: int, name: str = CHAT) -> bool:
        """Whether so many replicas are ready, and no other is there."""
        row = self.listed().get(name)
        return row is not None and (row["ready"], row["placed"]) == (replicas, replicas)


@pytest.fixture
def site(tmp_path: Path, gantree: CommandLine) -> Iterator[Site]:
    with PodStage(tmp_path / "unused") as stage:
        for name in ("gangjobs", "gangservices"):
            stage.api.define(yaml.safe_load((CRDS / f"{name}.yaml").read_text()))
        stage.nodes("n[0-2]", network_topology_nvidia_com__leaf="l0")
        state = tmp_path / "state"
        where = ("--api-server", stage.running.url, "--state", str(state), "--name", "a")
        with Program("kubernetes", *where) as daemon:
            daemon.says("ready: cluster kubernetes, ")
            yield Site(stage, state, gantree)
            assert daemon.stop() == 0


def create(site: Site) -> None:
    answer = site.stage.api.post(URL, yaml.safe_load(MANIFEST))
    assert answer.status_code == 201, answer.text
    site.until(lambda: site.ready(2))


def deploy(site: Site, *names: str) -> None:
    """Pods as the controller of a Deployment makes them."""
    for name in names:
        site.stage.pod(
            name,
            labels={"gantree.io/service": "embed", "pod-template-hash": "7d9f"},
            annotations={"gantree.io/port": "9000"},
        )
    site.until(lambda: site.ready(len(names), "default.embed"))


def test_a_gangservice_is_listed_and_shown_with_its_replicas(site: Site) -> None:
    create(site)
    row = site.service()
    (pod, _) = (site.stage.pods()[f"chat-{number}-worker-0"] for number in (1, 2))
    first, second = row["replicas"]
    assert (row["keeper"], row["state"], row["wanted"], row["ready"]) == (
        "GangService",
        "ready",
        2,
        2,
    )
    assert (row["min"], row["max"], row["current"], row["gpus"]) == (1, 4, 2, 8)
    assert (row["queue"], row["user"], row["models"]) == ("default", "default", ["llama-8b"])
    assert (first["replica"], first["number"]) == ("default.chat-1", 1)
    assert site.client.job(first["job"])["name"] == "default/chat-1"
    assert site.run("why", "default/chat-1").out.startswith("Holds 8 GPUs on 1 node")
    assert (
        first["revision"]
        == row["revision"]
        == site.stage.api.get(f"{URL}/chat").json()["status"]["revision"]
    )
    assert first["nodes"] == [pod["spec"]["nodeName"]]
    assert first["domain"] == {"tier": "node", "name": f"l0/{first['nodes'][0]}"}
    assert (first["host"], first["port"]) == (pod["status"]["podIP"], 8000)
    assert (first["phase"], first["ready"], second["number"]) == ("running", True, 2)
    head, line = site.run("services").out.splitlines()
    assert head.split()[:4] == ["SERVICE", "STATE", "READY", "BOUNDS"]
    assert line.split()[:6] == [CHAT, "ready", "2/2", "1-4", row["revision"], "default"]
    told = site.run("services", CHAT).out
    assert told.startswith(f"{CHAT}: ready; 2 of 2 replicas are ready; 1 to 4 replicas, revision ")
    assert f"{first['host']}:8000" in told


def test_it_is_scaled_by_gantree_and_by_others_and_says_by_whom(site: Site) -> None:
    create(site)
    assert site.run("scale", CHAT, "--replicas", 4).out == f"{CHAT} is scaled\n"
    assert site.stage.api.get(f"{URL}/chat/scale").json()["spec"]["replicas"] == 4
    site.until(lambda: len(site.service()["scalings"]) == 1)
    site.until(lambda: site.ready(3))
    row = site.service()
    (scaling,) = row["scalings"]
    assert (scaling["before"], scaling["replicas"], scaling["automatic"]) == (2, 4, False)
    assert row["scaled_for"] == scaling["reason"] != ""
    why = site.run("why", CHAT).out
    assert why.startswith(
        f"{CHAT} wants 4 replicas (set by a user: {scaling['reason']}): 3 are ready, 1 waits."
    )
    assert "default.chat-4: Waiting: needs 8 GPUs" in why
    scale = {"spec": {"replicas": 1}}
    assert site.stage.api.patch(f"{URL}/chat/scale", scale).status_code == 200
    site.until(lambda: site.ready(1))
    site.until(lambda: len(site.service()["scalings"]) == 2)
    last = site.service()["scalings"][-1]
    assert (last["before"], last["replicas"]) == (4, 1)
    assert last["reason"] == "another client of the API server"
    refused = site.run("scale", CHAT, "--replicas", 9)
    assert refused.code != 0
    assert (
        "allowed for default.chat: 1 to 4; `kubectl edit gangservice chat -n default`"
        in refused.err
    )


def test_what_ends_it_is_a_command_of_kubectl(site: Site) -> None:
    create(site)
    refused = site.run("cancel", CHAT)
    assert refused.code != 0
    assert "`kubectl delete gangservice chat -n default` ends it" in refused.err
    assert site.ready(2)


def test_pods_of_other_controllers_are_a_service_whose_number_others_decide(site: Site) -> None:
    deploy(site, "embed-a", "embed-b")
    row = site.service("default.embed")
    assert (row["keeper"], row["wanted"], row["min"], row["max"]) == ("pods", None, None, None)
    assert (row["ready"], row["state"], row["revision"]) == (2, "ready", "7d9f")
    assert [each["replica"] for each in row["replicas"]] == ["default.embed-a", "default.embed-b"]
    assert {each["revision"] for each in row["replicas"]} == {"7d9f"}
    assert site.run("services").out.splitlines()[1].split()[:4] == [
        "default.embed",
        "ready",
        "2/-",
        "-",
    ]
    refused = site.run("scale", "default.embed", "--replicas", 3)
    assert "`kubectl scale deployment NAME --replicas 3 -n default`" in refused.err
    assert "delete what makes them" in site.run("cancel", "default.embed").err
    assert site.run("why", "default.embed").out.startswith(
        "default.embed has 2 pods of other controllers: 2 are ready."
    )


def test_one_that_cannot_be_read_says_why(site: Site) -> None:
    body = yaml.safe_load(MANIFEST)
    body["spec"]["update"] = {"surge": 0, "unavailable": 0}
    assert site.stage.api.post(URL, body).status_code == 201
    site.until(lambda: CHAT in site.listed())
    assert site.service()["reason"].startswith("Misconfigured: update.surge and update.unavailable")
    assert "Misconfigured: update.surge" in site.run("why", CHAT).out
