"""CPU time of decisions about one service of many replicas: growing, becoming ready, an update, shrinking.

PYTHONPATH=src python benchmarks/service_decisions.py [--replicas 500] [--json]
"""

import argparse
import json
import statistics
import time
from dataclasses import replace
from typing import Any

from gantree.core.scheduler import Scheduler, settled
from gantree.model.events import (
    ClusterObserved,
    Event,
    GangStarted,
    ReplicaReadinessChanged,
    ServiceScaleRequested,
    ServiceSubmitted,
)
from gantree.model.services import ReplicaCount, ServiceSpec, Update
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job


def measured(replicas: int) -> dict[str, float]:
    """Milliseconds of CPU time of each step."""
    scheduler, told = Scheduler(Policy()), 0

    def tell_ms(kind: type[Event], **fields: Any) -> float:
        nonlocal told
        told += 1
        event = kind(id=f"e{told}", observed_at=1.0, **fields)
        began = time.process_time()
        settled(scheduler, [event], 1.0)
        return (time.process_time() - began) * 1e3

    tell_ms(ClusterObserved, cluster=cluster(leaves=8, nodes=-(-replicas // 48)))
    spec = ServiceSpec("chat", job("chat"), ReplicaCount(1, replicas), update=Update(50, 0))
    tell_ms(ServiceSubmitted, service="chat", spec=spec)
    found = {"grow_ms": tell_ms(ServiceScaleRequested, service="chat", replicas=replicas)}
    ready = []
    for number in range(1, replicas + 1):
        replica = {"job": f"chat.{number}", "attempt": 1}
        tell_ms(GangStarted, **replica)
        ready.append(tell_ms(ReplicaReadinessChanged, ready=True, **replica))
    found["ready_median_ms"], found["ready_most_ms"] = statistics.median(ready), max(ready)
    newer = replace(spec, port=8000)
    found["update_by_50_ms"] = tell_ms(ServiceSubmitted, service="chat", spec=newer)
    found["shrink_ms"] = tell_ms(ServiceScaleRequested, service="chat", replicas=replicas // 10)
    return {name: round(value, 3) for name, value in found.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=500)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = measured(arguments.replicas)
    print(
        json.dumps(figures)
        if arguments.json
        else "\n".join(f"{k:<16} {v}" for k, v in figures.items())
    )
