"""A daemon and a Kubernetes cluster behind one front: processes of this machine, with pods that are processes, too."""

import json
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from gantree.api.client.client import Client
from gantree.model.errors import BadInput, Conflict
from support.daemon import Daemon, Program
from support.federation.cut_link import CutLink
from support.federation.world import World, until
from support.kubernetes.controllers.processes import ProcessKubelet
from support.pods import PodStage

CRDS = Path(__file__).parents[2] / "deploy/kubernetes/crds"
HOME = "/apis/gantree.io/v1alpha1/namespaces/default"
GANGJOBS = f"{HOME}/gangjobs"
CLUSTER = """
name: east
tiers: [node]
machines: {m: {gpus: 1, gpu: H100-80GB, cpus: 8, memory_GiB: 64}}
nodes: [{names: n0, machine: m}]
"""
FEDERATION = """
name: world
lease: 3s
margin: 500ms
heartbeat: 200ms
lost_after: 1s
clusters:
  - {{name: east, url: "{east}", token_file: "{east_token}", region: eu, storage: [/]}}
  - {{name: pods, url: "{pods}", token_file: "{pods_token}", region: us, data: [imagenet], storage: [/]}}
links: [{{between: [eu, us], USD_per_GiB: 0.02, bandwidth_GBps: 1}}]
"""
SERVER = """
import os
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *told):
        pass
class Server(HTTPServer):
    allow_reuse_port = True
Server(("", int(os.environ["PORT"])), Handler).serve_forever()
"""
"""All replicas are on one machine, and share the port."""
NEAR = "data: [{name: imagenet, GiB: 1000}]"
"""Of a job that starts in the Kubernetes cluster first, as its data is there."""


class Stage(PodStage):
    """Two nodes of eight GPUs whose pods are processes."""

    open_kubelet = ProcessKubelet
    kubelet: ProcessKubelet

    def gangjobs(self, of: str) -> list[dict[str, Any]]:
        """The GangJobs of a job of the federation."""
        return [
            each
            for each in self.api.get(GANGJOBS).json()["items"]
            if each["metadata"]["annotations"]["gantree.io/assignment"].split("/")[1] == of
        ]


class KubernetesWorld(World):
    """With the Kubernetes cluster, and the gantree there."""

    stage: Stage
    gantree: Program

    def start_gantree(self, listen: str = "127.0.0.1:0") -> str:
        """Where it answers."""
        self.gantree = Program(
            "kubernetes", "--api-server", self.stage.running.url, "--state", str(self.folder / "pods"),
            "--name", "a", "--listen", listen, "--federation-namespace", "default",
        )  # fmt: skip
        ready = self.gantree.says(" ready: ")
        return str(re.findall(r"http://[^\s,]+", ready)[0])

    def kill_gantree(self) -> None:
        self.gantree.process.kill()
        self.gantree.process.wait()
        self.gantree.said.close()

    def pods(self, of: str) -> list[str]:
        """The pods of a job of the federation."""
        return [name for name in self.stage.pods() if name.startswith(f"{of}-")]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesWorld]:
    folder = tmp_path_factory.mktemp("world")
    with ExitStack() as opened:
        stage = opened.enter_context(Stage(folder / "unused"))
        for name in ("gangjobs", "gangservices"):
            stage.api.define(yaml.safe_load((CRDS / f"{name}.yaml").read_text()))
        stage.nodes("n[0-1]")
        east = opened.enter_context(Daemon(folder / "east", CLUSTER, listen="127.0.0.1:0"))
        made = KubernetesWorld(folder, {"east": east}, {}, Client(folder / "front"))
        made.stage = stage
        told: dict[str, str] = {}
        opened.callback(made.kill_gantree)
        for name, url in (("east", east.url), ("pods", made.start_gantree())):
            port = urlsplit(url).port
            assert port is not None
            made.links[name] = link = opened.enter_context(CutLink(port))
            told |= {name: link.url, f"{name}_token": str(folder / name / "token")}
        (folder / "federation.yaml").write_text(FEDERATION.format(**told))
        made.start_front()
        opened.callback(made.kill_front)
        until(lambda: all(row["state"] == "ready" for row in made.status().values()))
        yield made
        for link in made.links.values():
            link.mend()


def test_a_job_becomes_a_gangjob_where_it_starts_first_and_ends_as_that_does(
    world: KubernetesWorld,
) -> None:
    said = world.submit("near", extra=NEAR, image="train:1")
    until(lambda: world.is_at("near", "pods") and "alone" in said.read_text())
    sentence = world.client.why("near")["sentence"]
    assert "near is in pods as default/near-" in sentence
    assert "pods has the earliest start: east starts it at once, moves imagenet" in sentence
    assert "Holds 1 GPU on 1 node" in sentence  # what gantree says in that cluster
    (gangjob,) = world.stage.gangjobs("near")
    (container,) = gangjob["spec"]["gang"][0]["template"]["spec"]["containers"]
    assert container["image"] == "train:1"
    assert gangjob["metadata"]["labels"]["gantree.io/federation"] == "world"
    Path(f"{said}.end").touch()
    until(lambda: world.job("near")["phase"] == "succeeded")
    assert world.stage.gangjobs("near")[0]["status"]["phase"] == "Succeeded"


def test_what_no_pod_can_be_made_of_goes_elsewhere_and_why_has_the_reason(
    world: KubernetesWorld,
) -> None:
    world.submit("bare", extra=NEAR)
    until(lambda: world.is_at("bare", "east"))
    sentence = world.client.why("bare")["sentence"]
    assert "pods cannot start it (" in sentence
    assert "a GangJob of Kubernetes has no role without image" in sentence
    with pytest.raises(BadInput, match="a GangJob of Kubernetes has no role without image"):
        world.client.submit(
            "name: big\ngang: [{role: w, members: 2, each: {gpus: 1}, run: [a]}]\n"
        )  # east has one GPU
    world.client.cancel("bare")
    until(partial(world.has_ended, "bare"))


def test_a_job_that_is_cancelled_at_the_front_has_ended_once_its_pods_are_gone(
    world: KubernetesWorld,
) -> None:
    said = world.submit("short", extra=NEAR, image="train:1")
    until(lambda: world.is_at("short", "pods") and "alone" in said.read_text())
    world.client.cancel("short")
    until(partial(world.has_ended, "short"))
    assert world.stage.gangjobs("short") == []
    assert world.pods("short") == []


def test_a_job_stays_in_a_kubernetes_cluster_that_is_cut_off_until_an_operator_says_that_it_is_lost(
    world: KubernetesWorld,
) -> None:
    said = world.submit("train", extra=f"{NEAR}\ncheckpoint: {{path: ckpt}}", image="train:1")
    until(lambda: world.is_at("train", "pods") and "alone" in said.read_text())
    world.links["pods"].cut()
    until(lambda: world.status()["pods"]["state"] == "lost")
    until(lambda: (world.status()["pods"]["silent_s"] or 0.0) > 5.0)  # lease and margin are over
    assert world.job("train")["cluster"] == "pods"
    world.links["pods"].mend()
    until(lambda: world.status()["pods"]["state"] == "ready")
    until(lambda: world.is_at("train", "pods"))
    assert said.read_text().splitlines() == ["alone"]  # it went on all the time
    with pytest.raises(Conflict, match="pods answers"):
        world.lost("pods")
    world.links["pods"].cut()
    until(lambda: world.status()["pods"]["state"] == "lost")
    world.kill_gantree()
    (pod,) = world.pods("train")
    world.stage.kubelet.process_of(pod).kill()
    world.lost("pods")
    until(lambda: world.is_at("train", "east") and said.read_text().count("alone") == 2)
    assert "It goes on from its last checkpoint in" in world.client.why("train")["sentence"]
    world.start_gantree(f"127.0.0.1:{world.links['pods'].port}")
    there = Client(world.folder / "pods")
    until(lambda: held(there, "train") and world.stage.phase(pod) == "Pending")
    world.links["pods"].mend()
    until(lambda: world.status()["pods"]["state"] == "ready")
    until(lambda: world.stage.gangjobs("train") == [])
    assert world.is_at("train", "east")
    assert "TWICE" not in said.read_text()


def test_a_service_of_all_regions_is_a_gangservice_there_and_one_service_for_routers(
    world: KubernetesWorld,
) -> None:
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    run = json.dumps([sys.executable, "-I", "-S", "-c", SERVER])
    text = (
        f"kind: service\nname: chat\nregions: all\nport: {port}\ndrain: 0s\n"
        "ready: {http: /health, every: 100ms}\n"
        f"gang: [{{role: server, members: 1, each: {{cpus: 1}}, image: serve, run: {run}}}]\n"
    )
    world.client.submit(f"{text}replicas: {{min: 1, max: 2}}")
    until(
        lambda: (
            gangservice(world)["spec"]["replicas"]
            == {"min": 1, "max": 2, "wanted": 1, "floor": 0, "spare": 0}
        )
    )
    until(lambda: world.replicas().keys() == {"east/chat.1", "pods/default.chat-1"})
    (row,) = world.client.services()
    assert (row["service"], row["wanted"], row["cluster"]) == ("chat", 2, "east,pods")
    (routed,) = world.client.routes()["services"]
    assert routed["service"] == "chat"
    world.client.scale_service("chat", 2)
    until(lambda: gangservice(world)["spec"]["replicas"]["wanted"] == 2)
    until(lambda: world.daemons["east"].client.service("chat")["wanted"] == 2)
    world.client.submit(f"{text}replicas: {{min: 1, max: 3}}")
    until(lambda: gangservice(world)["spec"]["replicas"]["max"] == 3)
    world.client.cancel("chat")
    until(lambda: world.stage.api.get(f"{HOME}/gangservices/chat").status_code == 404)
    until(partial(world.has_ended, "chat.region2"))
    until(lambda: world.pods("chat") == [] and world.daemons["east"].client.services() == [])


def gangservice(world: KubernetesWorld) -> dict[str, Any]:
    found: dict[str, Any] = world.stage.api.get(f"{HOME}/gangservices/chat").json()
    return found if "spec" in found else {"spec": {"replicas": {}}}


def held(there: Client, of: str) -> bool:
    """Whether a job of the federation waits in its cluster for a lease, and nothing of it runs."""
    return [row["phase"] for row in there.jobs() if f"/{of}-" in row["name"] and row["held"]] == [
        "pending"
    ]
