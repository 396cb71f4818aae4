"""What the webhook adds to pods, asked by an API server over TLS as a real one asks, and what it leaves alone."""

import asyncio
import base64
import json
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from gantree.cli.kubernetes.commands import app
from gantree.executors.kubernetes.tools import webhook
from gantree.executors.kubernetes.tools.admission import Site, patch_of
from gantree.executors.kubernetes.tools.webhook import reviewed, serve
from gantree.model.errors import BadInput
from support.certificates import certificate
from support.kubernetes.server.patch import json_patch
from support.kubernetes.server.statuses import Json
from support.pods import PodStage

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
SITE = Site("gantree", (("NCCL_SOCKET_IFNAME", "eth0"),), "rdma/hca", 2)
GANG = {"gantree.io/gang": "llama"}


def pod(*containers: Json, **told: Any) -> Json:
    meta = {"labels": told.pop("labels", GANG), "annotations": told.pop("annotations", {})}
    return {
        "metadata": {"generateName": "llama-", **meta},
        "spec": {"schedulerName": "gantree", "containers": list(containers), **told},
    }


def container(gpus: int = 0, rdma: int = 0, **told: Any) -> Json:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    limits |= {"rdma/ib": str(rdma)} if rdma else {}
    return {"name": "main", "image": "train", "resources": {"limits": limits}, **told}


def added(told: Json, site: Site = SITE) -> Json:
    """The pod as the webhook makes it; it has nothing to add a second time."""
    made = json_patch(told, patch_of(told, site))
    assert patch_of(made, site) == []
    return made


def env(made: Json, number: int = 0) -> dict[str, str]:
    found = made["spec"]["containers"][number].get("env", [])
    return {
        each["name"]: each.get("value") or each["valueFrom"]["fieldRef"]["fieldPath"]
        for each in found
    }


def lock(made: Json) -> list[str]:
    context = made["spec"]["containers"][0].get("securityContext", {})
    found: list[str] = context.get("capabilities", {}).get("add", [])
    return found


def test_a_pod_of_a_gang_learns_its_rank_from_its_annotations() -> None:
    own = {"name": "SEED", "value": "$(RANK)"}
    made = added(pod(container(gpus=8, env=[own]), container()))
    assert env(made)["RANK"] == "metadata.annotations['gantree.io/rank']"
    assert env(made)["PET_NNODES"] == "metadata.annotations['gantree.io/members']"
    assert made["spec"]["containers"][0]["env"][-1] == own
    assert env(made)["NCCL_SOCKET_IFNAME"] == "eth0"
    assert "NCCL_SOCKET_IFNAME" not in env(made, 1)
    assert "RANK" in env(made, 1)
    assert "MASTER_ADDR" not in env(made)


def test_on_the_network_of_its_node_it_knows_where_rank_0_is() -> None:
    made = env(added(pod(container(), hostNetwork=True)))
    assert made["MASTER_ADDR"] == "metadata.annotations['gantree.io/master-node']"
    assert made["MASTER_PORT"] == "29500"


def test_whoever_has_ranks_from_somebody_else_keeps_them() -> None:
    told = env(added(pod(container(env=[{"name": "RANK", "value": "3"}]), hostNetwork=True)))
    assert told["RANK"] == "3"
    assert "WORLD_SIZE" not in told
    assert "MASTER_ADDR" not in told
    assert told["GANTREE_NODE"] == "spec.nodeName"


LEFT_ALONE: tuple[Json, ...] = (
    pod(container(), schedulerName="other"),
    pod(container(), labels={}),
    pod(container(), annotations={"gantree.io/environment": "none"}),
    pod(container(rdma=1), labels={}),
    {"spec": {"schedulerName": "gantree", "containers": "none"}},
    {
        "spec": {"schedulerName": "gantree", "containers": [{"env": 1}]},
        "metadata": {"labels": GANG},
    },
    {"spec": {"schedulerName": "gantree", "containers": [{}]}, "metadata": {"labels": 5}},
    pod(
        container(gpus=8, rdma=1, securityContext={"capabilities": {"add": 7}}),
        annotations={"gantree.io/rdma": "true"},
    ),
    {},
)


@pytest.mark.parametrize("told", LEFT_ALONE, ids=range(len(LEFT_ALONE)))
def test_others_are_left_alone(told: Json) -> None:
    assert patch_of(told, SITE) == []


def test_rdma_and_what_it_needs_are_for_pods_that_ask() -> None:
    asks = {"gantree.io/rdma": "true"}
    made = added(pod(container(gpus=8), annotations=asks))
    limits = made["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"nvidia.com/gpu": "8", "rdma/hca": "2"}
    assert lock(made) == ["IPC_LOCK"]
    own = added(pod(container(gpus=8, rdma=1), annotations=asks))
    assert "rdma/hca" not in own["spec"]["containers"][0]["resources"]["limits"]
    assert lock(own) == ["IPC_LOCK"]
    assert lock(added(pod(container(gpus=8, rdma=1)))) == []
    assert lock(added(pod(container(), annotations=asks))) == []
    context = {"capabilities": {"add": ["NET_RAW"], "drop": ["ALL"]}, "runAsUser": 1}
    kept = added(pod(container(gpus=8, securityContext=context), annotations=asks))
    assert kept["spec"]["containers"][0]["securityContext"] == {
        **context,
        "capabilities": {"add": ["NET_RAW", "IPC_LOCK"], "drop": ["ALL"]},
    }
    privileged = pod(container(gpus=8, securityContext={"privileged": True}), annotations=asks)
    assert lock(added(privileged)) == []


def review(told: Json | None, **changed: Any) -> bytes:
    asked = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return json.dumps({**asked, "request": {"uid": "u1", "object": told}, **changed}).encode()


def test_an_answer_is_a_review_of_the_same_request() -> None:
    told = json.loads(reviewed(review(pod(container())), SITE))
    assert (told["apiVersion"], told["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response = told["response"]
    assert (response["uid"], response["allowed"], response["patchType"]) == (
        "u1",
        True,
        "JSONPatch",
    )
    assert json.loads(base64.b64decode(response["patch"]))[0]["path"] == "/spec/containers/0/env"
    nothing = json.loads(reviewed(review(None), SITE))["response"]
    assert nothing == {"uid": "u1", "allowed": True}


@pytest.mark.parametrize(
    "body", [b"", b"[]", review(None, request={}), review(None, kind="Status")]
)
def test_what_is_no_review_is_refused(body: bytes) -> None:
    with pytest.raises(BadInput):
        reviewed(body, SITE)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextmanager
def served(home: Path) -> Iterator[str]:
    """The webhook on a thread, over TLS; gives its address."""
    (cert, key), port = certificate(home), free_port()
    loop = asyncio.new_event_loop()
    task = loop.create_task(serve(SITE, "127.0.0.1", port, cert, key))
    thread = threading.Thread(target=_until_cancelled, args=(loop, task))
    thread.start()
    try:
        yield f"https://127.0.0.1:{port}"
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()


@contextmanager
def commanded(home: Path, *words: str) -> Iterator[str]:
    """The webhook as its command starts it, in a process of its own."""
    (cert, key), port = certificate(home), free_port()
    listen = f"--listen=127.0.0.1:{port}"
    command = [sys.executable, "-m", "gantree.cli", "kubernetes", "webhook", listen]
    process = subprocess.Popen([*command, f"--tls-cert={cert}", f"--tls-key={key}", *words])
    try:
        yield f"https://127.0.0.1:{port}"
    finally:
        process.terminate()
        assert process.wait(60) in (0, -signal.SIGTERM)


def _until_cancelled(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[None]") -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(task)
    except asyncio.CancelledError:
        loop.close()


def trusted(home: Path) -> httpx.Client:
    return httpx.Client(verify=ssl.create_default_context(cafile=str(home / "cert.pem")))


def ready(client: httpx.Client, url: str) -> None:
    deadline = time.monotonic() + 300
    while True:
        try:
            assert client.get(f"{url}/healthz").status_code == 200
        except httpx.TransportError:
            assert time.monotonic() < deadline, "it does not answer"
            time.sleep(0.02)
        else:
            return


def configuration(home: Path, url: str, **told: Any) -> Json:
    bundle = base64.b64encode((home / "cert.pem").read_bytes()).decode()
    return {
        "metadata": {"name": "gantree"},
        "webhooks": [
            {
                "name": "pods.gantree.io",
                "clientConfig": {"url": f"{url}/mutate", "caBundle": bundle},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Ignore",
                "timeoutSeconds": 5,
                "rules": [
                    {
                        "operations": ["CREATE"],
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "resources": ["pods"],
                        "scope": "Namespaced",
                    }
                ],
                "matchConditions": [
                    {"name": "ours", "expression": "object.spec.schedulerName == 'gantree'"}
                ],
                **told,
            }
        ],
    }


def test_an_api_server_asks_it_about_pods_that_are_made_and_the_gang_runs(tmp_path: Path) -> None:
    words = ("--env=NCCL_SOCKET_IFNAME=eth0", "--rdma-resource=rdma/hca=2")
    with commanded(tmp_path, *words) as url, PodStage(tmp_path) as stage:
        with trusted(tmp_path) as client:
            ready(client, url)
        answer = stage.api.post(CONFIGURATIONS, configuration(tmp_path, url))
        assert answer.status_code == 201, answer.text
        stage.nodes("n[0-1]")
        stage.start()
        size = {"gantree.io/gang-size": "2"}
        for number in range(2):
            stage.pod(f"p{number}", gpus=8, labels=GANG, annotations=size)
        stage.until(lambda: all(stage.phase(f"p{number}") == "Running" for number in range(2)))
        told = stage.pods()["p1"]
        assert env(told)["RANK"] == "metadata.annotations['gantree.io/rank']"
        assert told["metadata"]["annotations"]["gantree.io/rank"] == "1"
        assert env(told)["NCCL_SOCKET_IFNAME"] == "eth0"
        asks = stage.pod("asks", gpus=1, annotations={"gantree.io/rdma": "true"})
        assert asks["spec"]["containers"][0]["resources"]["limits"]["rdma/hca"] == "2"
        other = stage.pod("other", spec={"schedulerName": "default-scheduler"})
        assert "env" not in other["spec"]["containers"][0]


def test_without_an_answer_pods_are_made_as_they_are(tmp_path: Path) -> None:
    certificate(tmp_path)
    with PodStage(tmp_path) as stage:
        stage.api.post(CONFIGURATIONS, configuration(tmp_path, "https://127.0.0.1:1"))
        assert "env" not in stage.pod("p0", labels=GANG)["spec"]["containers"][0]


def test_a_certificate_that_is_written_anew_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "LOOKS_EVERY_S", 0.01)
    with served(tmp_path) as url:
        with trusted(tmp_path) as client:
            ready(client, url)
        (tmp_path / "cert.pem").write_text("half of")
        time.sleep(0.1)
        certificate(tmp_path)
        with trusted(tmp_path) as client:
            ready(client, url)
            assert client.get(f"{url}/mutate").status_code == 405
            assert client.post(f"{url}/mutate", content=b"{}").status_code == 400
            assert client.get(f"{url}/").status_code == 404
            too_much = b" " * (webhook.MOST_BYTES + 1)
            assert client.post(f"{url}/mutate", content=too_much).status_code == 413


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--env", "NCCL"], "--env: found 'NCCL'; allowed: NAME=VALUE"),
        (["--rdma-resource", "hca"], "--rdma-resource: found 'hca'"),
        (["--listen", "here"], "--listen: found 'here'"),
        ([], "--tls-cert"),
    ],
)
def test_options_that_mean_nothing_are_refused(words: list[str], said: str, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    given = (
        ["webhook", f"--tls-cert={cert}", f"--tls-key={key}", *words]
        if words
        else ["webhook", "--tls-cert=no"]
    )
    told = CliRunner().invoke(app, given)
    assert told.exit_code != 0
    assert said in str(told.exception) + told.output
