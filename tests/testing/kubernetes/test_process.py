"""The server as a process of its own."""

import subprocess
import sys

from support.kubernetes.samples import binding, pod
from support.kubernetes.server.thread import Api

COMMAND = [sys.executable, "-m", "support.kubernetes", "--port", "0"]


def test_it_prints_where_it_listens_and_ends_with_its_input() -> None:
    """`python -m support.kubernetes --port 0 --until-eof --cluster`."""
    with subprocess.Popen(
        [*COMMAND, "--until-eof", "--cluster", "--gang-api", "none"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with Api(url) as api:
            assert api.post("/api/v1/namespaces/default/pods", pod("a")).status_code == 201
            with api.watch("/api/v1/pods", resourceVersion="0") as events:
                assert next(events)["object"]["status"]["phase"] == "Pending"
                bound = binding("a", "n0")
                assert (
                    api.post("/api/v1/namespaces/default/pods/a/binding", bound).status_code == 201
                )
                assert [next(events)["object"]["status"]["phase"] for _ in range(2)] == [
                    "Pending",
                    "Running",
                ]
            assert api.get("/apis/scheduling.k8s.io/v1alpha2").status_code == 404
        process.stdin.close()
        assert process.wait(60) == 0
