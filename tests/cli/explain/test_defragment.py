"""`gantree defragment`: the plan that is printed is the plan that is carried out, or nothing is."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.command_line import CommandLine
from support.daemon import Daemon

CLUSTER = """
name: three
tiers: [leaf, node]
machines: {m4: {gpus: 4, gpu: H100-80GB}}
nodes: [{names: "n[0-2]", machine: m4, at: {leaf: l0}}]
"""
POLICY = "preset: gantree\nevictions: {grace: 1s}\n"


def submit(daemon: Daemon, name: str, gpus: int) -> None:
    gang = f"gang: [{{role: w, members: 1, each: {{gpus: {gpus}}}, run: [sleep, '300']}}]"
    daemon.client.submit(f"name: {name}\n{gang}\n", base_dir="/tmp")


def node_of(daemon: Daemon, job: str) -> str:
    node: str = daemon.client.job(job)["placement"]["members"][0]["node"]
    return node


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    """Half of each node is taken, by s0, s2 and s4; `whole` needs a whole node."""
    with Daemon(tmp_path / "state", CLUSTER, POLICY) as daemon:
        monkeypatch.setenv("GANTREE_STATE", str(daemon.state_dir))
        for name in ("s0", "s1", "s2", "s3", "s4", "s5"):
            submit(daemon, name, 2)
            daemon.wait(name, "running")
        for name in ("s1", "s3", "s5"):
            daemon.client.cancel(name)
            daemon.wait(name)
        submit(daemon, "whole", 4)
        yield daemon


def attempts(daemon: Daemon) -> dict[str, int]:
    return {job: daemon.client.job(job)["attempt"] for job in ("s0", "s2", "s4")}


def test_the_plan_that_was_printed_is_made_by_the_command_that_is_printed_with_it(
    daemon: Daemon, gantree: CommandLine
) -> None:
    printed = gantree("defragment", "whole").out
    command = printed.splitlines()[-1].partition("to make these moves: gantree ")[2]
    (move,) = daemon.client.defragment("whole")["plan"]["moves"]
    made = gantree(*command.split())
    assert made.code == 0 and "the moves have begun" in made.out
    assert f"  {move['job']}: {move['source']['nodes'][0]} " in made.out
    daemon.wait("whole", "running")
    daemon.wait(move["job"], "running")
    assert [node_of(daemon, move["job"])] == move["target"]["nodes"]
    assert node_of(daemon, "whole") == move["source"]["nodes"][0]


def test_a_plan_that_is_another_by_now_is_refused_and_the_new_one_is_told(
    daemon: Daemon, gantree: CommandLine
) -> None:
    before = daemon.client.defragment("whole")["plan"]
    daemon.client.cordon(before["place"]["nodes"][0])
    now = daemon.client.defragment("whole")["plan"]
    assert now["digest"] != before["digest"]
    refused = gantree("defragment", "whole", "--apply", "--plan", before["digest"])
    assert refused.code == 1 and refused.out == ""
    (move,) = now["moves"]
    assert "the plan has changed since it was shown: nothing was moved" in refused.err
    assert (
        f"{move['job']} from {move['source']['nodes'][0]} to {move['target']['nodes'][0]}"
        in refused.err
    )
    assert f"--plan {now['digest']}" in refused.err
    assert attempts(daemon) == {"s0": 1, "s2": 1, "s4": 1}
    assert gantree("defragment", "whole", "--apply", "--plan", now["digest"]).code == 0
    daemon.wait("whole", "running")


def test_a_digest_without_apply_is_refused(daemon: Daemon, gantree: CommandLine) -> None:
    refused = gantree("defragment", "whole", "--plan", "0123456789ab")
    assert refused.code == 2
    assert "--plan: allowed: the digest of a printed plan, together with --apply" in refused.err
