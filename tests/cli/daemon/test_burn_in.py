"""`gantree burn-in` on real daemons: cordoned virtual nodes check themselves over gloo before they return.

What needs PyTorch is skipped without it; what happens without it is tested too.
"""

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from support.daemon import Daemon
from support.slowed import SLOWED

Gantree = Callable[..., Any]
Complaints = Callable[[Any, str], list[str]]
has_torch = find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not has_torch, reason="needs PyTorch (the extra torch)")


def site(*slow: str) -> str:
    """Four nodes with 2 CPUs each; slow ones have a prefix that slows the collectives of a check."""
    lines = [
        f"  - {{names: n{n}, machine: m"
        + (f", launch: {json.dumps(SLOWED)}" if f"n{n}" in slow else "")
        + "}"
        for n in range(4)
    ]
    head = "name: t\ntiers: [node]\nmachines: {m: {gpus: 0, cpus: 2}}\nnodes:\n"
    return head + "\n".join(lines)


def states(daemon: Daemon) -> dict[str, str]:
    return {row["node"]: row["state"] for row in daemon.client.nodes()}


@pytest.mark.skipif(has_torch, reason="PyTorch is installed here")
def test_without_pytorch_it_fails_and_says_what_is_missing(
    tmp_path: Path, gantree: Gantree, complaints: Complaints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTREE_STATE", str(tmp_path / "state"))
    with Daemon(tmp_path / "state", site()) as daemon:
        daemon.client.cordon("n1")
        done = gantree("burn-in", "n1", "--duration", "60s", "--uncordon", "--json")
        assert (done.code, complaints(done.json(), "burn-in")) == (1, [])
        assert (done.json()["passed"], done.json()["failed"]) == ([], ["n1"])
        assert "PyTorch is not installed beside gantree" in done.json()["reason"]
        assert states(daemon)["n1"] == "cordoned"
        assert "failed: n1" in gantree("burn-in", "n1", "--duration", "60s").out


def test_nodes_in_use_and_wrong_words_are_refused_and_change_nothing(
    tmp_path: Path, gantree: Gantree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTREE_STATE", str(tmp_path / "state"))
    with Daemon(tmp_path / "state", site()) as daemon:
        for words, said in [
            (["n0"], "node n0 is not cordoned: `gantree drain n0` first"),
            (["n9"], "there is no node n9"),
            (["n0", "--duration", "1s"], "duration_s"),
            (["n0", "--duration", "soon"], "--duration: found 'soon'; allowed: a duration"),
        ]:
            refused = gantree("burn-in", *words)
            assert refused.code in (1, 2)
            assert said in refused.err
        assert daemon.client.jobs() == []


@needs_torch
def test_nodes_that_pass_are_uncordoned_and_measured_figures_are_printed(
    tmp_path: Path, gantree: Gantree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTREE_STATE", str(tmp_path / "state"))
    with Daemon(tmp_path / "state", site()) as daemon:
        for node in ("n0", "n1"):
            daemon.client.cordon(node)
        done = gantree("burn-in", "n0", "n1", "--duration", "50s", "--uncordon")
        assert done.code == 0, done
        lines = [line.split() for line in done.out.splitlines()]
        assert lines[0] == ["WHERE", "WHAT", "MEASURED", "EXPECTED", "UNIT"]
        assert ["n0", "arithmetic"] in [line[:2] for line in lines]
        assert ["n0", "all-reduce", "inside"] in [line[:3] for line in lines]
        assert ["n0-n1", "all-reduce"] in [line[:2] for line in lines]
        assert done.out.endswith("passed: n0, n1\nuncordoned: n0, n1\n")
        assert set(states(daemon).values()) == {"ready"}


@needs_torch
def test_a_slow_node_fails_and_stays_out_while_the_others_return(
    tmp_path: Path, gantree: Gantree, complaints: Complaints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTREE_STATE", str(tmp_path / "state"))
    with Daemon(tmp_path / "state", site("n2")) as daemon:
        nodes = ("n0", "n1", "n2", "n3")
        for node in nodes:
            daemon.client.cordon(node)
        done = gantree("burn-in", *nodes, "--duration", "2m", "--uncordon", "--json")
        assert (done.code, complaints(done.json(), "burn-in")) == (1, []), done.json()
        assert (done.json()["uncordoned"], done.json()["failed"]) == (["n0", "n1", "n3"], ["n2"])
        assert states(daemon)["n2"] == "cordoned"
        (sign,) = daemon.client.node("n2")["signs"]
        assert sign["source"] == "check"
