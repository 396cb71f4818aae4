"""What operators and users ask of a running daemon, over its real socket and over a restart."""

from collections.abc import Callable, Iterator

import pytest

from gantree.model.errors import BadFields, BadInput, Conflict, NotFound, Stale
from support.daemon import Daemon

CLUSTER = """
name: two
tiers: [node]
machines: {m2: {gpus: 2, gpu: H100-80GB}}
nodes: [{names: "n[0-1]", machine: m2}]
"""
QUEUES = """
preset: gantree
queues: [{name: default, limit: {gpus: {any: 2}}}]
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("daemon") / "state", CLUSTER) as daemon:
        yield daemon


def submit(daemon: Daemon, name: str, gpus: int = 2, more: str = "", members: int = 1) -> None:
    gang = (
        f"gang: [{{role: w, members: {members}, each: {{gpus: {gpus}}}, run: [sleep, '60']{more}}}]"
    )
    daemon.client.submit(f"name: {name}\n{gang}\n", base_dir="/tmp")


def cancel(daemon: Daemon, *names: str) -> None:
    for name in names:
        daemon.client.cancel(name)
        daemon.wait(name)


def state_of(daemon: Daemon, node: str) -> str:
    return str(daemon.client.node(node)["state"])


def settled(daemon: Daemon, name: str, phase: str) -> None:
    """Wait for the facts that bring a job into a phase."""
    for fact in daemon.client.facts(follow=True):
        if fact["data"].get("job") == name and daemon.client.job(name)["phase"] == phase:
            return


def test_a_running_job_is_suspended_over_a_restart_and_resumed(daemon: Daemon) -> None:
    submit(daemon, "s")
    daemon.wait("s", "running")
    assert daemon.client.suspend("s") == {"job": "s"}
    settled(daemon, "s", "pending")
    daemon.kill()
    daemon.start()
    row = daemon.client.job("s")
    assert (row["phase"], row["held"], row["attempt"]) == ("pending", True, 1)
    assert "suspended by hand" in daemon.client.why("s")["sentence"]
    assert daemon.client.resume("s") == {"job": "s"}
    assert daemon.wait("s", "running")["attempt"] == 2
    cancel(daemon, "s")


def test_an_elastic_gang_is_scaled_and_what_cannot_be_is_refused_in_words(daemon: Daemon) -> None:
    gang = "gang: [{role: w, members: 1, each: {gpus: 2}, run: [sleep, '60']}]"
    daemon.client.submit(f"name: e\n{gang}\nelastic: {{min: 1, max: 2}}\n", base_dir="/tmp")
    daemon.wait("e", "running")
    with pytest.raises(BadInput, match="allowed for e: 1, 2"):
        daemon.client.scale("e", 3)
    with pytest.raises(BadFields):
        daemon.client.scale("e", 0)
    version = daemon.client.job("e")["version"]
    with pytest.raises(Stale):
        daemon.client.scale("e", 2, if_version="not-its-version")
    daemon.client.scale("e", 2, if_version=version)
    assert daemon.client.job("e")["members"] == 2
    settled(daemon, "e", "running")
    while daemon.client.job("e")["members_now"] != 2:
        daemon.client.job("e", wait_s=0.2)
    assert daemon.client.job("e")["gpus_now"] == 4
    cancel(daemon, "e")


def test_a_priority_is_changed_and_recorded(daemon: Daemon) -> None:
    submit(daemon, "p")
    daemon.client.reprioritise("p", "production")
    assert daemon.client.job("p")["priority"] == 300
    daemon.client.reprioritise("p", 7)
    assert daemon.client.job("p")["priority"] == 7
    with pytest.raises(BadInput, match="no-such"):
        daemon.client.reprioritise("p", "no-such")
    asked = [f["data"]["asked"] for f in daemon.client.facts() if f["fact"] == "JobReprioritised"]
    assert asked == ["production", 7]
    cancel(daemon, "p")


def test_nodes_are_cordoned_drained_and_labelled_and_it_survives_a_restart(daemon: Daemon) -> None:
    submit(daemon, "there")
    daemon.wait("there", "running")
    (here,) = [row["node"] for row in daemon.client.nodes() if row["jobs"]]
    other = "n1" if here == "n0" else "n0"
    daemon.client.cordon(other, "fan")
    assert state_of(daemon, other) == "cordoned"
    submit(daemon, "waits")
    assert f"cordoned: {other} (fan)" in daemon.client.why("waits")["sentence"]
    daemon.client.label(other, {"pool": "x"})
    daemon.kill()
    daemon.start()
    assert (state_of(daemon, other), daemon.client.node(other)["labels"]) == (
        "cordoned",
        {"pool": "x"},
    )
    assert daemon.client.job("waits")["phase"] == "pending"
    daemon.client.uncordon(other)
    daemon.wait("waits", "running")
    cancel(daemon, "waits")
    daemon.client.drain(here, deadline_s=3600, reason="firmware")
    while state_of(daemon, here) != "drained":
        daemon.client.job("there", wait_s=0.2)
    assert daemon.wait("there", "running")["attempt"] == 2
    assert [each["job"] for each in daemon.client.node(other)["jobs"]] == ["there"]
    daemon.client.uncordon(here)
    daemon.client.label(other, {"pool": None})
    assert daemon.client.node(other)["labels_by_hand"] == {}
    with pytest.raises(NotFound, match="there is no node n9"):
        daemon.client.cordon("n9")
    cancel(daemon, "there")


def test_a_policy_is_tried_applied_and_rolled_back_while_jobs_wait(daemon: Daemon) -> None:
    assert daemon.client.policy()["number"] is None
    first = daemon.client.apply_policy(QUEUES, "limited.yaml")["version"]
    assert (first["number"], first["source"]) == (1, "limited.yaml")
    submit(daemon, "a")
    submit(daemon, "b")
    daemon.wait("a", "running")
    assert daemon.client.job("b")["phase"] == "pending"
    change = daemon.client.policy_what_if("preset: gantree\n")
    assert change["starts"] == ["b"]
    assert daemon.client.job("b")["phase"] == "pending"
    with pytest.raises(BadFields, match=r"wrong\.yaml"):
        daemon.client.apply_policy("presett: fair\n", "wrong.yaml")
    daemon.client.apply_policy("preset: gantree\n", "open.yaml")
    daemon.wait("b", "running")
    assert daemon.client.roll_back_policy(1)["version"]["number"] == 3
    daemon.kill()
    daemon.start()
    assert daemon.client.policy()["text"] == QUEUES
    assert [row["number"] for row in daemon.client.policy_versions()] == [1, 2, 3]
    assert daemon.client.policy_version(2)["text"] == "preset: gantree\n"
    submit(daemon, "c", gpus=1)
    assert daemon.client.job("c")["phase"] == "pending"
    with pytest.raises(NotFound, match="only 1 to 3"):
        daemon.client.roll_back_policy(9)
    cancel(daemon, "c", "a", "b")


def test_what_is_over_is_refused(daemon: Daemon) -> None:
    submit(daemon, "over", gpus=1)
    cancel(daemon, "over")
    client = daemon.client
    asks: list[Callable[[], object]] = [
        lambda: client.suspend("over"),
        lambda: client.resume("over"),
        lambda: client.scale("over", 1),
        lambda: client.reprioritise("over", 1),
    ]
    for ask in asks:
        with pytest.raises(Conflict, match="has ended"):
            ask()
