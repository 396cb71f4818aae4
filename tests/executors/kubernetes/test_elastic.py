"""Elastic GangJobs on an API server over real HTTP: more pods and fewer, saved before, and whatever is cut off between.

A story is one seed: an elastic gang is given one size after the other, and each time gantree is killed, refused or left
without an answer at some write on the way.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gantree.core.ledger.invariants import check
from gantree.executors.kubernetes.controllers import gangjobs
from gantree.executors.kubernetes.workloads import elastic
from gantree.formats.policy.reader import PRESETS
from support.examples import seeds
from support.kubernetes.faults import Fault
from support.kubernetes.server.statuses import Json
from support.pods import PodStage
from support.yaml_text import read_yaml

ROUNDS = 4
WITHIN_S = 300.0
CRD = Path(__file__).parents[3] / "deploy/kubernetes/crds/gangjobs.yaml"
URL = "/apis/gantree.io/v1alpha1/namespaces/default/gangjobs"
WRITES = (
    ("create", "pods"),
    ("delete", "pods"),
    ("create", "pods/eviction"),
    ("create", "pods/binding"),
    ("patch", "gangjobs/status"),
)
SAVES = {"gantree.io/checkpoint": "all", "gantree.io/checkpoint-grace": "10m"}


@contextmanager
def staged(state: Path, nodes: str = "n[0-3]") -> Iterator[PodStage]:
    policy = replace(PRESETS["gantree"], grace_s=1.0, min_run_s=0.0)
    with PodStage(state, policy) as stage:
        body = read_yaml(CRD.read_text())
        stage.api.define(body)
        stage.nodes(nodes)
        stage.start()
        yield stage


def create(stage: PodStage, sizes: Json, members: int = 2, **annotations: str) -> None:
    template = {
        "metadata": {"annotations": annotations},
        "spec": {"containers": [{"name": "train", "image": "train:1"}]},
    }
    role = {
        "role": "worker",
        "members": members,
        "processes": 8,
        "each": {"gpus": 8},
        "template": template,
    }
    restarts = {"limit": 99, "backoffSeconds": 0.1, "backoffMaxSeconds": 0.1}
    body = {
        "apiVersion": "gantree.io/v1alpha1",
        "kind": "GangJob",
        "metadata": {"name": "llama"},
        "spec": {"gang": [role], "elastic": sizes, "restarts": restarts},
    }
    answer = stage.api.post(URL, body)
    assert answer.status_code == 201, answer.text


def status(stage: PodStage) -> Json:
    found: Json = stage.api.get(f"{URL}/llama").json().get("status", {})
    return found


def runs_with(stage: PodStage, size: int) -> bool:
    """Whether so many pods run, there are no others, and each has been told so."""
    pods = {name: pod for name, pod in stage.pods().items() if name.startswith("llama-")}
    told = status(stage)
    if told.get("phase") != "Running" or told.get("members") != size:
        return False
    return sorted(pods) == [f"llama-worker-{number}" for number in range(size)] and all(
        pod["status"].get("phase") == "Running"
        and pod["metadata"]["annotations"]["gantree.io/rank"] == str(8 * number)
        and pod["metadata"]["annotations"]["gantree.io/world-size"] == str(8 * size)
        for number, (_, pod) in enumerate(sorted(pods.items()))
    )


def env_of(pod: Json) -> dict[str, str]:
    """The variables of a pod as its kubelet fills them in, from its annotations."""
    (container,) = pod["spec"]["containers"]
    annotations = pod["metadata"]["annotations"]
    found = {}
    for each in container["env"]:
        path = (each.get("valueFrom") or {}).get("fieldRef", {}).get("fieldPath", "")
        key = path.removeprefix("metadata.annotations['").removesuffix("']")
        found[each["name"]] = annotations.get(key, path) if path else each["value"]
    return found


def scale(stage: PodStage, size: int) -> None:
    stage.controller.jobs.scale(status(stage)["job"], size)


def test_it_grows_and_shrinks_and_its_pods_know_how_many_they_are(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        create(stage, {"min": 1, "max": 4})
        stage.until(lambda: runs_with(stage, 2))
        told = env_of(stage.pods()["llama-worker-1"])
        assert (told["RANK"], told["WORLD_SIZE"], told["NODE_RANK"]) == ("8", "16", "1")
        scale(stage, 4)
        stage.until(lambda: runs_with(stage, 4))
        told = env_of(stage.pods()["llama-worker-3"])
        assert (told["RANK"], told["WORLD_SIZE"], told["NNODES"], told["PET_NNODES"]) == (
            "24", "32", "4", "4",
        )  # fmt: skip
        assert told["MASTER_ADDR"] == "llama-worker-0.llama.default.svc"
        ring = [stage.node_of(f"llama-worker-{number}") for number in range(4)]
        assert told["GANTREE_NEIGHBOURS"] == f"{ring[2]},{ring[0]}"
        scale(stage, 1)
        stage.until(lambda: runs_with(stage, 1))
        assert (status(stage)["attempt"], status(stage)["failures"]) == (3, 0)


def test_kubectl_scales_it_and_is_heeded_once(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        create(stage, {"min": 1, "max": 4})
        stage.until(lambda: runs_with(stage, 2))
        answer = stage.api.patch(f"{URL}/llama/scale", {"spec": {"replicas": 3}})
        assert answer.status_code == 200, answer.text
        stage.until(lambda: runs_with(stage, 3) and status(stage).get("askedMembers") == 3)
        told = stage.api.get(f"{URL}/llama/scale").json()
        assert (told["spec"], told["status"]) == (
            {"replicas": 3},
            {"replicas": 3, "selector": "gantree.io/gangjob=llama"},
        )
        scale(stage, 4)
        stage.stop()
        stage.start()
        stage.until(lambda: runs_with(stage, 4))
        stage.work_for(0.5)
        assert stage.controller.ledger.jobs[status(stage)["job"]].spec.members == 4


def test_where_there_is_less_room_it_starts_with_fewer(tmp_path: Path) -> None:
    with staged(tmp_path, "n[0-1]") as stage:
        create(stage, {"min": 1, "max": 4}, members=4)
        stage.until(lambda: runs_with(stage, 2))
        assert stage.controller.ledger.jobs[status(stage)["job"]].spec.members == 4


def test_it_goes_on_with_another_size_once_it_has_saved(tmp_path: Path) -> None:
    with staged(tmp_path, "n[0-1]") as stage:
        create(stage, {"min": 1, "max": 2}, members=1, **SAVES)
        stage.until(lambda: runs_with(stage, 1))
        scale(stage, 2)
        stage.until(lambda: asked(stage) != "")
        save(stage, 17)
        stage.until(lambda: runs_with(stage, 2))
        assert stage.controller.ledger.jobs[status(stage)["job"]].checkpoint_step == 17


def asked(stage: PodStage) -> str:
    meta = stage.pods()["llama-worker-0"]["metadata"]
    return str(meta["annotations"].get("gantree.io/checkpoint-requested", ""))


def save(stage: PodStage, step: int) -> None:
    """Every pod answers what it was asked."""
    for name, pod in stage.pods().items():
        moment = pod["metadata"]["annotations"]["gantree.io/checkpoint-requested"]
        told = {"gantree.io/checkpoint-done": moment, "gantree.io/checkpoint-step": str(step)}
        path = f"/api/v1/namespaces/default/pods/{name}"
        stage.api.patch(path, {"metadata": {"annotations": told}})


def test_it_gives_members_back_to_a_gang_that_needs_the_room(tmp_path: Path) -> None:
    with staged(tmp_path, "n[0-1]") as stage:
        create(stage, {"min": 1, "max": 2}, members=1)
        stage.until(lambda: runs_with(stage, 1))
        scale(stage, 2)
        stage.until(lambda: runs_with(stage, 2))
        stage.pod("other", gpus=8, annotations={"gantree.io/priority": "production"})
        stage.until(lambda: stage.phase("other") == "Running")
        stage.api.delete("/api/v1/namespaces/default/pods/other")
        stage.until(lambda: not stage.phase("other"))
        stage.until(lambda: runs_with(stage, 1))


def test_nobody_gets_its_room_while_its_pods_are_made_anew(tmp_path: Path) -> None:
    with staged(tmp_path, "n[0-1]") as stage:
        create(stage, {"min": 1, "max": 2})
        stage.until(lambda: runs_with(stage, 2))
        for number in range(2):
            told = {"gantree.io/gang": "next"}
            stage.pod(f"next-{number}", 8, labels=told, annotations={"gantree.io/gang-size": "2"})
        stage.until(lambda: len(stage.controller.ledger.jobs) == 2)
        scale(stage, 1)
        stage.until(lambda: runs_with(stage, 1) or stage.phase("next-0") == "Running")
        assert stage.phase("next-0") == "Pending"


def test_a_pod_that_is_deleted_while_room_is_freed_for_it_costs_it_nothing(tmp_path: Path) -> None:
    with staged(tmp_path, "n[0-1]") as stage:
        low = {"gantree.io/priority": "research", "kubelet.gantree/stops-s": "9"}
        for number in range(2):
            stage.pod(f"low-{number}", gpus=8, annotations=low)
        stage.until(lambda: all(stage.phase(f"low-{n}") == "Running" for n in range(2)))
        create(stage, {"min": 2, "max": 2}, 2, **{"gantree.io/priority": "production"})
        ledger = stage.controller.ledger
        stage.until(lambda: bool(ledger.claims))
        (job,) = ledger.claims
        stage.api.delete("/api/v1/namespaces/default/pods/llama-worker-0")
        held: list[bool] = []

        def runs() -> bool:
            held.append(ledger.jobs[job].held)
            return runs_with(stage, 2)

        stage.until(runs)
        assert not any(held)


@pytest.mark.faults
def test_a_start_whose_pods_cannot_be_made_fails_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elastic, "COME_WITHIN_S", 0.5)
    monkeypatch.setattr(gangjobs, "AGAIN_S", 0.3)
    with staged(tmp_path) as stage:
        create(stage, {"min": 1, "max": 4})
        stage.until(lambda: runs_with(stage, 2))
        faults = stage.running.server.faults
        told = {"verb": "create", "resource": "pods", "code": 403, "times": None}
        stage.running.call(lambda: faults.add(**told))
        scale(stage, 3)
        stage.until(lambda: status(stage).get("failures") == 1)
        assert stage.pods() == {}
        stage.running.call(faults.clear)
        stage.until(lambda: runs_with(stage, 3))


def test_after_a_failure_it_starts_again(tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        create(stage, {"min": 1, "max": 4})
        stage.until(lambda: runs_with(stage, 2))
        scale(stage, 3)
        stage.until(lambda: runs_with(stage, 3))
        stage.exit("llama-worker-2", 7)
        stage.until(lambda: status(stage)["attempt"] == 3 and runs_with(stage, 3))
        assert status(stage)["failures"] == 1


class Story:
    """One seed: sizes that somebody asks for one after the other, each with a fault on its way."""

    def __init__(self, stage: PodStage, seed: int) -> None:
        self.stage, self.random = stage, random.Random(seed)
        self.log: list[str] = []

    def round(self) -> None:
        size = self.random.choice([each for each in (1, 2, 3, 4) if each != self.size])
        verb, resource = self.random.choice(WRITES)
        kind = self.random.choice(("kill", "kill", "kill", "lost", "refused"))
        fault = self.fault(verb, resource, kind)
        scale(self.stage, size)
        self.until(lambda: fault.met > 0 or runs_with(self.stage, size), "nothing happens")
        if kind == "kill":
            self.stage.kill()
            self.stage.start()
        self.log.append(f"{size} {verb} {resource} {kind} {fault.met}")
        self.stage.running.call(self.stage.running.server.faults.clear)
        self.until(lambda: runs_with(self.stage, size), "it does not run at its size")
        check(self.stage.controller.ledger)

    @property
    def size(self) -> int:
        """How many there are now."""
        return len(self.stage.pods())

    def fault(self, verb: str, resource: str, kind: str) -> Fault:
        faults = self.stage.running.server.faults
        told: Json = {"verb": verb, "resource": resource, "skip": self.random.randrange(3)}
        match kind:
            case "kill":
                told |= {"delay_s": 0.5} if self.random.random() < 0.5 else {"is_lost": True}
            case "lost":
                told |= {"is_lost": True}
            case _:
                # a kubelet deletes too, and asks again after these alone
                told |= {"code": self.random.choice((429, 500, 503)), "times": 2}
        return self.stage.running.call(lambda: faults.add(**told))

    def until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not done():
            assert time.monotonic() < deadline, f"{what}: {self.log} {self.stage.told()}"
            for _ in range(10):
                self.stage.controller.step()
                time.sleep(0.004)
            self.check()

    def check(self) -> None:
        """No node has more GPUs given out than it has."""
        held = Counter(
            pod["spec"].get("nodeName")
            for pod in self.stage.pods().values()
            if pod["status"].get("phase") not in ("Succeeded", "Failed")
        )
        held.pop(None, None)
        assert all(pods == 1 for pods in held.values()), (self.log, self.stage.told())


@pytest.mark.faults
@pytest.mark.parametrize("seed", seeds(10, fewest=1))
def test_whatever_is_cut_off_it_runs_at_the_size_that_was_asked(seed: int, tmp_path: Path) -> None:
    with staged(tmp_path) as stage:
        story = Story(stage, seed)
        create(stage, {"min": 1, "max": 4})
        stage.until(lambda: runs_with(stage, 2))
        for _ in range(ROUNDS):
            story.round()
        stage.api.delete(f"{URL}/llama")
        story.until(lambda: stage.pods() == {}, "pods are left")
