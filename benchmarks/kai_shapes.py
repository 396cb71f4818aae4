"""The shapes that KAI publishes, on 500 nodes of 8 GPUs: 4,000 pods of one GPU, 4,000 more that take them back, a gang
that does not fit.

    PYTHONPATH=tests:benchmarks python benchmarks/kai_shapes.py [--nodes 500] [--rounds 1]

fill: so many pods of one GPU as there are GPUs. reclaim: as many of the queue that is guaranteed all GPUs, which the
others borrowed; from the first creation until the last is bound. unschedulable: a job of 10 pods then, until all are
told that they do not fit. Seconds. A real server where KUBEBUILDER_ASSETS names one. Pods that are evicted are gone at
once: nobody runs anything.
"""

import argparse
import asyncio
import json
import time
from typing import Any

from kubernetes import (
    GPUS_OF_NODE,
    PODS,
    Figures,
    GantreeProcess,
    Server,
    in_flight,
    make_nodes,
    making,
    pod,
    server,
)
from support.kubernetes.client import Client, path_of

POLICY = """
queues:
  - {{name: borrows}}
  - {{name: owns, guarantee: {{gpus: {gpus}}}}}
evictions: {{grace: 0s}}
"""
MEMBERS = 10
AT_ONCE = {"gracePeriodSeconds": 0}
QUEUE = "gantree.io/queue"


async def remove_evicted(client: Client) -> None:
    """What a kubelet does: pods that were told to go are gone."""
    writing: set[asyncio.Task[Any]] = set()
    async for kind, each in client.follow(path_of("v1", "pods"), {}):
        if kind != "DELETED" and "deletionTimestamp" in each["metadata"]:
            path = f"{PODS}/{each['metadata']['name']}"
            task = asyncio.ensure_future(client.insist("DELETE", path, AT_ONCE))
            writing.add(task)
            task.add_done_callback(writing.discard)


async def until_told(client: Client, prefix: str, pods: int) -> None:
    """Until so many pods are told that they are unschedulable."""
    told: set[str] = set()
    async for _, each in client.follow(path_of("v1", "pods"), {}):
        name, conditions = each["metadata"]["name"], each["status"].get("conditions") or ()
        reasons = {one.get("reason") for one in conditions if one["type"] == "PodScheduled"}
        if name.startswith(prefix) and "Unschedulable" in reasons:
            told.add(name)
        if len(told) == pods:
            return


async def timed(run: GantreeProcess, client: Client, queue: str, pods: int) -> float:
    """Seconds until so many new pods of a queue are bound."""
    made = [pod(f"{queue}-{n}", "gantree", labels={QUEUE: queue}) for n in range(pods)]
    begun = time.perf_counter()
    bound = asyncio.ensure_future(asyncio.to_thread(run.bind, pods))
    await in_flight(client, making(made))
    await bound
    return time.perf_counter() - begun


async def measure(at: Server, nodes: int) -> Figures:
    """All shapes, one after the other."""
    gpus = nodes * GPUS_OF_NODE
    run = GantreeProcess(at, POLICY.format(gpus=gpus))
    run.say("from")
    async with Client(at.url, at.token, is_checked=False) as client:
        removing = asyncio.ensure_future(remove_evicted(client))
        fill_s = await timed(run, client, "borrows", gpus)
        reclaim_s = await timed(run, client, "owns", gpus)
        await asyncio.to_thread(run.until_idle)
        unschedulable_s = await refused(run, client)
        removing.cancel()
    run.close()
    return {"fill_s": fill_s, "reclaim_s": reclaim_s, "unschedulable_s": unschedulable_s}


async def refused(run: GantreeProcess, client: Client) -> float:
    """Seconds until a gang that does not fit is told so."""
    words = {"gantree.io/gang": "waits", QUEUE: "owns"}
    size = {"gantree.io/gang-size": str(MEMBERS)}
    made = [pod(f"waits-{n}", "gantree", labels=words, annotations=size) for n in range(MEMBERS)]
    begun = time.perf_counter()
    await in_flight(client, making(made))
    run.say("step 10")
    await until_told(client, "waits-", MEMBERS)
    return time.perf_counter() - begun


def main() -> None:
    """Print the figures of each round."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    for _ in range(options.rounds):
        with server() as at:
            make_nodes(at, options.nodes)
            found = asyncio.run(measure(at, options.nodes))
        print(json.dumps({key: round(value, 2) for key, value in found.items()}), flush=True)


if __name__ == "__main__":
    main()
