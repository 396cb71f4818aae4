"""Claims among faults: gantree is killed, refused or left without an answer at any write on the way to a bound gang.

Each seed is one story of some gangs, half of which take the devices of a gang of lower priority that runs. Whatever
happens, no device is ever two claims', a gang is bound whole or not at all, and what was written for a gang that does
not start is taken back: allocation, finalizer and consumer.
"""

import random
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gantree.core.ledger.invariants import check
from gantree.formats.policy.reader import PRESETS
from support.devices import GPU, NIC, DeviceStage, request
from support.examples import seeds
from support.kubernetes.faults import Fault
from support.kubernetes.server.statuses import Json

ROUNDS = 4
WITHIN_S = 300.0
WRITES = (
    ("create", "configmaps"),
    ("update", "configmaps"),
    ("patch", "resourceclaims"),
    ("patch", "resourceclaims/status"),
    ("create", "pods/binding"),
)
EVICTION = ("create", "pods/eviction")
PODS = "/api/v1/namespaces/default/pods"


class Story:
    """One seed: gangs that come one after the other, each with a fault on its way."""

    def __init__(self, stage: DeviceStage, seed: int) -> None:
        self.stage, self.random = stage, random.Random(seed)
        self.log: list[str] = []

    def round(self, number: int) -> None:
        members = self.random.choice((1, 2, 2, 3))
        names = [f"g{number}-{member}" for member in range(members)]
        victims = self.random.choice((0, 4 - members + 1))
        for victim in range(victims):
            self.submit(f"v{number}-{victim}", f"v{number}", victims, priority="research")
        self.until(lambda: self.runs(f"v{number}-", victims), "the first gang does not run")
        verb, resource = self.random.choice((*WRITES, EVICTION) if victims else WRITES)
        kind = self.random.choice(("kill", "kill", "kill", "lost", "refused"))
        fault = self.fault(verb, resource, kind)
        for name in names:
            self.submit(name, f"g{number}", members)
        self.until(lambda: fault.met > 0 or self.stage.bound(*names), "nothing happens")
        gone = ""
        if kind == "kill":
            self.stage.kill()
            gone = self.random.choice(("", names[0]))
            if gone:
                self.stage.api.delete(f"{PODS}/{gone}", {"gracePeriodSeconds": 0})
            self.stage.start()
        told = f"{members} for {victims}: {verb} {resource} {kind} {fault.met} {gone}"
        self.log.append(told)
        self.stage.running.call(self.stage.running.server.faults.clear)
        self.until(lambda: self.is_settled(names), "not settled")
        if gone:
            self.submit(gone + "-again", f"g{number}", members)
            names = [name for name in self.stage.pods() if name.startswith(f"g{number}-")]
        self.until(lambda: self.runs(f"g{number}-", members), "not bound")
        self.end(f"g{number}-")

    def fault(self, verb: str, resource: str, kind: str) -> Fault:
        faults = self.stage.running.server.faults
        told: Json = {"verb": verb, "resource": resource, "skip": self.random.randrange(3)}
        match kind:
            case "kill":
                told |= {"delay_s": 0.5} if self.random.random() < 0.5 else {"is_lost": True}
            case "lost":
                told |= {"is_lost": True}
            case _:
                told |= {"code": self.random.choice((409, 429, 500)), "times": 2}
        return self.stage.running.call(lambda: faults.add(**told))

    def submit(self, name: str, gang: str, members: int, priority: str = "production") -> None:
        self.stage.claimant(
            name,
            "pair",
            annotations={"gantree.io/gang-size": str(members)},
            labels={"gantree.io/gang": gang, "gantree.io/priority": priority},
        )

    # ----- what must be so

    def check(self) -> None:
        """No device is two claims'."""
        held = self.stage.held()
        assert len(held) == len(set(held)), (self.log, self.stage.claims())

    def is_settled(self, names: list[str]) -> bool:
        """Whether all of a gang are bound, or none is and none of its pods has a device."""
        pods = self.stage.pods()
        there = [pods[name] for name in names if name in pods]
        bound = [pod["metadata"]["name"] for pod in there if pod["spec"].get("nodeName")]
        if len(bound) == len(names):
            return True
        users = {
            user["name"]
            for claim in self.stage.claims().values()
            for user in claim["status"].get("reservedFor") or ()
        }
        return not bound and users.isdisjoint(names)

    def runs(self, prefix: str, members: int) -> bool:
        """Whether a gang runs whole; as its controller would, it makes pods anew that have failed."""
        pods = {name: pod for name, pod in self.stage.pods().items() if name.startswith(prefix)}
        for name, pod in pods.items():
            if pod["status"].get("phase") == "Failed":
                self.stage.api.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})
        alive = [pod for pod in pods.values() if pod["status"].get("phase") != "Failed"]
        for more in range(members - len(alive)):
            self.submit(f"{prefix}{time.monotonic_ns()}-{more}", prefix.rstrip("-"), members)
        return len(alive) == members and all(p["status"].get("phase") == "Running" for p in alive)

    def end(self, prefix: str) -> None:
        """A gang comes to its end, and nothing of its claims is left."""
        for name in [name for name in self.stage.pods() if name.startswith(prefix)]:
            self.stage.exit(name)
        self.until(lambda: self.stage.held() == [], "devices are held")
        for name in [name for name in self.stage.pods() if name.startswith(prefix)]:
            self.stage.api.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})
        self.until(lambda: self.stage.claims() == {}, "claims are left")

    def until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not done():
            told = f"{what}: {self.log} {self.stage.told()} {self.stage.claims()}"
            assert time.monotonic() < deadline, told
            for _ in range(10):
                self.stage.controller.step()
                time.sleep(0.004)
            self.check()


@pytest.mark.faults
@pytest.mark.parametrize("seed", seeds(10, fewest=1))
def test_whatever_fails_no_device_is_had_twice_and_nothing_is_left(
    seed: int, tmp_path: Path
) -> None:
    policy = replace(PRESETS["gantree"], min_run_s=0.0, evictions_per_day=None, grace_s=1.0)
    with DeviceStage(tmp_path, policy) as stage:
        stage.classes(gpu=GPU, nic=NIC)
        stage.claimed_nodes("n0", "n1", gpus=2, nics=2)
        same = {"requests": [], "matchAttribute": "resource.kubernetes.io/pcieRoot"}
        pair = request("gpu", "gpu"), request("nic", "nic")
        stage.template("pair", *pair, constraints=[same])
        stage.start()
        story = Story(stage, seed)
        for number in range(ROUNDS):
            story.round(number)
        check(stage.controller.ledger)
        book = stage.controller.cluster._allocator.book  # type: ignore[attr-defined]  # a look inside
        story.until(lambda: not book.plans, "plans are left")
