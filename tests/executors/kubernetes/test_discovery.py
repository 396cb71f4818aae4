"""Definitions that are installed, changed and removed while gantree runs."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gantree.executors.kubernetes.apiserver.objects import Group, Metadata
from gantree.executors.kubernetes.apiserver.reflector import Reflector
from gantree.executors.kubernetes.pods.gang_spec import GroupKind
from gantree.executors.kubernetes.watch import api_thread as link_module
from gantree.executors.kubernetes.watch.discovery import OWN_KINDS, WatchedKinds
from gantree.executors.kubernetes.workloads.gang_owners import LWS
from gantree.executors.kubernetes.workloads.pod_groups import PLUGINS
from support.kubernetes.server.statuses import Json
from support.pods import PodStage

CRDS = Path(__file__).parents[3] / "deploy/kubernetes/crds"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAME = f"{PLUGINS.plural}.{PLUGINS.group}"
GROUPS = f"/apis/{PLUGINS.group}/v1alpha1/namespaces/default/podgroups"
OF_G = {"scheduling.x-k8s.io/pod-group": "g"}


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PodStage]:
    monkeypatch.setattr(link_module, "LOOKS_AGAIN_S", 0.1)
    with PodStage(tmp_path) as stage:
        stage.nodes("n[0-1]")
        stage.start()
        yield stage


def definition(kind: GroupKind = PLUGINS, name: str = "PodGroup") -> Json:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version: Json = {"name": kind.versions[0], "served": True, "storage": True}
    spec: Json = {
        "group": kind.group,
        "scope": "Namespaced",
        "names": {"kind": name, "plural": kind.plural, "singular": name.lower()},
        "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
    }
    return {"metadata": {"name": f"{kind.plural}.{kind.group}"}, "spec": spec}


def define(stage: PodStage) -> None:
    stage.api.define(definition())


def watched(stage: PodStage, kind: GroupKind = PLUGINS) -> bool:
    cluster: Any = stage.controller.cluster
    return kind in cluster._api._watched.versions


def test_a_definition_may_come_and_go_while_gantree_runs(stage: PodStage) -> None:
    """The gang of two waits for its group, and is whole with it; without the definition others go on being bound."""
    stage.pod("g-0", gpus=8, labels=OF_G)
    stage.pod("alone", gpus=1)
    stage.until(lambda: stage.bound("alone"))
    define(stage)
    kind = {"apiVersion": f"{PLUGINS.group}/v1alpha1", "kind": "PodGroup"}
    body = {**kind, "metadata": {"name": "g"}, "spec": {"minMember": 2}}
    assert stage.api.post(GROUPS, body).status_code == 201
    stage.until(lambda: watched(stage))
    assert not stage.bound("g-0")
    stage.nodes("n[2-3]")
    stage.pod("g-1", gpus=8, labels=OF_G)
    stage.until(lambda: stage.bound("g-0", "g-1"))
    assert stage.api.delete(f"{DEFINITIONS}/{NAME}").status_code == 200
    stage.until(lambda: not watched(stage))
    cluster: Any = stage.controller.cluster
    assert cluster._api.trouble is None
    stage.pod("later", gpus=1)
    stage.until(lambda: stage.bound("later"))
    assert stage.phase("g-0") == stage.phase("g-1") == "Running"


def own(stage: PodStage) -> set[str]:
    """Which of gantree's own kinds are watched."""
    return {kind.plural for kind in OWN_KINDS if watched(stage, kind)}


def define_own(stage: PodStage, plural: str) -> None:
    stage.api.define(yaml.safe_load((CRDS / f"{plural}.yaml").read_text()))


def test_gantrees_own_definitions_are_seen_before_all_are_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of a group whose other kind was there before, too."""
    monkeypatch.setattr(link_module, "LOOKS_AGAIN_S", 86_400.0)
    monkeypatch.setattr(link_module, "LOOKS_FOR_OWN_S", 0.1)
    with PodStage(tmp_path) as stage:
        define_own(stage, "gangjobs")
        stage.nodes("n0")
        stage.start()
        assert own(stage) == {"gangjobs"}
        define_own(stage, "gangservices")
        stage.until(lambda: own(stage) == {"gangjobs", "gangservices"})


def test_a_kind_that_cannot_be_listed_hides_no_other(stage: PodStage) -> None:
    """Its conversion webhook is broken, say: each list of it is an error of the server."""
    faults = stage.running.server.faults
    broken = {"verb": "list", "resource": PLUGINS.plural, "code": 500, "times": None}
    stage.running.call(lambda: faults.add(**broken))
    assert stage.api.post(DEFINITIONS, definition()).status_code == 201
    stage.api.define(definition(LWS, "LeaderWorkerSet"))
    stage.until(lambda: watched(stage, LWS))
    assert not watched(stage)


class Watches:
    """What is begun and ended, by version; each reflector has whatever it was begun with, and one object more."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def begin(self, kind: Any, version: str, copy: dict[Any, Any]) -> Any:
        self.told.append(f"{version} with {len(copy)}")

        def told(key: Any, before: Any, after: Any) -> None:
            self.told.append(f"{key[1]} {'gone' if after is None else 'is'}")

        nobody: Any = None
        reflector: Reflector[Any] = Reflector(nobody, nobody, told, copy)
        reflector.copy["default", version] = Group(Metadata(name=version))
        return reflector, lambda: self.told.append(f"{version} ends")


def test_a_kind_is_gone_once_it_was_missing_twice(caplog: pytest.LogCaptureFixture) -> None:
    """A server that has just started may not have all definitions yet. Another version goes on with the copy."""
    caplog.set_level(logging.WARNING)
    watches = Watches()
    kinds = WatchedKinds(watches.begin)
    for there in ({PLUGINS: "v1"}, {}, {PLUGINS: "v1"}, {PLUGINS: "v2"}, {}):
        kinds.follow(there)
    assert watches.told == ["v1 with 0", "v1 ends", "v2 with 1"]
    assert kinds.versions == {PLUGINS: "v2"}
    kinds.follow({})
    assert watches.told[3:] == ["v2 ends", "v1 gone", "v2 gone"]
    assert kinds.versions == {}
    assert any("are not served any more" in each for each in caplog.messages)
