"""Arrays of jobs on a real daemon: one id for all, one row for those that wait, and limits on what waits."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gantree.control.requests.waiting_limits import WaitingLimits
from gantree.core.lifecycle.arrays import WINDOW
from support.daemon import Daemon

Gantree = Callable[..., Any]
CLUSTER = """
name: one
tiers: [node]
machines: {m4: {gpus: 4, gpu: H100-80GB}}
nodes: [{names: n0, machine: m4}]
"""


def array(name: str, indices: str, *, gpus: int = 1, run: str = "sleep 600", **more: Any) -> Any:
    gang = [{"role": "w", "members": 1, "each": {"gpus": gpus}, "run": ["sh", "-c", run]}]
    return {"name": name, "array": indices, "gang": gang, **more}


def _phases(whole: Any) -> dict[str, int]:
    counts: dict[str, int] = whole["elements"]["phases"]
    return counts


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    with Daemon(tmp_path / "state", CLUSTER, waiting_limits=WaitingLimits(200, 300)) as running:
        monkeypatch.setenv("GANTREE_STATE", str(running.state_dir))
        yield running


def test_an_array_is_submitted_listed_held_and_cancelled_as_one(
    gantree: Gantree, daemon: Daemon
) -> None:
    taken = daemon.client.submit(jobs=[array("sweep", "0-9999", gpus=4)])
    assert taken["jobs"] == [{"job": "sweep", "name": "sweep", "array": "0-9999"}]
    daemon.wait("sweep-0", until="running")
    listed = gantree("jobs", "--columns", "job,phase,note").out.splitlines()
    first, *alone, last = (line.split()[0] for line in listed[1:])
    assert first == "sweep-0" and len(alone) <= 4  # those with a reservation
    assert last == f"sweep[{1 + len(alone)}-9999]"
    assert "array of 10000: 9999 pending, 1 running" in listed[-1]
    assert (
        "behind" in gantree("why", "sweep-5000").out
        and "sweep-1:" in gantree("why", "sweep-5000").out
    )
    assert "Array of 10000 jobs: 9,999 pending, 1 running." in gantree("why", "sweep").out

    gantree("hold", "sweep")
    assert daemon.client.job("sweep")["held"] and daemon.client.job("sweep-9999")["held"]
    assert len(gantree("jobs").out.splitlines()) == 3  # the head, sweep-0, sweep[1-9999]
    gantree("release", "sweep-700")  # that one alone
    gantree("cancel", "sweep-0")
    daemon.wait("sweep-700", until="running")
    gantree("cancel", "sweep")
    assert daemon.wait("sweep-700")["phase"] == "cancelled"
    whole = daemon.client.job("sweep")
    assert whole["phase"] == "cancelled" and whole["elements"]["phases"] == {"cancelled": 10_000}
    assert daemon.client.job("sweep-9999")["phase"] == "cancelled"
    assert gantree("jobs").out.startswith("No pending or running jobs")
    assert gantree("jobs", "--all", "--columns", "job").out.split() == [
        "JOB", "sweep-0", *(f"sweep-{index}" for index in range(1, WINDOW)), "sweep-700", "sweep[64-699,701-9999]"
    ]  # fmt: skip


def test_a_killed_daemon_goes_on_with_its_arrays(gantree: Gantree, daemon: Daemon) -> None:
    daemon.client.submit(jobs=[array("a", "0-69", run="true"), array("b", "0-99", gpus=8)])
    daemon.wait("a-2")
    daemon.kill()
    daemon.start()
    assert _phases(daemon.wait("a")) == {"succeeded": 70}
    assert _phases(daemon.client.job("b")) == {"pending": 100}
    assert "Never fits" in gantree("why", "b-99").out


def test_a_job_after_an_array_waits_for_all_of_it(gantree: Gantree, daemon: Daemon) -> None:
    after = {"name": "sum", "after": ["a"], "gang": array("x", "0", run="true")["gang"]}
    daemon.client.submit(jobs=[array("a", "0-4", run="true"), after])
    assert daemon.wait("sum")["phase"] == "succeeded"
    started = daemon.client.job("sum")["started_at"]
    assert all(row["ended_at"] <= started for row in daemon.client.jobs() if row["array"] == "a")


def test_a_second_array_of_a_name_has_ids_of_its_own(daemon: Daemon) -> None:
    first = {"name": "b-3", "hold": True, "gang": array("x", "0")["gang"]}
    daemon.client.submit(jobs=[first])
    ids = [
        daemon.client.submit(jobs=[array(name, "0-4", hold=True)])["jobs"][0]["job"]
        for name in ("a", "a", "b")
    ]
    assert ids == ["a", "a.2", "b.2"]
    plain = daemon.client.submit(jobs=[{**first, "name": "a-4"}])["jobs"][0]["job"]
    assert plain == "a-4-2"
    assert daemon.client.job("a.2-4")["name"] == "a-4"


def test_pages_of_the_list_show_each_element_once(daemon: Daemon) -> None:
    plain = {"name": "p", "hold": True, "gang": array("x", "0")["gang"]}
    daemon.client.submit(jobs=[plain, array("a", "5-150", hold=True), {**plain, "name": "q"}])
    daemon.client.cancel("a-100")
    names, after = [], None
    while True:
        page = daemon.client.jobs_page(limit=7, after=after)
        names += [row["name"] for row in page["jobs"]]
        after = page["next"]
        if after is None:
            break
    assert names == ["p", *(f"a-{index}" for index in range(5, 151)), "q"]
    by_array = daemon.client.jobs(by="array")
    assert [row["job"] for row in by_array] == ["p", "a-100", "a", "q"]
    assert by_array[2]["elements"]["stands_for"] == "5-99,101-150"


def test_one_user_may_not_fill_the_queue(gantree: Gantree, daemon: Daemon) -> None:
    gang = array("x", "0")["gang"]
    many = [{"name": f"j{number}", "hold": True, "gang": gang} for number in range(200)]
    daemon.client.submit(jobs=many, user="ann")
    file = Path(daemon.state_dir).parent / "more.yaml"
    file.write_text("name: more\ngang: [{role: w, members: 1, run: ['true']}]\nuser: ann\n")
    refused = gantree("submit", str(file))
    assert (
        refused.code
        and "user ann: 200 jobs wait, and 1 more would be over the limit of 200" in refused.err
    )
    assert "--user-waiting" in refused.err and "array: 0-999" in refused.err
    daemon.client.submit(jobs=[array("big", "0-9999", gpus=8)], user="bob")  # counts as a window
    refused = gantree("submit", str(file), "--queue", "other")
    assert "user ann" in refused.err
    with pytest.raises(Exception, match="queue default: 26"):
        daemon.client.submit(jobs=many[:40], user="eve")
    assert json.loads(gantree("jobs", "--json").out)["jobs"][-1]["job"] == "big-9999"
