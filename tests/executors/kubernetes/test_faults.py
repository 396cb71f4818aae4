"""gantree among faults: gangs come and go while writes fail, watches break, nodes go and gantree itself is killed.

Every other gang lives without one of its pods for a while. Each seed is one story. Then all calms down, and what must
be true is looked up on the server: no node has more bound than it has, every gang is bound whole or not at all, what
fits is bound, pods are nominated to nodes where room is held for them and to no others, and once all pods are gone
nothing of them is remembered.
"""

import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gantree.core.ledger.invariants import check
from gantree.executors.kubernetes.workloads.gang_labels import REPLACE_WITHIN
from gantree.formats.policy.reader import PRESETS
from gantree.model.phases import ENDED
from support.examples import seeds
from support.kubernetes.server.statuses import Json
from support.pods import PodStage

STEPS = 40
NODES, GPUS = 4, 8
AS_USUAL = frozenset({"submit", "finish", "stop", "other_pod"})
"""What happens and is no failure."""
CALM_S = 300.0
GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
PODS = "/api/v1/namespaces/default/pods"
WRITES = (
    ("create", "pods/binding"),
    ("delete", "pods"),
    ("create", "pods/eviction"),
    ("patch", "pods/status"),
)
ENDED_PODS = frozenset({"Succeeded", "Failed"})


class Story:
    """One seed: what users, nodes and the server do, and a controller of pods that makes new ones."""

    def __init__(self, stage: PodStage, seed: int) -> None:
        self.stage, self.random = stage, random.Random(seed)
        self.log: list[str] = []
        self.wanted: dict[str, tuple[int, int]] = {}
        """Members, and GPUs of each, by gang."""
        self.priority: dict[str, str] = {}
        self.finished: set[str] = set()
        self._made = 0

    # ----- what happens

    def go(self) -> None:
        """So many things, one after the other, with gantree at work between them."""
        acts = [
            *[self.submit] * 6, *[self.finish] * 2, self.crash, self.stop, self.refuse, self.lose, self.refuse_deletes,
            self.refuse_words, self.cut, self.forget, self.lag, self.unready, self.take_node, self.delete_pod,
            self.kubelet_refuses, self.crash_at_a_write, self.other_pod,
        ]  # fmt: skip
        for _ in range(STEPS):
            act = self.random.choice(acts)
            self.log.append(act.__name__)
            act()
            self.work(self.random.choice((0, 1, 3, 20)))
            self.make_pods()

    def work(self, steps: int) -> None:
        for _ in range(steps):
            self.stage.controller.step()
            time.sleep(0.004)

    def submit(self) -> None:
        members = self.random.choice((1, 1, 2, 3, 4))
        name = f"g{len(self.wanted)}"
        self.wanted[name] = (members, self.random.choice((1, 4, 8)))
        self.priority[name] = self.random.choice(("research", "research", "production"))
        if members > 1:
            spec = {"schedulingPolicy": {"gang": {"minCount": members}}}
            body = {
                "apiVersion": "scheduling.k8s.io/v1alpha2",
                "kind": "PodGroup",
                "metadata": {"name": name},
                "spec": spec,
            }
            assert self.stage.api.post(GROUPS, body).status_code == 201

    def make_pods(self) -> None:
        """What a Job's controller does: it takes away what failed, and makes new pods under new names."""
        of_gang = self.pods_of_gang()
        for gang, (members, gpus) in self.wanted.items():
            there = of_gang.get(gang, [])
            for pod in there:
                if pod["status"].get("phase") == "Failed":
                    self.delete(pod)
            alive = [pod for pod in there if pod["status"].get("phase") != "Failed"]
            for _ in range(0 if gang in self.finished else members - len(alive)):
                self.make_pod(gang, members, gpus)

    def make_pod(self, gang: str, members: int, gpus: int) -> None:
        self._made += 1
        spec = {"schedulingGroup": {"podGroupName": gang}} if members > 1 else {}
        told = {"gantree.io/priority": self.priority[gang], "kubelet.gantree/stops-s": "0.2"}
        if int(gang.removeprefix("g")) % 2:
            told[REPLACE_WITHIN] = "5s"
        self.stage.pod(
            f"{gang}-{self._made}", gpus, labels={"story": gang}, annotations=told, spec=spec
        )

    def finish(self) -> None:
        """A gang that runs comes to its end."""
        running = [
            gang
            for gang, pods in self.pods_of_gang().items()
            if len(pods) == self.wanted[gang][0] and all(map(_runs, pods))
        ]
        if running:
            gang = self.random.choice(running)
            self.finished.add(gang)
            for pod in self.pods_of_gang()[gang]:
                self.stage.exit(pod["metadata"]["name"])

    def crash(self) -> None:
        self.stage.kill()
        self.stage.start()

    def crash_at_a_write(self) -> None:
        """gantree is killed while the server has done a write of it and the answer is still on its way."""
        verb, resource = self.random.choice(WRITES)
        faults, skip = self.stage.running.server.faults, self.random.randint(0, 2)
        fault = self.stage.running.call(
            lambda: faults.add(verb=verb, resource=resource, delay_s=0.5, skip=skip)
        )
        for _ in range(20):
            if fault.met:
                break
            self.work(1)
        fault.times = 0
        self.crash()

    def stop(self) -> None:
        self.stage.stop()
        self.stage.start()

    def refuse(self) -> None:
        code = self.random.choice((409, 429, 500, 503))
        self.fault(resource="pods/binding", code=code, times=self.random.randint(1, 3))

    def refuse_deletes(self) -> None:
        verb, resource = self.random.choice((("delete", "pods"), ("create", "pods/eviction")))
        self.fault(verb=verb, resource=resource, code=self.random.choice((429, 500)))

    def refuse_words(self) -> None:
        """What is written about pods that wait, nominations among it, is refused, or done and not answered."""
        told = {"is_lost": True} if self.random.random() < 0.5 else {"code": 500}
        self.fault(resource="pods/status", times=self.random.randint(1, 4), **told)

    def lose(self) -> None:
        """A binding is done, and its answer is lost or comes late."""
        is_lost = self.random.random() < 0.7
        self.fault(resource="pods/binding", is_lost=is_lost, delay_s=0.0 if is_lost else 0.3)

    def fault(self, **told: Any) -> None:
        faults = self.stage.running.server.faults
        self.stage.running.call(lambda: faults.add(**told))

    def cut(self) -> None:
        faults = self.stage.running.server.faults
        resource = self.random.choice(("", "pods", "nodes"))
        self.stage.running.call(faults.end_watches, resource, self.random.random() < 0.5)

    def forget(self) -> None:
        """Watches break, and what happened since is not told any more."""
        faults = self.stage.running.server.faults
        self.stage.running.call(faults.compact)
        self.cut()

    def lag(self) -> None:
        """Lists from the server's cache tell an older state."""
        faults = self.stage.running.server.faults
        self.stage.running.call(setattr, faults, "list_lag", self.random.choice((0, 1, 9, 99)))
        self.cut()

    def unready(self) -> None:
        node, kubelet = f"n{self.random.randrange(NODES)}", self.stage.kubelet
        if self.stage.api.get(f"/api/v1/nodes/{node}").status_code == 200:
            status = self.random.choice(("False", "Unknown", "True"))
            self.stage.running.run(kubelet.tell_ready(node, status))

    def take_node(self) -> None:
        """A node is deleted with its pods, as the control plane does, or comes back."""
        node = f"n{self.random.randrange(NODES)}"
        there = [each["metadata"]["name"] for each in self.nodes()]
        if node not in there:
            self.stage.nodes(node)
        if node not in there or len(there) == 1:  # without any node gantree does not begin
            return
        self.stage.api.delete(f"/api/v1/nodes/{node}")
        for pod in self.stage.pods().values():
            if pod["spec"].get("nodeName") == node:
                self.delete(pod, gracePeriodSeconds=0)

    def delete_pod(self) -> None:
        pods = sorted(self.stage.pods().values(), key=lambda pod: str(pod["metadata"]["name"]))
        if pods:
            self.delete(self.random.choice(pods))

    def delete(self, pod: Json, **options: Any) -> None:
        self.stage.api.delete(f"{PODS}/{pod['metadata']['name']}", options or None)

    def kubelet_refuses(self) -> None:
        self.stage.running.call(self.stage.kubelet.refuse_next, 1)

    def other_pod(self) -> None:
        """A pod of another scheduler where there is room by what the server says."""
        held = self.gpus_of_node()
        names = [node["metadata"]["name"] for node in self.nodes()]
        free = [name for name in names if held.get(name, 0) == 0]
        if free:
            self._made += 1
            spec = {"schedulerName": "other", "nodeName": self.random.choice(free)}
            self.stage.pod(f"other-{self._made}", 1, labels={"story": "other"}, spec=spec)

    # ----- what is there

    def nodes(self) -> list[Json]:
        found: list[Json] = self.stage.api.get("/api/v1/nodes").json()["items"]
        return found

    def pods_of_gang(self) -> dict[str, list[Json]]:
        """Pods that are there, by gang; those that are going too."""
        found: dict[str, list[Json]] = {}
        for pod in self.stage.pods().values():
            gang = pod["metadata"]["labels"]["story"]
            if gang != "other":
                found.setdefault(gang, []).append(pod)
        return found

    def gpus_of_node(self, *, of_others: bool = False) -> dict[str, int]:
        """GPUs that live pods have, by node."""
        held: dict[str, int] = {}
        for pod in self.stage.pods().values():
            node = pod["spec"].get("nodeName")
            is_other = pod["spec"]["schedulerName"] != "gantree"
            if (
                node
                and pod["status"].get("phase") not in ENDED_PODS
                and (is_other or not of_others)
            ):
                requests = pod["spec"]["containers"][0]["resources"]["requests"]
                held[node] = held.get(node, 0) + int(requests.get("nvidia.com/gpu", 0))
        return held

    # ----- the end

    def calm(self) -> None:
        """Faults end, nodes are back and ready."""
        self.stage.running.call(self.stage.running.server.faults.clear)
        self.stage.running.call(setattr, self.stage.kubelet, "_refusals", 0)
        for number in range(NODES):
            node = f"n{number}"
            if self.stage.api.get(f"/api/v1/nodes/{node}").status_code == 404:
                self.stage.nodes(node)
            self.stage.running.run(self.stage.kubelet.tell_ready(node, "True"))

    def until(self, what: str, done: Any) -> None:
        """Step until something is so, with new pods made for those that went."""
        deadline = time.monotonic() + CALM_S
        while not done():
            assert time.monotonic() < deadline, f"{what}: {self.told()}"
            self.work(10)
            self.make_pods()

    def told(self) -> str:
        held = f"ledger {held_by_ledger(self)}, server {self.gpus_of_node()}"
        return f"{self.log} {held} {self.stage.told()} {self.wanted} {remembered(self)}"

    @property
    def failures(self) -> int:
        """How many failures were forced."""
        return sum(act not in AS_USUAL for act in self.log)

    def run_down(self) -> None:
        """Every gang gets its turn: others go, and gangs that run come to their end until there is none."""
        for name, pod in self.stage.pods().items():
            if name.startswith("other-"):
                self.delete(pod)
        self.until("others stay", lambda: not self.gpus_of_node(of_others=True))

        def are_over() -> bool:
            assert all(held <= GPUS for held in self.gpus_of_node().values()), self.told()
            if set(self.wanted) == self.finished:
                return True
            self.finish()
            return False

        self.until("not every gang was bound", are_over)

    def leave(self) -> None:
        """Everything is deleted."""
        for pod in self.stage.pods().values():
            self.delete(pod)
        for group in self.stage.api.get(GROUPS).json()["items"]:
            path = f"{GROUPS}/{group['metadata']['name']}"
            self.stage.api.patch(path, {"metadata": {"finalizers": None}})
            self.stage.api.delete(path)


def _runs(pod: Json) -> bool:
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def settled(story: Story) -> bool:
    """Whether each gang is bound whole or not at all, and every node holds in the ledger what it holds in fact."""
    for gang, pods in story.pods_of_gang().items():
        bound = [pod for pod in pods if pod["spec"].get("nodeName")]
        if gang not in story.finished and len(bound) not in (0, story.wanted[gang][0]):
            return False
    held = {node: count for node, count in story.gpus_of_node().items() if count}
    return held_by_ledger(story) == held and are_nominated_rightly(story)


def are_nominated_rightly(story: Story) -> bool:
    """Whether pods that wait are nominated to a node where the ledger holds room for their gang, or to none."""
    ledger, cluster = story.stage.controller.ledger, story.stage.controller.cluster
    waiting = cluster._pending  # type: ignore[attr-defined]  # a look inside
    for pod in story.stage.pods().values():
        node = pod["status"].get("nominatedNodeName")
        if node and not pod["spec"].get("nodeName"):
            job = waiting.job_of(waiting._key_of_pod.get(pod["metadata"]["uid"]))
            claim = ledger.claims.get(job)
            if claim is None or node not in claim.placement.nodes:
                return False
    return True


def held_by_ledger(story: Story) -> dict[str, int]:
    ledger = story.stage.controller.ledger
    held: dict[str, int] = {}
    for state in ledger.holding.values():
        assert state.placement is not None
        for member in state.placement.members:
            held[member.node] = held.get(member.node, 0) + len(member.gpus)
    for members in ledger.site.others.values():
        for member in members:
            held[member.node] = held.get(member.node, 0) + len(member.gpus)
    return {node: count for node, count in held.items() if count}


def remembered(story: Story) -> dict[str, Any]:
    """What is kept in memory of pods and gangs, once what has ended was settled."""
    story.stage.controller.reconcile()
    cluster: Any = story.stage.controller.cluster
    attempts, pending = cluster._attempts, cluster._pending
    admission, foreign = cluster._admission, cluster._foreign_pods
    kept = {
        "pods": attempts.pods,
        "attempts": attempts._members.attempts,
        "members": attempts._members._member_of_pod,
        "emitted": attempts._events._emitted,
        "pending starts": attempts._pending_starts._orders | attempts._pending_starts._until,
        "gangs": pending.gangs,
        "jobs": pending.key_of_job,
        "specs": pending.keys.groups.specs,
        "alone": pending.keys._alone,
        "keys": pending._key_of_pod,
        "objects": pending._gangs_of_object,
        "gangs with late pods": admission._with_late_pods,
        "without topology": admission._without_topology,
        "undecided": admission._undecided,
        "pod status": admission._pod_status._reported,
        "late bindings": cluster._late_bindings._due,
        "foreign pods": foreign._node_of_pod,
        "nominated": cluster._nominations._nominated,
        "checkpoints": cluster._checkpoints._open,
        "placed": cluster._feasibility.index._placed,
        "turns": cluster._feasibility._turns._turns,
        "amounts": foreign._amounts_of_pod_on_node,
        "on record": story.stage.controller.ledger.site.others,
    }
    return {name: each for name, each in kept.items() if each}


@pytest.mark.faults
@pytest.mark.parametrize("seed", seeds(10, fewest=1))
def test_whatever_fails_gangs_are_whole_and_nothing_is_left(
    seed: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    policy = replace(PRESETS["gantree"], grace_s=1.0, min_run_s=0.0)
    with PodStage(tmp_path, policy) as stage:
        story = Story(stage, seed)
        stage.nodes(f"n[0-{NODES - 1}]")
        stage.start()
        story.go()
        record_property("forced_failures", story.failures)
        story.calm()
        story.until("gangs are in part, or counts differ", lambda: settled(story))
        check(stage.controller.ledger)
        story.run_down()
        story.leave()
        story.until("something is remembered", lambda: not remembered(story))
        assert all(state.phase in ENDED for state in stage.controller.ledger.jobs.values())
        check(stage.controller.ledger)
