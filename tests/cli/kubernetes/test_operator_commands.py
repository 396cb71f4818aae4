"""What an operator asks beside the scheduler: preflight, snapshot, a dry run and its report."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gantree.formats import read_job
from support.daemon import Program
from support.pods import PodStage

Gantree = Callable[..., Any]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    """A server with four nodes of two leaves, and its kubelet."""
    with PodStage(tmp_path / "unused") as stage:
        stage.nodes("a[0-1]", network_topology_nvidia_com__leaf="l0")
        stage.nodes("b[0-1]", network_topology_nvidia_com__leaf="l1")
        yield stage


def gang(stage: PodStage, name: str, members: int, scheduler: str = "gantree") -> None:
    annotations = {
        "gantree.io/gang-size": str(members),
        "gantree.io/required-topology": "leaf",
        "secret": "s3cret",
    }
    for number in range(members):
        stage.pod(
            f"{name}-{number}",
            gpus=8,
            labels={"gantree.io/gang": name, "gantree.io/queue": "research"},
            annotations=annotations,
            spec={"schedulerName": scheduler},
        )


def test_preflight_prints_what_to_fix_and_fails(gantree: Gantree, stage: PodStage) -> None:
    told = gantree("kubernetes", "preflight", "--api-server", stage.running.url)
    assert told.code == 0
    assert "warning: labels: a[0-1],b[0-1]: no feature.node.kubernetes.io/... label\n" in told.out
    last = "0 problems, 1 warning: 4 nodes, 4 with GPUs, Kubernetes v1.36.2; gantree's Lease and records would be in"
    assert told.out.endswith(f"{last} namespace default\n")
    stage.api.patch("/api/v1/nodes/a0/status", {"status": {"allocatable": {"nvidia.com/gpu": "7"}}})
    told = gantree("kubernetes", "preflight", "--api-server", stage.running.url, "--json")
    assert told.code == 1
    assert told.json()["problems"] == 1
    first = told.json()["findings"][0]
    assert (first["level"], first["check"], first["nodes"]) == ("problem", "device plugin", ["a0"])
    assert "XID" in first["fix"]


def test_a_snapshot_is_replayed(gantree: Gantree, stage: PodStage, tmp_path: Path) -> None:
    stage.pod("theirs", gpus=8, spec={"schedulerName": "other", "nodeName": "a0"})
    stage.pod("plain", spec={"schedulerName": "other", "nodeName": "a1"})
    gang(stage, "g", 2)
    folder = tmp_path / "fleet"
    assert gantree("kubernetes", "snapshot", folder, "--api-server", stage.running.url).code == 0
    assert not any("s3cret" in file.read_text() for file in folder.iterdir())
    (job,) = read_job((folder / "waiting.yaml").read_text(), "waiting.yaml")
    assert (job.name, job.queue, job.topology.required) == ("default.g", "research", "leaf")
    placed = gantree("place", folder / "cluster.yaml", folder / "waiting.yaml", "--json").json()
    members = placed["placements"][0]["members"]
    assert sorted(member["node"] for member in members) == ["b0", "b1"]
    without = ["what-if", folder / "cluster.yaml", folder / "waiting.yaml", "--without", "b0"]
    assert gantree(*without).code == 3
    replay = ["--cluster", folder / "cluster-empty.yaml", "--trace", folder / "trace.csv"]
    summary = gantree("simulate", *replay, "--out", tmp_path / "out", "--json").json()
    assert (summary["jobs"], summary["finished"]) == (2, 2)
    assert "default.plain" in (folder / "cluster-empty.yaml").read_text()


def test_a_dry_run_reports_while_it_runs_and_at_its_end(
    gantree: Gantree, stage: PodStage, tmp_path: Path
) -> None:
    state = tmp_path / "dry"
    words = ["kubernetes", "--dry-run", "--api-server", stage.running.url, "--state", str(state)]
    words += ["--listen", "127.0.0.1:0"]
    with Program(*words) as running:
        line = running.says("ready: cluster kubernetes, 4 nodes, 32 GPUs")
        gang(stage, "g", 2, scheduler="default-scheduler")
        while json.loads(gantree("jobs", "--state", state, "--json").out)["jobs"] == []:
            assert running.process.poll() is None
        url = line.split()[-1]
        token = (state / "token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        metrics = httpx.get(f"{url}/metrics", headers=headers).text
        assert 'gantree_shadow_gangs_started{scheduler="gantree"}' in metrics
        assert running.stop() == 0
        out = running.said.read()
    assert "Nothing was written to the cluster." in out
    assert "default/g  2     16" in out
    told = gantree("kubernetes", "shadow", "--state", state, "--json").json()
    assert told["gangs"][0]["ours"]["domains"] == {"leaf": 1, "node": 2}
    assert gantree("kubernetes", "shadow", "--state", state).out in out
    assert not any(pod["spec"].get("nodeName") for pod in stage.pods().values())


def test_a_dry_run_and_a_scheduler_never_share_a_directory(
    gantree: Gantree, stage: PodStage, tmp_path: Path
) -> None:
    words = ("kubernetes", "--api-server", stage.running.url, "--state")
    (tmp_path / "dry").mkdir()
    (tmp_path / "dry" / "shadow.json").touch()
    told = gantree(*words, tmp_path / "dry")
    assert told.code == 1
    assert "belongs to a dry run" in told.err
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "journal.sqlite3").touch()
    told = gantree(*words, tmp_path / "real", "--dry-run")
    assert told.code == 1
    assert "has the journal of a real daemon" in told.err
    told = gantree(*words, tmp_path / "new", "--dry-run", "--database", "postgresql://u@h/n")
    assert told.code == 2
    told = gantree("kubernetes", "shadow", "--state", tmp_path / "dry")
    assert (told.code, "no report of a dry run" in told.err) == (1, True)


@pytest.mark.parametrize("label", ["pool", "pool=a,b", "=a", "pool in (a)"])
def test_a_node_selector_that_is_no_label_is_named(gantree: Gantree, label: str) -> None:
    told = gantree("kubernetes", "--api-server", "http://127.0.0.1:9", "--node-selector", label)
    assert told.code == 2
    assert f"--node-selector: found {label!r}" in told.err


REPORT_URLS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("--report-url", "gantree:8080", "--listen", "127.0.0.1:0"), "expected https://HOST:PORT"),
    (("--report-url", "https://u:p@h", "--listen", "127.0.0.1:0"), "expected https://HOST:PORT"),
    (("--report-url", "https://h?a=b", "--listen", "127.0.0.1:0"), "expected https://HOST:PORT"),
    (("--report-url", "https://h:1"), "needs --listen"),
    (
        ("--report-url", "https://h:1", "--listen", "127.0.0.1:0", "--dry-run"),
        "is of no use in a dry run",
    ),
    (("--check-image", "check:1", "--listen", "127.0.0.1:0"), "needs --report-url"),
    (("--check-image", "a b", "--listen", "127.0.0.1:0"), "expected an image"),
)


@pytest.mark.parametrize(("words", "said"), REPORT_URLS)
def test_what_pods_cannot_report_to_or_check_in_is_refused(
    gantree: Gantree, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    where = ("--api-server", "http://127.0.0.1:9", "--state", tmp_path / "s")
    told = gantree("kubernetes", *where, *words)
    assert told.code == 2
    named = told.err.replace(f"{words[1]}: ", "").replace(f"{words[1]!r}: ", "")
    assert f"gantree: {words[0]} {said}" in named
    assert not (tmp_path / "s" / "journal.db").exists()


def test_a_release_says_what_is_left_and_fails(gantree: Gantree, stage: PodStage) -> None:
    words = ["kubernetes", "release", "default", "--api-server", stage.running.url]
    before = {"gantree.io/scheduler-before": "default-scheduler"}
    stage.pod("bare", annotations=before)
    told = gantree(*words)
    assert told.code == 1
    assert told.out.splitlines() == [
        "default: released; 0 pods evicted, 0 Jobs restarted, 1 left",
        "    default/bare: it has no controller that makes it again; delete it and create it again",
    ]
    (row,) = gantree(*words, "--json").json()["namespaces"]
    assert (row["namespace"], row["left"][0]["pod"]) == ("default", "default/bare")
    every = gantree("kubernetes", "release", "-A", "--api-server", stage.running.url)
    assert (every.code, every.out) == (0, "No namespace is switched.\n")
    told = gantree("kubernetes", "release", "--api-server", stage.running.url)
    assert (told.code, told.err) == (2, "gantree: name namespaces, or give --all-namespaces\n")
