"""Does anything happen twice, stay in part, get lost or leak, whatever fails? gantree on a real control plane.

    KUBEBUILDER_ASSETS=DIRECTORY PYTHONPATH=tests:benchmarks python -m failures [--failures 500] [--seed 1]

Users submit Jobs and GangJobs of one to six pods, some with devices by claims; each ends by itself after some seconds.
Failures are forced meanwhile, by seed: SIGKILL for gantree, kube-apiserver and etcd; pods deleted, failed and refused
by kubelets; nodes not ready, and deleted; bindings and other writes refused, or done and not answered; connections
reset, answers late, watches ended, revisions compacted. gantree reaches the server through a front that does the last
ones. `failures.watching` says what must hold meanwhile. In the end every workload must have succeeded, and nothing of
them be left. Prints JSON; exits 1 where anything is amiss.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from failures.cluster import CONTROLLERS, opened
from failures.processes import gantree
from failures.story import Story
from support.kubernetes.real import kubeconfig, real_controllers, real_server

POLICY = "evictions: {grace: 1s, min_run: 0s}\n"


def said(line: str) -> None:
    """How far it is."""
    print(line, file=sys.stderr, flush=True)


async def measure(place: Path, url: str, token: str, options: argparse.Namespace) -> dict[str, Any]:
    """One run."""
    policy = place / "policy.yaml"
    policy.write_text(POLICY)
    async with opened(place, url, token) as cluster:
        config = kubeconfig(place / "gantree.kubeconfig", cluster.front.url, "gantree")
        scheduler = gantree(place, config, policy)
        scheduler.start()
        story = Story(cluster, scheduler, options.seed, said)
        followed = (
            story.watched.follow_pods(cluster.client), story.watched.follow_claims(cluster.client),
            story.watched.look_again(), story.submit(), story.revive(),
        )  # fmt: skip
        tasks = [asyncio.ensure_future(each) for each in followed]
        try:
            await story.go(options.failures)
            lost, leaked = await story.calm(), await story.leaked()
            for each in tasks:
                if each.done():
                    each.result()
        finally:
            for each in tasks:
                each.cancel()
            scheduler.stop()
            cluster.apiserver.stop()
            cluster.etcd.stop()
        return {
            "failures": sum(story.done.values()),
            "of_kind": dict(sorted(story.done.items())),
            "workloads": len(story.workloads),
            "watch_events": story.watched.events,
            "longest_partial_s": round(story.watched.longest_partial_s, 1),
            "gantree_ended_by_itself": scheduler.exits,
            "wrong": [*story.watched.wrong],
            "lost": lost,
            "leaked": leaked,
        }


def main() -> None:
    """Run, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--failures", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(
        prefix="gantree-bench-", ignore_cleanup_errors=True
    ) as directory:
        place = Path(directory)
        with real_server(place) as (url, token), real_controllers(place, url, *CONTROLLERS):
            found = asyncio.run(measure(place, url, token, options))
        if os.environ.get("KEEP_LOG"):
            Path(os.environ["KEEP_LOG"]).write_bytes((place / "gantree.log").read_bytes())
    print(json.dumps({**found, "took_s": round(time.monotonic() - begun)}, indent=2))
    raise SystemExit(any(found[key] for key in ("wrong", "lost", "leaked")))


if __name__ == "__main__":
    main()
