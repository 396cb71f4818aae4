"""Runs workloads with gantree and with another scheduler, in turn, and prints what each was worth.

    PYTHONPATH=tests:benchmarks KUBEBUILDER_ASSETS=DIRECTORY python -m scheduler_perf LISTS [--only WORDS]...
        [--other kube-scheduler] [--policy FILE] [--rounds 3] [--nodes 1000] [--pods 6000]
        [--results FILE] [--limit-s 300] [--markdown]

LISTS is a folder with `performance-config.yaml` files. Of each test case the largest workload within --nodes and --pods
runs, or with --exact the one that is named (GROUP/CASE/WORKLOAD). Each run has an etcd and an API server of its own. A
run that is in --results is not repeated, so a stopped benchmark goes on where it was.

--policy is gantree's; the default has neither a minimum run time nor a grace period, as kube-scheduler has neither.
--markdown prints the table as docs/benchmarks.md has it.

pods/s: measured pods over the time from the first request to the last binding. p99: milliseconds from the request that
creates a pod until its binding is seen. after last: from the request for the last pod to the last binding. requests:
those that the API server counts beside the benchmark's own. CPU: seconds of scheduler and API server over the whole
workload.
"""

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from scheduler_perf.lists import Workload, largest, workloads
from scheduler_perf.operations import Operations
from scheduler_perf.pods import Pods
from scheduler_perf.processes import (
    Process,
    claim_controller,
    kubeconfig,
    scheduler,
    server_cpu_s,
)
from scheduler_perf.server import Server
from scheduler_perf.table import table
from scheduler_perf.templates import CannotRun
from support.kubernetes.client import Client
from support.kubernetes.real import real_server

Json = dict[str, Any]


def played(workload: Workload, name: str, options: argparse.Namespace) -> Json:
    """One run, in a directory of its own; figures, or why there are none."""
    with tempfile.TemporaryDirectory(prefix="gantree-bench-") as directory:
        place = Path(directory)
        with real_server(place, workload.gates, "api/all=true", WITHOUT) as (url, token):
            config = kubeconfig(place, url, token)
            with (
                claim_controller(place, config, workload),
                scheduler(name, place, config, workload, options.policy) as started,
            ):
                return asyncio.run(
                    _measured(workload, (url, token, place), started, options.limit_s)
                )


async def _measured(
    workload: Workload, server: tuple[str, str, Path], started: Process, limit_s: float
) -> Json:
    url, token, place = server
    async with Client(url, token, is_checked=False) as client:
        pods = Pods(client)
        pods.start()
        api = Server(client)
        operations = Operations(api, workload, pods)
        before, began_at, requests = server_cpu_s(place), time.monotonic(), await api.requests()
        try:
            async with asyncio.timeout(limit_s):
                await operations.run()
        except CannotRun as error:
            return {"cannot run": str(error)}
        except TimeoutError:
            left = sum(1 for pod in pods.all.values() if not pod.bound_at and not pod.is_gone)
            return {
                "not finished": f"{left} of {len(pods.all)} pods are not bound after {limit_s:g} s"
            }
        finally:
            requests = await api.requests() - requests
            await pods.stop()
        figures = _figures(operations, pods)
        if started.has_ended:
            return {"not finished": "the scheduler has ended"}
        return figures | {
            "scheduler_cpu_s": started.cpu_s(),
            "server_cpu_s": server_cpu_s(place) - before,
            "requests": requests,
            "memory_MB": started.memory_MB(),
            "took_s": time.monotonic() - began_at,
        }


def _figures(operations: Operations, pods: Pods) -> Json:
    measured = [pod for each in operations.measured for pod in each.pods if pod.bound_at]
    keys = {id(pod): key for key, pod in pods.all.items()}
    waits_s = sorted(
        pod.bound_at - pods.asked_at[keys[id(pod)]]
        for pod in measured
        if keys[id(pod)] in pods.asked_at
    )
    if not waits_s:
        return {"pods": 0}
    spans_s = sum(each.ended_at - each.began_at for each in operations.measured)
    first = min(each.began_at for each in operations.measured)
    return {
        "pods": len(measured),
        "pods_per_s": len(measured) / spans_s,
        "first_ms": 1000 * (min(pod.bound_at for pod in measured) - first),
        "after_last_ms": 1000 * _after_last_s(operations, pods),
        "p50_ms": 1000 * median(waits_s),
        "p99_ms": 1000 * waits_s[int(0.99 * (len(waits_s) - 1))],
    }


def _after_last_s(operations: Operations, pods: Pods) -> float:
    """From the request for the last pod until the last binding, of the last measurement."""
    last = operations.measured[-1]
    chosen = {id(pod) for pod in last.pods}
    asked = (pods.asked_at.get(key, 0.0) for key, pod in pods.all.items() if id(pod) in chosen)
    return last.ended_at - max(asked, default=last.ended_at)


def main() -> None:
    """Run what is asked for and not there yet; print a table of all."""
    options = _options()
    chosen = _chosen(options)
    done = _read(options.results)
    for number in range(options.rounds):
        for workload in chosen:
            for name in ("gantree", options.other):
                key = (workload.title, name, number)
                if key not in done:
                    done[key] = played(workload, name, options)
                    _write(options.results, key, done[key])
                    print(*key, json.dumps(done[key]), flush=True)
    print(table([each.title for each in chosen], options.other, done, in_markdown=options.markdown))


def _chosen(options: argparse.Namespace) -> list[Workload]:
    every = list(workloads(options.lists))
    if options.exact:
        return [each for each in every if each.title in options.exact]
    found = largest(every, options.nodes, options.pods)
    return [
        each
        for each in found
        if not options.only or any(word in each.title for word in options.only)
    ]


def _read(results: Path) -> dict[tuple[str, str, int], Json]:
    if not results.exists():
        return {}
    rows = [json.loads(line) for line in results.read_text().splitlines()]
    return {(row["workload"], row["scheduler"], row["round"]): row["figures"] for row in rows}


def _write(results: Path, key: tuple[str, str, int], figures: Json) -> None:
    title, name, number = key
    row = {"workload": title, "scheduler": name, "round": number, "figures": figures}
    with results.open("a") as file:
        file.write(json.dumps(row) + "\n")


WITHOUT = ("ServiceAccount", "TaintNodesByCondition", "Priority")
"""Admission plugins that Kubernetes' own benchmark leaves out, too: no controller is there to do their other half."""
POLICY = Path(__file__).with_name("policy.yaml")
"""Without a minimum run time and a grace period, which kube-scheduler does not have."""


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("lists", type=Path)
    parser.add_argument("--only", nargs="*", default=[], help="test cases with one of these words")
    parser.add_argument("--exact", nargs="*", default=[], help="GROUP/CASE/WORKLOAD")
    parser.add_argument("--other", default="kube-scheduler", help="a binary of KUBEBUILDER_ASSETS")
    parser.add_argument("--policy", default=str(POLICY), help="of gantree: a preset or a file")
    parser.add_argument("--markdown", action="store_true", help="print the table in Markdown")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=6000)
    parser.add_argument("--limit-s", type=float, default=300.0)
    parser.add_argument("--results", type=Path, default=Path("scheduler_perf.jsonl"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
