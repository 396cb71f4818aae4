"""A site with users of every role, and jobs of theirs, for tests of who may do what."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gantree.control.requests.submissions import JobSubmission
from gantree.model.services import ReplicaCount, ServiceSpec
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from support.front import Front

ACCESS = """
users:
  alice: {grants: {role: user, queue: research}}
  bob: {grants: {role: user, queue: research}}
  eve: {grants: {role: user, queue: vision}}
  vera: {grants: {role: viewer, queue: research}}
  wolf: {grants: {role: viewer}}
  quinn: {grants: {role: queue_admin, queue: research}}
  otto: {grants: {role: operator}}
  rolf: {grants: {role: router}}
  nils: {}
"""
JOB = {
    "name": "new",
    "queue": "research",
    "hold": True,
    "gang": [{"role": "w", "members": 1, "each": {"gpus": 1}, "run": ["true"], "env": {"K": "v1"}}],
}
ELASTIC = {
    "gang": [{"role": "w", "members": 2, "each": {"gpus": 8}, "run": ["true"]}],
    "elastic": {"min": 1, "max": 3},
}


@contextmanager
def front_with_jobs(place: Path) -> Iterator[Front]:
    """Job "hers" of alice holds the only node; "behind" of bob and "queued" of alice wait; "chat" is a service."""
    with Front(place, ACCESS, cluster(leaves=1, nodes=1), Policy()) as front:
        hers = replace(job("hers", gpus=8), queue="research", user="alice")
        role = replace(hers.roles[0], env=(("K", "v1"),), run=("run", "--api-key=abcdefghijk"))
        behind = replace(job("behind", gpus=8), queue="research", user="bob")
        front.on_thread(
            lambda controller: controller.submit([replace(hers, roles=(role,))], "/", {})
        )
        front.on_thread(lambda controller: controller.submit([behind], "/", {}))
        chat = replace(job("chat"), queue="research", user="alice", priority="batch")
        services = JobSubmission((), "/", services=[ServiceSpec("chat", chat, ReplicaCount(1, 2))])
        front.on_thread(lambda controller: controller.submit_batch([services]))
        front.ask(
            "alice",
            "POST",
            "/v1/jobs",
            {"jobs": [{**JOB, "name": "queued", "hold": False, **ELASTIC}]},
        )
        yield front
