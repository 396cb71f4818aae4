"""What a pod posts to gantree during the check before its start, and how it reaches it."""

import http.client
import json
import ssl
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

PATH = "/v1/checks"
OK, MOST_ANSWER_BYTES = 200, 16 << 20
TIMEOUT_S = 10.0
CLUSTER_CA = Path("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
Json = dict[str, Any]


@dataclass(slots=True)
class PodPost:
    """gpus are those that PyTorch sees, done the measurements by now and all, result what the ranks found.

    Each is None before it is known. From any thread.
    """

    url: str
    token: str
    gpus: int | None
    done: tuple[int, int] | None = None
    result: Json | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def post(self) -> Json | None:
        """Post it once and return the answer; None where there is none, or gantree refuses."""
        body = json.dumps({"gpus": self.gpus, "done": self.done, "result": self.result})
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        url = urlsplit(self.url)
        with self._lock:
            connection = _connection_to(url)
            try:
                connection.request("POST", url.path.rstrip("/") + PATH, body, headers)
                answer = connection.getresponse()
                content = answer.read(MOST_ANSWER_BYTES)
                return json.loads(content) if answer.status == OK else None
            except (OSError, http.client.HTTPException, ValueError):
                return None
            finally:
                connection.close()


def _connection_to(url: SplitResult) -> http.client.HTTPConnection:
    """A connection that is not made yet. An HTTPS server is verified by the system's CAs and the cluster's."""
    host, port = url.hostname or "", url.port
    if url.scheme != "https":
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    trusted = ssl.create_default_context()
    if CLUSTER_CA.exists():
        trusted.load_verify_locations(CLUSTER_CA)
    return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=trusted)
