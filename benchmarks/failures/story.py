"""One run: users submit, failures are forced one after the other, then all calms down and is looked at."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from failures.cluster import CLAIMED, GPUS, PLUGIN, Cluster
from failures.processes import Restartable
from failures.watching import ENDED, Watched
from failures.workloads import Workload, drawn
from support.kubernetes.client import path_of

Json = dict[str, Any]
LIVE = 14
"""Workloads that are there at a time."""
CALM_S = 900.0
GONE_S = 300.0
EVENTS_OF_ONE = 60
NODES = (*PLUGIN, *CLAIMED)
CODES = (409, 429, 500, 503)
DELETE = {"propagationPolicy": "Background"}


class Story:
    """A seed's acts. done: how often each failure was forced."""

    def __init__(
        self, cluster: Cluster, gantree: Restartable, seed: int, said: Callable[[str], None]
    ) -> None:
        self.said = said
        self.cluster, self.gantree, self.chance = cluster, gantree, random.Random(seed)
        self.workloads: dict[str, Workload] = {}
        self.over: set[str] = set()
        gpus = {**dict.fromkeys(PLUGIN, GPUS), **dict.fromkeys(CLAIMED, 0)}
        self.watched = Watched(gpus, self.workloads)
        self.done: Counter[str] = Counter()
        self._is_submitting = True
        self._mending: set[asyncio.Task[None]] = set()
        self._ill: set[str] = set()

    # ----- users

    async def submit(self) -> None:
        """Keep so many workloads there; delete those that are over."""
        while True:
            live = [name for name in self.workloads if name not in self.over]
            if self._is_submitting and len(live) < LIVE:
                made = drawn(len(self.workloads), self.chance)
                self.workloads[made.name] = made
                await self.cluster.client.insist("POST", made.collection, made.manifest())
            else:
                await asyncio.sleep(0.3)
                for name in live:
                    await self._look(self.workloads[name])

    async def _look(self, workload: Workload) -> None:
        told = await self.cluster.client.insist("GET", workload.path)
        if told.code == 404:  # its creation was answered by nobody
            await self.cluster.client.insist("POST", workload.collection, workload.manifest())
        elif workload.is_over(told.content):
            self.over.add(workload.name)
            await self.cluster.client.insist("DELETE", workload.path, DELETE)

    async def revive(self) -> None:
        """What a Deployment does: gantree that has ended by itself is started again."""
        while True:
            self.gantree.revive()
            await asyncio.sleep(0.5)

    # ----- failures

    async def go(self, failures: int) -> None:
        """Force so many failures."""
        acts: list[tuple[Callable[[], Awaitable[bool]], int]] = [
            (self.kill_gantree, 8), (self.kill_apiserver, 1), (self.kill_etcd, 1), (self.delete_pod, 8),
            (self.fail_pod, 8), (self.refuse_pods, 3), (self.sicken_node, 3), (self.delete_node, 2),
            (self.refuse_bindings, 6), (self.lose_answers, 4), (self.refuse_writes, 4), (self.reset, 4),
            (self.slow_down, 2), (self.end_watches, 3), (self.forget, 1),
        ]  # fmt: skip
        begun = time.monotonic()
        while sum(self.done.values()) < failures:
            (act,) = self.chance.choices([act for act, _ in acts], [weight for _, weight in acts])
            if await act():
                self.done[act.__name__] += 1
                if sum(self.done.values()) % 25 == 0:
                    self.said(
                        f"{sum(self.done.values())} failures, {time.monotonic() - begun:.0f} s, {self.told()}"
                    )
            await asyncio.sleep(self.chance.uniform(0.0, 1.0))

    async def kill_gantree(self) -> bool:
        self.gantree.kill()
        self.gantree.start()
        await asyncio.sleep(self.chance.uniform(0.0, 4.0))
        return True

    async def kill_apiserver(self) -> bool:
        await asyncio.to_thread(self.cluster.apiserver.kill)
        self.cluster.apiserver.start()
        await self.cluster.until_ready()
        return True

    async def kill_etcd(self) -> bool:
        await asyncio.to_thread(self.cluster.etcd.kill)
        self.cluster.etcd.start()
        await self.cluster.until_ready()
        return True

    def _any_pod(self, *, bound: bool) -> Json | None:
        pods = [
            each
            for _, each in sorted(self.watched.pods.items())
            if each["status"].get("phase") not in ENDED
            and "deletionTimestamp" not in each["metadata"]
            and (each["spec"].get("nodeName") or not bound)
        ]
        return self.chance.choice(pods) if pods else None

    async def delete_pod(self) -> bool:
        pod = self._any_pod(bound=False)
        if pod is None:
            return False
        grace = {} if self.chance.random() < 0.5 else {"gracePeriodSeconds": 0}
        await self.cluster.client.insist("DELETE", _path(pod), grace)
        return True

    async def fail_pod(self) -> bool:
        pod = self._any_pod(bound=True)
        if pod is None or pod["status"].get("phase") != "Running":
            return False
        asyncio.get_running_loop().create_task(
            self.cluster.kubelet.exit("default", pod["metadata"]["name"], 1)
        )
        return True

    async def refuse_pods(self) -> bool:
        self.cluster.kubelet.refuse_next(1)
        return True

    async def sicken_node(self) -> bool:
        """A node does nothing and is not ready, for a while."""
        node = self.chance.choice(NODES)
        if node in self._ill:
            return False
        self.cluster.kubelet.freeze(node)
        await self.cluster.kubelet.tell_ready(node, self.chance.choice(("False", "Unknown")))
        self._mend_later(node, self._heal(node))
        return True

    async def _heal(self, node: str) -> None:
        self.cluster.kubelet.thaw(node)
        await self.cluster.kubelet.tell_ready(node, "True")

    async def delete_node(self) -> bool:
        """A machine is gone for good with its pods; another one of its name joins."""
        node = self.chance.choice(NODES)
        if node in self._ill:
            return False
        await self.cluster.client.insist("DELETE", path_of("v1", "nodes", name=node))
        for pod in list(self.watched.pods.values()):
            if pod["spec"].get("nodeName") == node:
                await self.cluster.client.insist("DELETE", _path(pod), {"gracePeriodSeconds": 0})
        self._mend_later(node, self.cluster.join(node))
        return True

    def _mend_later(self, node: str, mend: Awaitable[None]) -> None:
        self._ill.add(node)
        after_s = self.chance.uniform(2.0, 12.0)

        async def later() -> None:
            await asyncio.sleep(after_s)
            await mend
            self._ill.discard(node)

        task = asyncio.get_running_loop().create_task(later())
        self._mending.add(task)
        task.add_done_callback(self._mending.discard)

    async def refuse_bindings(self) -> bool:
        return await self._meets(resource="pods/binding", code=self.chance.choice(CODES))

    async def lose_answers(self) -> bool:
        """A write is done and nobody says so."""
        resource = self.chance.choice(
            ("pods/binding", "pods", "resourceclaims/status", "configmaps")
        )
        verb = self.chance.choice(("", "create", "patch", "update", "delete"))
        return await self._meets(verb=verb, resource=resource, is_lost=True)

    async def refuse_writes(self) -> bool:
        resource = self.chance.choice(
            (
                "pods/eviction",
                "pods/status",
                "resourceclaims/status",
                "configmaps",
                "gangjobs/status",
            )
        )
        return await self._meets(resource=resource, code=self.chance.choice(CODES))

    async def _meets(self, **told: Any) -> bool:
        """Whether a request of gantree has met a fault within a while."""
        fault = self.cluster.front.faults.add(times=self.chance.randint(1, 3), **told)
        ends_at = time.monotonic() + 3.0
        while not fault.met and time.monotonic() < ends_at:
            await asyncio.sleep(0.05)
        fault.times = fault.times if fault.met else 0
        return fault.met > 0

    async def reset(self) -> bool:
        """All connections of gantree break."""
        return self.cluster.front.reset() > 0

    async def slow_down(self) -> bool:
        """The next answers come late."""
        self.cluster.front.faults.add(delay_s=self.chance.uniform(0.5, 3.0), times=15)
        return True

    async def end_watches(self) -> bool:
        resource = self.chance.choice(("", "pods", "nodes", "resourceclaims"))
        return self.cluster.front.end_watches(resource, self.chance.random() < 0.5) > 0

    async def forget(self) -> bool:
        """Old revisions are compacted, then all watches end."""
        await asyncio.to_thread(self.cluster.front.compact)
        self.cluster.front.end_watches("", True)
        return True

    # ----- the end

    async def calm(self) -> list[str]:
        """No more failures; give the workloads that do not end."""
        self._is_submitting = False
        self.cluster.front.faults.clear()
        await asyncio.gather(*self._mending)
        for node in NODES:
            await self._heal(node)
        await self._until("workloads run", lambda: not self._left(), CALM_S)
        lost = [self._how(name) for name in self._left()]
        for name in self.workloads:
            await self.cluster.client.insist("DELETE", self.workloads[name].path, DELETE)
        return lost

    def _left(self) -> list[str]:
        """Those that are not over; not Jobs without pods: their controller waits for minutes after some failures."""
        return [
            name
            for name, each in self.workloads.items()
            if name not in self.over and not (each.is_job and not self.watched.pods_of(name))
        ]

    def _how(self, name: str) -> str:
        pods = [
            (
                each["metadata"]["name"], each["spec"].get("nodeName"), each["status"].get("phase"),
                [c.get("message") for c in each["status"].get("conditions") or () if c["status"] == "False"],
            )
            for each in self.watched.pods_of(name)
        ]  # fmt: skip
        return f"{self.workloads[name]} pods {pods}"

    async def leaked(self) -> list[str]:
        """What is left of workloads that are all gone."""
        await self._until(
            "nothing is left", lambda: not self.watched.pods and not self.watched.claims, GONE_S
        )
        left = [f"pod {each['metadata']['name']}" for each in self.watched.pods.values()]
        left += [f"claim {each['metadata']['name']}" for each in self.watched.claims.values()]
        for version, plural, most in (
            ("v1", "configmaps", {f"gantree-devices.{node}" for node in CLAIMED}),
            ("v1", "services", {"kubernetes"}),
            ("coordination.k8s.io/v1", "leases", {"gantree"}),
            ("gantree.io/v1alpha1", "gangjobs", set()),
        ):
            found = (
                await self.cluster.client.insist("GET", path_of(version, plural, "default"))
            ).content
            names = {each["metadata"]["name"] for each in found["items"]}
            left += [f"{plural} {name}" for name in sorted(names - most - {"kube-root-ca.crt"})]
        return left + await self._too_many_events()

    async def _too_many_events(self) -> list[str]:
        found = (
            await self.cluster.client.insist("GET", path_of("v1", "events", "default"))
        ).content
        of_one = Counter(
            (each["involvedObject"]["name"], each["reason"]) for each in found["items"]
        )
        return [f"{count} events {key}" for key, count in of_one.items() if count > EVENTS_OF_ONE]

    async def _until(self, what: str, done: Callable[[], bool], within_s: float) -> None:
        begun = time.monotonic()
        while not done() and time.monotonic() < begun + within_s:
            await asyncio.sleep(0.2)
        self.said(f"{what}: {time.monotonic() - begun:.0f} s, {self.told()}")

    def told(self) -> str:
        """How it goes."""
        over, wrong = (
            f"{len(self.over)} of {len(self.workloads)} workloads over",
            list(self.watched.wrong),
        )
        longest_s, exits = self.watched.longest_partial_s, len(self.gantree.exits)
        return f"{over}, longest partial {longest_s:.0f} s, gantree ended by itself {exits} times, wrong {wrong}"


def _path(pod: Json) -> str:
    return path_of("v1", "pods", "default", pod["metadata"]["name"])
