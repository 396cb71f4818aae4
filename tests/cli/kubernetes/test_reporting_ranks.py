"""Ranks of pods report to a real daemon over TLS: real processes with the environment that their kubelet would give."""

import json
import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gantree import training
from support.certificates import certificate
from support.daemon import Program
from support.kubernetes.server.statuses import Json
from support.pods import PodStage
from support.yaml_text import read_yaml

SRC = Path(training.__file__).parents[2]
CRD = Path(__file__).parents[3] / "deploy/kubernetes/crds/gangjobs.yaml"
URL = "/apis/gantree.io/v1alpha1/namespaces/default/gangjobs"
READY = "ready: cluster kubernetes, 2 nodes, 8 GPUs"
MANIFEST = """
apiVersion: gantree.io/v1alpha1
kind: GangJob
metadata: {name: slow}
spec:
  gang:
    - role: worker
      members: 2
      processes: 4
      each: {gpus: 4}
      template: {spec: {containers: [{name: train, image: train:1}]}}
"""
SYNCHRONOUS = f"""
import os, socket, sys, time; sys.path.insert(0, {str(SRC)!r})
from gantree import training
rank, world = training.rank(), training.world_size()
address = ("127.0.0.1", int(os.environ["MASTER_PORT"]))

def joined():
    while True:
        try: return [socket.create_connection(address)]
        except ConnectionRefusedError: time.sleep(0.05)

def accepted():
    server = socket.create_server(address)
    return [server.accept()[0] for _ in range(world - 1)]

peers = joined() if rank else accepted()

def barrier():
    if rank: peers[0].sendall(b"x")
    for peer in peers: assert peer.recv(1)
    if not rank:
        for peer in peers: peer.sendall(b"x")

step = 0
while True:
    barrier()
    with training.step(step): time.sleep(0.13 if rank == 5 else 0.1)
    training.progress(step, loss=0.5)
    step += 1
"""
"""Ranks that wait for each other after every step, as an all-reduce makes them; rank 5 takes 1.3 times as long."""

Gantree = Callable[..., Any]


class Site:
    """A daemon that pods can reach, and the GangJob `slow`, all pods of which are bound."""

    def __init__(self, home: Path, stage: PodStage) -> None:
        self.stage, self.state = stage, home / "state"
        self.cert, key = certificate(home)
        self.url = f"https://127.0.0.1:{free_port()}"
        listen = self.url.removeprefix("https://")
        where = ("--api-server", stage.running.url, "--state", str(self.state), "--name", "a")
        tls = ("--tls-cert", str(self.cert), "--tls-key", str(key))
        self.command = ("kubernetes", *where, "--listen", listen, *tls, "--report-url", self.url)
        self.http = httpx.Client(verify=ssl.create_default_context(cafile=str(self.cert)))

    def report(self, token: str, body: bytes) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return self.http.post(f"{self.url}/v1/reports", content=body, headers=headers)

    def pods(self) -> dict[str, Json]:
        return {name: pod for name, pod in self.stage.pods().items() if name.startswith("slow-")}

    def tokens(self) -> list[str]:
        return [env_of(pod)["GANTREE_REPORT_TOKEN"] for pod in self.pods().values()]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as asked:
        port: int = asked.getsockname()[1]
        return port


def env_of(pod: Json) -> dict[str, str]:
    """The environment of a pod's container, as its kubelet makes it."""
    (container,) = pod["spec"]["containers"]
    found = {}
    for each in container["env"]:
        path = each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
        key = path.removeprefix("metadata.annotations['").removesuffix("']")
        known = {**pod["metadata"]["annotations"], "spec.nodeName": pod["spec"]["nodeName"]}
        found[each["name"]] = each["value"] if not path else known.get(key, "")
    return found


@contextmanager
def ranks_of(site: Site) -> Iterator[None]:
    """Four processes for each pod, with the numbers that torchrun gives them."""
    port = str(free_port())
    with ExitStack() as stack:
        for pod in site.pods().values():
            for local in range(4):
                env = env_of(pod)
                env |= {"RANK": str(int(env["RANK"]) + local), "LOCAL_RANK": str(local)}
                env |= {"MASTER_PORT": port, "SSL_CERT_FILE": str(site.cert)}
                env["PATH"] = os.environ["PATH"]
                process = subprocess.Popen([sys.executable, "-S", "-c", SYNCHRONOUS], env=env)
                stack.callback(process.wait)
                stack.callback(process.kill)
        yield


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("reports")
    with PodStage(home / "unused") as stage:
        stage.nodes("n[0-1]", gpus=4)
        stage.api.define(read_yaml(CRD.read_text()))
        yield Site(home, stage)


@pytest.fixture
def daemon(site: Site) -> Iterator[Program]:
    with Program(*site.command) as running:
        running.says(READY)
        if not site.pods():
            site.stage.api.post(URL, read_yaml(MANIFEST))
        while not site.stage.bound("slow-worker-0", "slow-worker-1"):
            time.sleep(0.02)
        yield running


def until_named(gantree: Gantree, site: Site) -> Json:
    """The row of the job, once one rank is named."""
    while True:
        (row,) = gantree("jobs", "--json", "--state", site.state).json()["jobs"]
        if row["stragglers"]:
            return dict(row)
        time.sleep(0.1)


def test_the_slow_rank_is_named_with_its_node_and_gpu_and_again_after_kill_9(
    site: Site, daemon: Program, gantree: Gantree
) -> None:
    with ranks_of(site):
        row = until_named(gantree, site)
        (named,) = row["stragglers"]
        node = site.pods()["slow-worker-1"]["spec"]["nodeName"]
        assert (named["rank"], named["role"], named["node"]) == (5, "worker", node)
        assert (named["gpus"], named["peers"], named["sign"]) == ([1], 7, "slow")
        assert (row["progress"]["loss"], row["progress"]["step"] > 0) == (0.5, True)
        sentence = f"rank 5 on {node} GPU 1 takes 1."
        assert sentence in gantree("jobs", "--state", site.state).out
        assert sentence in gantree("why", row["job"], "--state", site.state).out
        daemon.process.kill()
        daemon.process.wait()
        with Program(*site.command) as again:
            again.says(READY)
            assert until_named(gantree, site)["stragglers"][0]["rank"] == 5


HOSTILE: tuple[tuple[str, bytes, int], ...] = (
    ("", b"{}", 401),
    ("of-nobody", b"{}", 401),
    ("own", b" " * 21_000, 413),
    ("own", b"\xff\x00", 422),
    ("own", b"[" * 10_000, 422),
    ("own", b'{"rank": 1e3, "local_rank": 0, "local_world_size": 1}', 422),
    ("own", b'{"rank": 1, "local_rank": 0, "local_world_size": 1, "steps": 5}', 422),
)


def test_what_is_no_report_of_its_pod_changes_nothing(
    site: Site, daemon: Program, gantree: Gantree
) -> None:
    own, other = site.tokens()
    for token, body, status in HOSTILE:
        answer = site.report(own if token == "own" else token, body)
        assert (answer.status_code, answer.json().get("status", status)) == (status, status)
    mine = {"rank": 0, "local_rank": 0, "local_world_size": 4, "progress": {"step": 7, "at": 9e15}}
    assert site.report(own, json.dumps(mine).encode()).json() == {"again_s": 5.0}
    assert site.report(own, json.dumps(mine).encode()).status_code == 429
    mine["progress"] = {"step": 8}
    assert site.report(other, json.dumps(mine).encode()).status_code == 409
    (row,) = gantree("jobs", "--json", "--state", site.state).json()["jobs"]
    assert (row["progress"]["step"], row["stragglers"]) == (7, [])
    assert abs(row["progress"]["at"] - time.time()) < 3600
    for path in ("/v1/jobs", "/metrics", "/v1/cluster"):
        headers = {"Authorization": f"Bearer {own}"}
        assert site.http.get(site.url + path, headers=headers).status_code == 401
    assert "a report of a rank was refused" in daemon.says("refused")
    assert daemon.stop() == 0
