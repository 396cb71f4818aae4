"""The answer to why: what only the cluster knows of an attempt that does not end is in it."""

from pathlib import Path
from typing import Any

from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from support.front import Front
from support.recording import RecordingCluster


def test_what_keeps_an_attempt_from_ending_is_in_the_answer_to_why(tmp_path: Path) -> None:
    with Front(tmp_path, "users: {}", cluster(), Policy()) as front:
        front.on_thread(lambda controller: controller.submit([job("a")], None, {}))
        told = front.controller.cluster
        assert isinstance(told, RecordingCluster)
        told.remaining["a"] = "pod a-0 is still there"
        assert "a-0" not in why(front)
        front.on_thread(lambda controller: controller.jobs.cancel("a"))
        assert why(front).endswith("Waiting: pod a-0 is still there.")
        told.remaining.clear()
        assert "Waiting" not in why(front)


def why(front: Front) -> Any:
    return front.ask("daemon", "GET", "/v1/jobs/a/why").json["sentence"]
