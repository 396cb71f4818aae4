"""custom.metrics.k8s.io for a HorizontalPodAutoscaler: each pod that its selector finds has the same value.

    with CustomMetrics(place, "running_requests", pods) as metrics:
        cluster.insist("kubectl apply -f -", metrics.manifest())

A server reaches it through an APIService and a Service of type ExternalName.
"""

import json
import ssl
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from support.certificates import certificate

Json = dict[str, Any]
GROUP, VERSION = "custom.metrics.k8s.io", "v1beta2"


class CustomMetrics:
    """Serves until the end of a block. pods gives namespace and name of those that a selector finds."""

    def __init__(
        self, place: Path, metric: str, pods: Callable[[str], Sequence[tuple[str, str]]]
    ) -> None:
        self.value, self._metric, self._pods = 0, metric, pods
        answer = self._answer

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                content = json.dumps(answer(self.path)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                """Be silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate(place))
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = Thread(target=self._server.serve_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def manifest(self) -> str:
        """What makes it part of a server's API."""
        port = self._server.server_port
        service = {"name": "metrics", "namespace": "kube-system"}
        front: Json = {
            "type": "ExternalName",
            "externalName": "localhost",
            "ports": [{"port": port}],
        }
        spec = {
            "group": GROUP,
            "version": VERSION,
            "service": {**service, "port": port},
            "insecureSkipTLSVerify": True,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        }
        name = {"name": f"{VERSION}.{GROUP}"}
        items = [
            {"apiVersion": "v1", "kind": "Service", "metadata": service, "spec": front},
            {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": name, "spec": spec},
        ]  # fmt: skip
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})

    def _answer(self, url: str) -> Json:
        parts = urlsplit(url)
        if "/pods/" not in parts.path:
            row = {"name": f"pods/{self._metric}", "singularName": "", "namespaced": True}
            rows = [{**row, "kind": "MetricValueList", "verbs": ["get"]}]
            version = f"{GROUP}/{VERSION}"
            return {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": version,
                "resources": rows,
            }
        selector = parse_qs(parts.query)["labelSelector"][0]
        items = [self._value(*each) for each in self._pods(selector)]
        return {"kind": "MetricValueList", "apiVersion": f"{GROUP}/{VERSION}", "items": items}

    def _value(self, namespace: str, name: str) -> Json:
        pod = {"kind": "Pod", "namespace": namespace, "name": name, "apiVersion": "/v1"}
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "describedObject": pod,
            "metric": {"name": self._metric},
            "timestamp": now,
            "value": str(self.value),
        }
