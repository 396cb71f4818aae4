"""A service beside training on Kubernetes, through a day of load: `make demo-serve` with pods.

`gantree kubernetes` and `gantree route` as processes, the API server of the tests, and a kubelet whose pods are
processes: servers that answer requests through HAProxy, and training that saves when it is asked to.
"""

import json
import re
import shutil
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.daemon import Program
from support.kubernetes import training_pod
from support.kubernetes.controllers.processes import ProcessKubelet
from support.kubernetes.server.statuses import Json
from support.pods import PodStage
from support.services import SERVER
from support.yaml_text import read_yaml

pytestmark = pytest.mark.skipif(not shutil.which("haproxy"), reason="HAProxy is not here")
CRDS = Path(__file__).parents[3] / "deploy/kubernetes/crds"
HOME = "/apis/gantree.io/v1alpha1/namespaces/default"
ROUTE = """
import sys
from gantree.cli.main import main
main(["route", "--listen", "127.0.0.1:0", "--state", sys.argv[1]])
"""
SERVICE = """
apiVersion: gantree.io/v1alpha1
kind: GangService
metadata: {name: chat}
spec:
  replicas: {min: 3, max: 6}
  port: @PORT@
  ready: {http: /health, everySeconds: 1}
  drainSeconds: 20
  scale: {targets: [{metric: concurrency, target: 2}], everySeconds: 1, down: {stabiliseSeconds: 2}}
  route: {models: [tiny], concurrency: 2}
  template:
    spec:
      restarts: {backoffSeconds: 0.1}
      gang:
        - role: server
          each: {gpus: 1}
          template:
            spec:
              containers:
                - name: serve
                  image: serve:1
                  env: [{name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
                  command: ["@PYTHON@", -I, -S, "@SERVER@", --host, $(POD_IP), --seconds, "0.3"]
"""
TRAINING = """
apiVersion: gantree.io/v1alpha1
kind: GangJob
metadata: {name: training}
spec:
  gang:
    - role: worker
      members: 2
      each: {gpus: 2}
      template:
        metadata: {annotations: {gantree.io/checkpoint: all, gantree.io/checkpoint-grace: 5m}}
        spec:
          containers:
            - name: train
              image: train:1
              env: [{name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
              command: ["@PYTHON@", -I, -S, "@TRAINING@", "@API@", "@STATE@"]
"""
LEAST, MOST = 3, 6
"""Replicas at night and by day."""
NIGHT, DAY = 3, 20
"""Requests at a time: a replica is for two, and by day some of them wait."""
BODY = json.dumps({"model": "tiny", "prompt": "hello", "max_tokens": 4})
WITHIN_S = 300.0


class Load:
    """Clients that send one request after the other, and what came of them."""

    def __init__(self, url: str) -> None:
        self._where = urlsplit(url).netloc
        self._wanted, self._enough = 0, threading.Event()
        self._clients: list[threading.Thread] = []
        self.answers: list[tuple[int, str]] = []

    def set(self, clients: int) -> None:
        """From now on so many requests at a time."""
        self._wanted = clients
        for number in range(len(self._clients), clients):
            client = threading.Thread(target=self._send, args=(number,))
            self._clients.append(client)
            client.start()

    def by(self) -> Counter[str]:
        """How many each replica has answered."""
        good = [told for status, told in self.answers if status == 200]
        return Counter(json.loads(told)["system_fingerprint"] for told in good)

    def models(self) -> list[str]:
        """The models that the router knows of."""
        return [row["id"] for row in json.loads(self._ask("GET", "/v1/models")[1])["data"]]

    def stop(self) -> None:
        self._enough.set()
        for client in self._clients:
            client.join(WITHIN_S)

    def _send(self, number: int) -> None:
        while not self._enough.is_set():
            if number < self._wanted:
                self.answers.append(self._ask("POST", "/v1/completions", BODY))
            else:
                time.sleep(0.05)

    def _ask(self, method: str, path: str, body: str | None = None) -> tuple[int, str]:
        """Status and body of an answer; 0 and why where none came."""
        connection = HTTPConnection(self._where, timeout=WITHIN_S)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError as error:
            return 0, repr(error)
        finally:
            connection.close()


class Stage(PodStage):
    """One node of eight GPUs whose pods are processes; gantree is started as a process of its own."""

    open_kubelet = ProcessKubelet
    kubelet: ProcessKubelet

    def make(self, kind: str, text: str, **told: str) -> None:
        """Create an object of gantree's, with words filled in."""
        for name, value in told.items():
            text = text.replace(f"@{name}@", value)
        answer = self.api.post(f"{HOME}/{kind}", read_yaml(text))
        assert answer.status_code == 201, answer.text

    def wait(self, is_so: Callable[[], object]) -> None:
        """Until something is so."""
        deadline = time.monotonic() + WITHIN_S
        while not is_so():
            assert time.monotonic() < deadline, (self.service(), self.pods().keys())
            time.sleep(0.05)

    def service(self) -> Json:
        """The status of the service."""
        found: Json = self.api.get(f"{HOME}/gangservices/chat").json().get("status", {})
        return found

    def serve(self, replicas: int) -> bool:
        """Whether so many replicas are wanted, there and ready, and no other is left."""
        told = self.service()
        counts = ("wanted", "replicas", "readyReplicas")
        return [told.get(each) for each in counts] == [replicas] * 3 and not told[
            "drainingReplicas"
        ]

    def gangjob(self, name: str) -> Json:
        """The status of a GangJob."""
        found: Json = self.api.get(f"{HOME}/gangjobs/{name}").json().get("status", {})
        return found

    def trains(self) -> bool:
        """Whether training runs."""
        return bool(self.gangjob("training").get("phase") == "Running")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    (tmp_path / "steps").mkdir()
    with Stage(tmp_path / "unused") as stage:
        for name in ("gangjobs", "gangservices"):
            stage.api.define(read_yaml((CRDS / f"{name}.yaml").read_text()))
        stage.nodes("n0")
        yield stage


def free_port() -> str:
    """One at which nothing listens on any address."""
    with socket.create_server(("", 0)) as asked:
        return str(asked.getsockname()[1])


def test_a_service_grows_at_the_cost_of_training_and_gives_back_without_a_failed_request(
    stage: Stage, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    where = ("--api-server", stage.running.url, "--state", str(state), "--name", "a")
    with Program("kubernetes", *where) as daemon, Program("-c", ROUTE, str(state)) as route:
        daemon.says("ready: cluster kubernetes, ")
        load = Load(re.findall(r"http://\S+", route.says("listens at"))[0])
        here = {"PYTHON": sys.executable, "API": stage.running.url, "STATE": str(tmp_path)}
        stage.make("gangservices", SERVICE, SERVER=str(SERVER), PORT=free_port(), **here)
        stage.make("gangjobs", TRAINING, TRAINING=training_pod.__file__, **here)
        try:
            tell(stage, load)
            stage.wait(lambda: len(steps_of(tmp_path / "steps", 2)) == 2)
        finally:
            load.stop()
        assert {status for status, _ in load.answers} == {200}
        assert len(load.by()) >= MOST
        assert (route.stop(), daemon.stop()) == (0, 0)
    first, second = (steps_of(tmp_path / "steps", attempt) for attempt in (1, 2))
    for pod, steps in first.items():
        assert 1 < second[pod][0] <= steps[-1] + 1, "it went on where it had saved"


def tell(stage: Stage, load: Load) -> None:
    """A night, a day on which one replica is killed, and an evening."""
    stage.wait(lambda: stage.serve(LEAST) and stage.trains())
    stage.wait(lambda: "tiny" in load.models())
    load.set(NIGHT)
    stage.wait(lambda: len(load.by()) == LEAST)
    assert stage.trains(), "it has room beside them"
    load.set(DAY)
    stage.wait(lambda: stage.serve(MOST))
    stage.wait(lambda: not stage.trains())
    stage.kubelet.process_of("chat-2-server-0").kill()
    stage.wait(lambda: stage.gangjob("chat-2")["attempt"] == 2 and stage.serve(MOST))
    load.set(NIGHT)
    stage.wait(lambda: stage.serve(LEAST) and stage.trains())


def steps_of(directory: Path, attempt: int) -> dict[str, list[int]]:
    """The steps that each pod has taken in an attempt, if it has taken any."""
    files = directory.glob(f"{attempt}.*")
    found = {file.name.partition(".")[2]: file.read_text().splitlines() for file in files}
    return {pod: list(map(int, steps)) for pod, steps in found.items() if steps}
