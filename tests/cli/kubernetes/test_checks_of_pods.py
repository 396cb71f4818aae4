"""Pods check their links before they start: a real daemon over TLS, and the program of the init container in each pod.

The test starts what a kubelet would start, with the environment of the container. Ranks meet over gloo; a slow node is
one whose programs are slowed (`support.slowed`). What needs PyTorch is skipped without.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import gantree as package
from support.certificates import certificate
from support.daemon import Program
from support.kubernetes.server.statuses import Json
from support.pods import PodStage
from support.slowed import SLOWED
from support.yaml_text import read_yaml

has_torch = find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not has_torch, reason="needs PyTorch (the extra torch)")
needs_no_torch = pytest.mark.skipif(has_torch, reason="PyTorch is installed here")
SRC = Path(package.__file__).parents[1]
CRD = Path(__file__).parents[3] / "deploy/kubernetes/crds/gangjobs.yaml"
JOBS = "/apis/gantree.io/v1alpha1/namespaces/default/gangjobs"
Gantree = Callable[..., Any]


class Site:
    """An API server with five nodes, the command of a daemon on it, and the programs in init containers of its pods."""

    def __init__(self, home: Path, stage: PodStage, slow: str) -> None:
        self.stage, self.state, self._slow = stage, home / "state", slow
        self.cert, key = certificate(home)
        url = f"https://127.0.0.1:{free_port()}"
        where = ("--api-server", stage.running.url, "--state", str(self.state), "--name", "a")
        tls = ("--tls-cert", str(self.cert), "--tls-key", str(key))
        checks = ("--report-url", url, "--check-image", "check:1")
        listen = ("--listen", url.removeprefix("https://"))
        self.command = ("kubernetes", *where, *listen, *tls, *checks)
        self._programs: dict[str, tuple[str, subprocess.Popen[str]]] = {}
        self._ports: dict[str, str] = {}
        self.printed: list[str] = []

    def submit(self, members: int, **check: Any) -> None:
        container = {"name": "train", "image": "train:1"}
        role = {
            "role": "w", "members": members, "each": {"cpus": 90},
            "template": {"spec": {"containers": [container]}},
        }  # fmt: skip
        body = {
            "apiVersion": "gantree.io/v1alpha1", "kind": "GangJob", "metadata": {"name": "g"},
            "spec": {"gang": [role], "check": check, "restarts": {"limit": 0}},
        }  # fmt: skip
        assert self.stage.api.post(JOBS, body).status_code == 201

    def status(self) -> Json:
        found: Json = self.stage.api.get(f"{JOBS}/g").json().get("status") or {}
        return found

    def condition(self) -> Json:
        told = self.status().get("conditions", ())
        return next((each for each in told if each["type"] == "LinksChecked"), {})

    def until(self, is_so: Callable[[], bool]) -> None:
        """Do what kubelets do until something is so."""
        deadline = time.monotonic() + 300
        while not is_so():
            assert time.monotonic() < deadline, (self.stage.told, self.status())
            self._work()
            time.sleep(0.05)

    def _work(self) -> None:
        """Start programs of pods that initialize, take note of their ends, and stop those of pods that are gone."""
        pods = self.stage.pods()
        for name in list(self.stage.kubelet.initializing):
            if name in pods and name not in self._programs:
                self._programs[name] = (pods[name]["metadata"]["uid"], self._started(pods[name]))
        for name, (uid, program) in list(self._programs.items()):
            is_there = name in pods and pods[name]["metadata"]["uid"] == uid
            if not is_there or "deletionTimestamp" in pods[name]["metadata"]:
                program.terminate()
            elif program.poll() is not None:
                self.stage.running.run(self.stage.kubelet.end_init(name, program.returncode))
            if program.poll() is not None or not is_there:
                self.printed.append(program.communicate()[0])
                del self._programs[name]

    def _started(self, pod: Json) -> "subprocess.Popen[str]":
        (container,) = pod["spec"]["initContainers"]
        attempt = pod["metadata"]["annotations"]["gantree.io/attempt"]
        env = environment(pod, container) | {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": self._ports.setdefault(attempt, str(free_port())),
            "SSL_CERT_FILE": str(self.cert),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{SRC}:{os.environ.get('PYTHONPATH', '')}",
        }
        python, *arguments = container["command"]
        assert python == "python3"
        prefix = SLOWED if pod["spec"]["nodeName"] == self._slow else []
        command = [*prefix, sys.executable, *arguments]
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)

    def close(self) -> None:
        for _, program in self._programs.values():
            program.kill()
            program.communicate()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as asked:
        port: int = asked.getsockname()[1]
        return port


def environment(pod: Json, container: Json) -> dict[str, str]:
    """The environment of a container, as its kubelet makes it."""
    found = {}
    for each in container["env"]:
        path = each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
        key = path.removeprefix("metadata.annotations['").removesuffix("']")
        known = {**pod["metadata"]["annotations"], "spec.nodeName": pod["spec"]["nodeName"]}
        found[each["name"]] = each["value"] if not path else known.get(key, "")
    return found


@contextmanager
def site_of(home: Path, slow: str = "") -> Iterator[Site]:
    with PodStage(home / "unused") as stage:
        stage.nodes("n[0-4]", gpus=0)
        stage.api.define(read_yaml(CRD.read_text()))
        site = Site(home, stage, slow)
        try:
            yield site
        finally:
            site.close()


@contextmanager
def daemon(site: Site) -> Iterator[Program]:
    with Program(*site.command) as running:
        running.says("ready: cluster kubernetes, 5 nodes")
        yield running


@needs_no_torch
def test_without_pytorch_in_the_image_pods_start_and_the_gangjob_says_why(tmp_path: Path) -> None:
    with site_of(tmp_path) as site, daemon(site):
        site.submit(2, collectiveSeconds=60)
        site.until(lambda: site.status().get("phase") == "Running")
        site.until(lambda: site.condition().get("reason") == "Skipped")
        assert "PyTorch is not installed in the image of the check" in site.condition()["message"]


@needs_torch
def test_a_slow_node_is_named_marked_and_replaced_and_then_the_gang_starts(
    tmp_path: Path, gantree: Gantree
) -> None:
    with site_of(tmp_path, "n1") as site, daemon(site):
        site.submit(3, collectiveSeconds=240)
        site.until(lambda: site.condition().get("reason") == "Checking")
        (row,) = gantree("jobs", "--json", "--state", site.state).json()["jobs"]
        assert row["check"]["sentence"].startswith("checking its links, ")
        site.until(lambda: site.status().get("phase") == "Running")
        assert (site.status()["attempt"], site.status()["failures"]) == (2, 0)
        assert "n1" not in site.status()["nodes"]
        site.until(lambda: site.condition().get("status") == "True")
        assert any("links passed their check" in text for text in site.printed)
        assert site.condition()["message"] == "links passed their check: 3 members, 3 pairs"
        nodes = gantree("nodes", "--json", "--state", site.state).json()["nodes"]
        (sick,) = [each for each in nodes if each["state"] != "ready"]
        assert (sick["node"], sick["state"]) == ("n1", "cordoned")
        assert "its all-reduces with each other member reach" in sick["reason"]


@needs_torch
def test_a_daemon_that_is_killed_in_the_middle_of_a_check_judges_it_after_its_restart(
    tmp_path: Path,
) -> None:
    with site_of(tmp_path) as site:
        with daemon(site) as running:
            site.submit(3, collectiveSeconds=240)
            site.until(lambda: site.condition().get("reason") == "Checking")
            running.process.kill()
            running.process.wait()
        with daemon(site):
            site.until(lambda: site.status().get("phase") == "Running")
            assert site.status()["attempt"] == 1
            site.until(lambda: site.condition().get("status") == "True")
