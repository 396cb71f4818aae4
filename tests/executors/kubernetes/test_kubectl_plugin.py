"""`kubectl gantree`, by the real kubectl where there is one, of a user with rights in one namespace alone."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gantree.cli.kubernetes import plugin
from gantree.executors.kubernetes.apiserver.rbac import RBAC_RULES
from support.kubernetes.real import ASSETS, VIEWER, kubeconfig
from support.kubernetes.server.access import EVERYTHING, Access, Grant, User
from support.kubernetes.server.server import Settings
from support.pods import GANTREE, HOME, TOKEN, PodStage

Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]
SOURCES = Path(__file__).parents[3] / "src"
PLUGIN = f"""#!{sys.executable}
from gantree.cli.kubernetes.plugin import main
main()
"""
EXEC = """#!/bin/sh
echo "kubectl $*"
"""
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
RULES = [{"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["list"]}]
GANG = {
    "labels": {"gantree.io/gang": "llama", "gantree.io/queue": "default"},
    "annotations": {"gantree.io/gang-size": "2"},
}


def access() -> Access:
    """gantree, an administrator, and a user who may list pods and events in one namespace."""
    rights = tuple(
        Grant(rule.verbs, (rule.group,), (rule.resource,), (HOME,) if rule.own_namespace else ())
        for rule in RBAC_RULES
    )
    looks = Grant(("list",), ("",), ("pods", "events"), (HOME,))
    return Access(
        {
            TOKEN: User(GANTREE, rights),
            "": User("admin", (EVERYTHING,)),
            VIEWER: User(VIEWER, (looks,)),
        }
    )


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    with PodStage(tmp_path, settings=Settings(access=access())) as stage:
        stage.api.post(f"{ROLES}/roles", {"metadata": {"name": "viewer"}, "rules": RULES})
        role = {"kind": "Role", "name": "viewer", "apiGroup": "rbac.authorization.k8s.io"}
        user = {"kind": "User", "name": VIEWER, "apiGroup": "rbac.authorization.k8s.io"}
        body = {"metadata": {"name": "viewer"}, "roleRef": role, "subjects": [user]}
        stage.api.post(f"{ROLES}/rolebindings", body)
        yield stage


@pytest.fixture
def kubectl(stage: PodStage, tmp_path: Path) -> Kubectl:
    """`kubectl WORDS...` in a shell of that user; without a real one, the plug-in itself for `kubectl gantree`."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    script(binaries / "kubectl-gantree", PLUGIN)
    config = kubeconfig(tmp_path / "config", stage.running.url, VIEWER)
    assets = os.environ.get(ASSETS, "") if stage.running.token else ""

    def run(*words: str, first: Path | None = None) -> "subprocess.CompletedProcess[str]":
        places = [str(each) for each in (first, binaries, assets) if each]
        environment = {
            **os.environ,
            "PATH": ":".join([*places, os.environ["PATH"]]),
            "PYTHONPATH": str(SOURCES),
            "KUBECONFIG": str(config),
        }
        program = (
            [f"{assets}/kubectl", "gantree"] if assets else [str(binaries / "kubectl-gantree")]
        )
        return subprocess.run(
            [*program, *words], env=environment, capture_output=True, text=True, check=False
        )

    return run


def script(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def until_told(stage: PodStage, name: str) -> None:
    stage.until(lambda: "conditions" in stage.pods()[name]["status"])


def test_why_says_what_the_pods_were_told(stage: PodStage, kubectl: Kubectl) -> None:
    stage.nodes("n0", gpus=8)
    stage.start()
    for number in range(2):
        stage.pod(f"llama-{number}", gpus=8, **GANG)
    until_told(stage, "llama-1")
    for name in ("llama", "llama-1"):
        told = kubectl("why", name)
        assert told.returncode == 0, told.stderr
        first, second = told.stdout.splitlines()[:2]
        assert first == "default/llama is waiting: 2 pods, 0 bound"
        assert second.startswith("  Never fits: needs 16 GPUs; the empty cluster has 8.")
    stage.nodes("n1", gpus=8)
    stage.until(lambda: stage.phase("llama-1") == "Running")
    (gang,) = json.loads(kubectl("why", "llama-0", "-n", "default", "--json").stdout)["gangs"]
    assert (gang["state"], gang["nodes"], gang["why"]) == ("running", ["n0", "n1"], "")
    assert gang["pods"] == ["llama-0", "llama-1"]


def test_jobs_lists_the_gangs_of_a_namespace(stage: PodStage, kubectl: Kubectl) -> None:
    stage.nodes("n0", gpus=8)
    stage.start()
    stage.pod("alone", gpus=8)
    stage.until(lambda: stage.phase("alone") == "Running")
    stage.pod("llama-0", gpus=8, **GANG)
    until_told(stage, "llama-0")
    head, alone, llama = kubectl("jobs").stdout.splitlines()
    assert head.split()[:4] == ["NAMESPACE", "GANG", "QUEUE", "PODS"]
    assert alone.split()[:7] == ["default", "alone", "-", "1", "1", "running", "n0"]
    assert llama.split()[:6] == ["default", "llama", "default", "1", "0", "waiting"]


def test_what_is_not_there_or_not_allowed_is_an_error(stage: PodStage, kubectl: Kubectl) -> None:
    told = kubectl("why", "nobody")
    assert told.returncode == 1
    assert told.stderr == "gantree: no pod or gang 'nobody' of gantree in namespace default\n"
    told = kubectl("why", "p0", "-n", "kube-system")
    assert told.returncode == 1
    assert (
        'cannot list resource "pods" in API group "" in the namespace "kube-system"' in told.stderr
    )


def test_when_and_queues_run_in_the_daemons_pod(
    stage: PodStage, kubectl: Kubectl, tmp_path: Path
) -> None:
    stage.pod("llama-0", gpus=8, **GANG)
    first = tmp_path / "first"
    script(first / "kubectl", EXEC)
    within = "-n gantree exec deploy/gantree -- gantree"
    told = kubectl("when", "llama-0", first=first)
    assert told.stdout == f"kubectl {within} when default/llama --state /state\n", told.stderr
    told = kubectl("queues", "--json", "--context", "real", first=first)
    assert told.stdout == f"kubectl --context=real {within} queues --state /state --json\n"


def test_whoever_may_not_exec_is_told_which_right_it_takes(
    stage: PodStage, kubectl: Kubectl, tmp_path: Path
) -> None:
    first = tmp_path / "first"
    if not stage.running.token:  # there is no kubectl
        script(first / "kubectl", "#!/bin/sh\nexit 1\n")
    told = kubectl("queues", first=first)
    assert told.returncode == 1
    assert "it needs the right to create pods/exec there" in told.stderr
    if stage.running.token:
        assert 'User "viewer" cannot get resource' in told.stderr


def test_the_package_installs_it() -> None:
    told = tomllib.loads((SOURCES.parent / "pyproject.toml").read_text())["project"]["scripts"]
    assert told["kubectl-gantree"] == f"{plugin.__name__}:{plugin.main.__name__}"
