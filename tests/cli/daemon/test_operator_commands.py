"""Commands of operators against a real daemon: nodes, the policy, and what may be asked of jobs that run."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.daemon import Daemon

Gantree = Callable[..., Any]
Complaints = Callable[[Any, str], list[str]]
CLUSTER = """
name: two
tiers: [node]
machines: {m2: {gpus: 2, gpu: H100-80GB}}
nodes: [{names: "n[0-1]", machine: m2, labels: {pool: a}}]
"""


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("operators") / "state", CLUSTER) as running:
        yield running


@pytest.fixture
def daemon(started: Daemon, monkeypatch: pytest.MonkeyPatch) -> Daemon:
    monkeypatch.setenv("GANTREE_STATE", str(started.state_dir))
    return started


def test_nodes_are_listed_cordoned_drained_labelled_and_opened_again(
    gantree: Gantree, daemon: Daemon, complaints: Complaints
) -> None:
    cordoned = gantree("cordon", "n0", "n9", "--reason", "fan")
    assert (cordoned.code, cordoned.out) == (1, "n0 is cordoned\n")
    assert "there is no node n9" in cordoned.err
    lines = [line.split() for line in gantree("nodes").out.splitlines()]
    assert lines == [
        ["NODE", "STATE", "GPUS", "FREE", "JOBS", "LABELS", "REASON"],
        ["n0", "cordoned", "2", "-", "pool=a", "fan"],
        ["n1", "ready", "2", "2", "pool=a"],
    ]
    drained = gantree("drain", "n1", "--deadline", "30m", "--json")
    assert (drained.code, drained.json()) == (0, {"draining": ["n1"]})
    assert complaints(drained.json(), "drain") == []
    assert gantree("label", "n0", "pool-", "rack=7").out == "n0 is labelled\n"
    listed = gantree("nodes", "--json").json()
    assert complaints(listed, "nodes") == []
    assert [row["state"] for row in listed["nodes"]] == ["cordoned", "drained"]
    assert listed["nodes"][0]["labels"] == {"rack": "7"}
    assert gantree("label", "n0", "pool=a", "rack-").code == 0
    opened = gantree("uncordon", "n0", "n1", "--json")
    assert opened.json() == {"uncordoned": ["n0", "n1"]}
    assert complaints(opened.json(), "uncordon") == []


def test_a_fault_takes_a_node_out_until_its_source_finds_it_healthy(
    gantree: Gantree, daemon: Daemon, complaints: Complaints
) -> None:
    reported = gantree("node-fault", "n0", "--gpu", "1", "--xid", "79", "--source", "logs")
    fault = "GPU 1: XID 79 (GPU has fallen off the bus)"
    assert (reported.code, reported.out) == (0, f"n0: {fault}\n")
    row = daemon.client.node("n0")
    assert (row["state"], row["reason"]) == ("cordoned", fault)
    assert [(sign["source"], sign["reason"]) for sign in row["signs"]] == [("logs", fault)]
    harmless = gantree("node-fault", "n1", "--xid", "13", "--json")
    assert (harmless.json(), complaints(harmless.json(), "node-fault")) == (
        {"node": "n1", "fault": ""},
        [],
    )
    assert "nothing follows for n1" in gantree("node-fault", "n1", "--xid", "13").out
    assert daemon.client.node("n1")["state"] == "ready"
    cleared = gantree("node-fault", "n0", "--clear", "--source", "logs")
    assert (cleared.code, cleared.out) == (0, "n0: logs reports no fault\n")
    assert daemon.client.node("n0")["state"] == "ready"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("n0",), "give --xid or --reason, or --clear alone"),
        (("n0", "--clear", "--xid", "79"), "give --xid or --reason, or --clear alone"),
        (("n0", "--gpu", "1"), "--gpu needs --xid or --reason"),
        (("n0", "--gpu", "2", "--xid", "79"), "node n0 has no GPU 2; allowed: 0 to 1"),
        (("n9", "--xid", "79"), "there is no node n9"),
        (("n0", "--xid", "79", "--source", ""), "source: found no text"),
        (("n0", "--reason", "a\nb"), "reason: found"),
    ],
)
def test_what_no_fault_is_is_refused(
    gantree: Gantree, daemon: Daemon, words: tuple[str, ...], says: str
) -> None:
    refused = gantree("node-fault", *words)
    assert refused.code != 0
    assert says in refused.err
    assert all(row["state"] == "ready" for row in daemon.client.nodes())


def test_links_are_reported_listed_overruled_and_whole_again(
    gantree: Gantree, daemon: Daemon, complaints: Complaints
) -> None:
    assert gantree("links").out == "no link is reported to carry less than its rate\n"
    half = ("--health", "0.5", "--reason", "2x of 4x")
    reported = gantree("degrade", "node:n1", "nic:n1/mlx5_9", *half)
    assert (reported.code, reported.out) == (1, "node:n1 carries 50% of its rate\n")
    assert "there is no link 'nic:n1/mlx5_9'" in reported.err
    assert gantree("degrade", "node:n1", "--health", "0.25", "--source", "ufm").code == 0
    listed = gantree("links", "--json")
    assert complaints(listed.json(), "links") == []
    assert [(row["source"], row["health"]) for row in listed.json()["links"]] == [
        ("operator", 0.5),
        ("ufm", 0.25),
    ]
    assert [line.split()[:3] for line in gantree("links").out.splitlines()[1:]] == [
        ["node:n1", "50%", "operator"],
        ["node:n1", "25%", "ufm"],
    ]
    nodes = gantree("nodes")
    assert "node:n1 carries 50% of its rate (operator: 2x of 4x)" in nodes.out
    rows = gantree("nodes", "--json").json()
    assert complaints(rows, "nodes") == []
    assert [len(row["links"]) for row in rows["nodes"]] == [0, 2]
    restored = gantree("restore", "node:n1", "--json")
    assert (restored.json(), complaints(restored.json(), "restore")) == (
        {"restored": ["node:n1"]},
        [],
    )
    assert all(row["overruled"] for row in gantree("links", "--json").json()["links"])
    for source in ("operator", "ufm"):
        whole = gantree("degrade", "node:n1", "--health", 1, "--source", source, "--json")
        assert complaints(whole.json(), "degrade") == []
    assert gantree("links", "--json").json() == {"links": []}


def test_load_has_a_column_where_a_link_is_busy(gantree: Gantree, daemon: Daemon) -> None:
    busy = gantree("degrade", "node:n1", "--health", 1, "--load", "0.7", "--source", "noc")
    assert busy.out == "node:n1 carries 100% of its rate, 70% busy\n"
    head, row = gantree("links").out.splitlines()
    assert (head.split()[:4], row.split()[:4]) == (
        ["LINK", "CARRIES", "BUSY", "SOURCE"],
        ["node:n1", "100%", "70%", "noc"],
    )
    assert "node:n1 carries 100% of its rate, 70% busy (noc)" in gantree("nodes").out
    gantree("degrade", "node:n1", "--health", 1, "--source", "noc")
    assert gantree("links", "--json").json() == {"links": []}


@pytest.mark.parametrize("words", [("--health", "1.5"), ("--health", "nan"), ()])
def test_what_no_share_is_is_refused(gantree: Gantree, daemon: Daemon, words: tuple[str]) -> None:
    assert gantree("degrade", "node:n1", *words).code == 2
    assert gantree("links", "--json").json() == {"links": []}


def test_what_no_label_and_no_deadline_is_is_refused(gantree: Gantree, daemon: Daemon) -> None:
    label = gantree("label", "n0", "pool")
    assert label.code == 2
    assert "KEY=VALUE" in label.err
    deadline = gantree("drain", "n0", "--deadline", "soon")
    assert deadline.code == 2
    assert "--deadline: found 'soon'" in deadline.err
    assert daemon.client.node("n0")["state"] == "ready"


def test_jobs_that_wait_are_suspended_scaled_raised_and_resumed(
    gantree: Gantree, daemon: Daemon, job_file: Callable[..., Path], complaints: Complaints
) -> None:
    gantree("submit", job_file("wide", 4, 2, elastic={"min": 3, "max": 6}))  # never starts
    for words, key in (
        (("suspend", "wide"), "suspended"),
        (("resume", "wide"), "resumed"),
        (("scale", "wide", "--members", "5"), "scaled"),
        (("reprioritise", "wide", "--priority", "production"), "reprioritised"),
    ):
        asked = gantree(*words, "--json")
        assert (asked.code, asked.json()) == (0, {key: ["wide"]})
        assert complaints(asked.json(), words[0]) == []
    row = daemon.client.job("wide")
    assert (row["members"], row["priority"], row["held"]) == (5, 300, False)
    refused = gantree("scale", "wide", "--members", "7")
    assert refused.code == 2
    assert "allowed for wide: 3, 4, 5, 6" in refused.err
    twice = gantree("resume", "wide")
    assert twice.code == 1
    assert "wide is not held" in twice.err
    assert gantree("reprioritise", "wide", "--priority", "12").out == "wide is reprioritised\n"
    gantree("cancel", "wide")


def test_the_policy_is_shown_checked_tried_applied_and_rolled_back(
    gantree: Gantree, daemon: Daemon, tmp_path: Path, complaints: Complaints
) -> None:
    assert gantree("policy", "show").out.endswith("preset: gantree\n")
    file = tmp_path / "two.yaml"
    file.write_text("preset: fair\nqueues: [{name: a, weight: 2}]\n")
    checked = gantree("policy", "check", file, "--json")
    assert (checked.code, checked.json()) == (
        0,
        {"suits": True, "without_queue": {}, "warnings": []},
    )
    assert complaints(checked.json(), "policy-check") == []
    other = tmp_path / "other.yaml"
    other.write_text("queues: [{name: a, limit: {gpus: {NO-SUCH: 4}}}]\n")
    told = "queue a: limit.gpus.NO-SUCH: no node has this model"
    assert gantree("policy", "check", other).err.startswith(told)
    assert told in gantree("policy", "apply", other, "--dry-run").out
    tried = gantree("policy", "apply", file, "--dry-run")
    assert "+ queues.a.weight: 2\n" in tried.out
    assert "No decision changes now." in tried.out
    assert (
        complaints(gantree("policy", "apply", file, "--dry-run", "--json").json(), "policy-change")
        == []
    )
    assert gantree("policy", "history", "--json").json() == {"versions": []}
    applied = gantree("policy", "apply", file)
    assert applied.code == 0
    assert applied.out.startswith(f"version 1 ({file}")
    adopted = gantree("policy", "apply", "gantree", "--json").json()
    assert complaints(adopted, "policy-apply") == []
    assert adopted["version"]["number"] == 2
    assert gantree("policy", "rollback", "1", "--dry-run").code == 0
    assert gantree("policy", "rollback", "1").out.startswith("version 3 (")
    shown = gantree("policy", "show", "--json").json()
    assert complaints(shown, "policy-show") == []
    assert shown["text"] == file.read_text()
    history = gantree("policy", "history", "--json").json()
    assert complaints(history, "policy-history") == []
    assert [row["number"] for row in history["versions"]] == [1, 2, 3]
    assert gantree("policy", "show", "--version", "2").out.endswith("preset: gantree\n")


def test_a_policy_that_does_not_suit_is_refused_with_its_line(
    gantree: Gantree, daemon: Daemon, tmp_path: Path
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("preset: fair\nqueues:\n  - name: a\n    guarantee: {gpus: {any: 64}}\n")
    for command in ("check", "apply"):
        refused = gantree("policy", command, file)
        assert refused.code == 2
        assert "wrong.yaml:4" in refused.err


def test_the_rules_of_a_preset_are_shown_without_a_daemon(gantree: Gantree) -> None:
    shown = gantree("policy", "show", "fair")
    assert shown.code == 0
    assert "order: [share, priority, arrival]" in shown.out
    other = gantree("policy", "show", "fai")
    assert (other.code, other.out) == (2, "")
    assert "found `fai`; allowed: gantree, fifo, " in other.err
    assert other.err.endswith("Did you mean `fair`?\n")
    assert gantree("policy", "show", "fair", "--json").code == 2


def test_a_policy_that_is_neither_file_nor_preset_is_told_the_presets(
    gantree: Gantree, daemon: Daemon
) -> None:
    checked = gantree("policy", "check", "gantre")
    assert checked.code == 2
    assert "no such file or directory; allowed: a policy file, or a preset (" in checked.err
    assert checked.err.endswith("Did you mean `gantree`?\n")


@pytest.mark.parametrize("command", ["logs", "cancel"])
@pytest.mark.parametrize("word", ["a/b", "../../etc"])
def test_a_word_with_slashes_is_a_name_that_no_job_has(
    gantree: Gantree, daemon: Daemon, command: str, word: str
) -> None:
    outcome = gantree(command, "--", word)
    assert (outcome.code, outcome.err) == (1, f"gantree: there is no job {word!r}\n")
