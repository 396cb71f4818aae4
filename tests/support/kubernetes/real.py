"""A real API server for the tests that state what a server does: kube-apiserver and etcd of KUBEBUILDER_ASSETS.

    with real_server(tmp_path) as (url, token):
        ...

It has no controllers but those that are started beside it, no scheduler and no kubelet, and serves the gang API with
its gates on.
"""

import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

ASSETS = "KUBEBUILDER_ASSETS"
TOKEN = "token-of-the-tests"
VIEWER = "viewer"
USERS = {
    TOKEN: ("admin", "system:masters"),
    "gantree": ("gantree", ""),
    VIEWER: (VIEWER, ""),
}
"""Users and their groups, by token. What gantree and a user of a namespace may do is told by roles."""
ETCD = "etcd.url"
"""The file among those of a server that says where its etcd is."""
READY_WITHIN_S = 300.0
LAST_BYTES = 2_000
GATES = (
    "GenericWorkload", "GangScheduling", "TopologyAwareWorkloadScheduling", "WorkloadAwarePreemption",
    "DRAWorkloadResourceClaims",
)  # fmt: skip

SERVED = "scheduling.k8s.io/v1alpha2=true"


class NoRealServer(Exception):
    """One was asked for, and there is none that starts."""


def is_asked_for() -> bool:
    """Whether the environment names a real server."""
    return bool(os.environ.get(ASSETS))


@contextmanager
def real_server(
    place: Path,
    gates: Mapping[str, bool] | None = None,
    served: str = SERVED,
    without: Sequence[str] = ("ServiceAccount",),
) -> Iterator[tuple[str, str]]:
    """(URL, token of an administrator) of a server that keeps its files in a directory.

    gates are feature gates beside GATES; served is its `--runtime-config`; without are admission plugins.
    """
    assets = Path(os.environ[ASSETS])
    missing = [name for name in ("etcd", "kube-apiserver") if not (assets / name).exists()]
    if missing:
        raise NoRealServer(f"{ASSETS} is {assets}, which has no {' and no '.join(missing)}")
    etcd_port, peer_port, port = _free_port(), _free_port(), _free_port()
    (place / ETCD).write_text(f"http://127.0.0.1:{etcd_port}")
    with (
        _running(_etcd(assets, place, etcd_port, peer_port), place / "etcd.log"),
        _running(
            [
                *_apiserver(assets, place, etcd_port, port),
                f"--feature-gates={_gates(gates or {})}",
                f"--runtime-config={served}",
                f"--disable-admission-plugins={','.join(without)}",
            ],
            place / "apiserver.log",
        ) as server,
    ):
        url = f"https://127.0.0.1:{port}"
        _wait(url, server, place / "apiserver.log")
        yield url, TOKEN


@contextmanager
def real_controllers(place: Path, url: str, *names: str) -> Iterator[None]:
    """Some controllers of kube-controller-manager, beside a real server."""
    assets = Path(os.environ[ASSETS])
    if not (assets / "kube-controller-manager").exists():
        raise NoRealServer(f"{ASSETS} is {assets}, which has no kube-controller-manager")
    config = kubeconfig(place / "controllers.kubeconfig", url)
    command = [
        str(assets / "kube-controller-manager"), f"--kubeconfig={config}", "--leader-elect=false",
        "--secure-port=0", f"--controllers={','.join(names)}", f"--feature-gates={_gates({})}",
    ]  # fmt: skip
    with _running(command, place / "controllers.log"):
        yield


@contextmanager
def real_scheduler(place: Path, url: str) -> Iterator[None]:
    """kube-scheduler, beside a real server."""
    binary = Path(os.environ[ASSETS]) / "kube-scheduler"
    if not binary.exists():
        raise NoRealServer(f"there is no {binary}")
    config = kubeconfig(place / "scheduler.kubeconfig", url)
    command = [str(binary), f"--kubeconfig={config}", "--leader-elect=false", "--secure-port=0"]
    with _running(command, place / "scheduler.log"):
        yield


def kubeconfig(file: Path, url: str, token: str = TOKEN, namespace: str = "default") -> Path:
    """Write a kubeconfig for whoever has a token."""
    cluster = {"server": url, "insecure-skip-tls-verify": True}
    context = {"cluster": "real", "user": "user", "namespace": namespace}
    told = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "real", "cluster": cluster}],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [{"name": "real", "context": context}],
        "current-context": "real",
    }
    file.write_text(json.dumps(told))
    file.chmod(0o600)
    return file


def _etcd(assets: Path, place: Path, port: int, peer_port: int) -> list[str]:
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    return [
        str(assets / "etcd"), f"--data-dir={place / 'etcd'}", "--unsafe-no-fsync",
        f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
    ]  # fmt: skip


def _apiserver(assets: Path, place: Path, etcd_port: int, port: int) -> list[str]:
    key, tokens = place / "sa.pem", place / "tokens.csv"
    key.write_bytes(
        rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    lines = [f'{token},{name},{name},"{group}"' for token, (name, group) in USERS.items()]
    tokens.write_text("\n".join(lines) + "\n")
    return [
        str(assets / "kube-apiserver"), f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        f"--cert-dir={place / 'certs'}", "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
        f"--secure-port={port}", "--service-cluster-ip-range=10.0.0.0/24", f"--token-auth-file={tokens}",
        "--authorization-mode=RBAC", f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}", f"--service-account-issuer=https://127.0.0.1:{port}",
    ]  # fmt: skip


def _gates(more: Mapping[str, bool]) -> str:
    """The value of `--feature-gates`."""
    gates = {**dict.fromkeys(GATES, True), **more}
    return ",".join(f"{name}={str(is_on).lower()}" for name, is_on in gates.items())


@contextmanager
def _running(command: list[str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(url: str, server: "subprocess.Popen[bytes]", log: Path) -> None:
    """Until it is ready."""
    ends_at = time.monotonic() + READY_WITHIN_S
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with httpx.Client(verify=False, headers=headers) as http:
        while server.poll() is None and time.monotonic() < ends_at:
            try:
                spaces = http.get(f"{url}/api/v1/namespaces/default")
                if http.get(f"{url}/readyz").status_code == spaces.status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.2)
    raise NoRealServer(f"kube-apiserver was not ready: {log.read_bytes()[-LAST_BYTES:].decode()}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
