"""A machine whose clock stands far ahead of the journal: a start is refused unless somebody says that it is right."""

import json
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Gantree
from gantree.journal.clock_correction import TIME_FIELDS
from gantree.model.events import EVENTS
from gantree.model.fact_kinds import FACTS
from gantree.model.orders import ORDERS
from support.daemon import Daemon, Program
from support.wrong_clocks import DAY_S, jump_ahead, move_events


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """A start on a state directory that has had a daemon."""
    words = ["up", "--virtual", "dgx-h100:1", "--state", str(tmp_path / "state")]
    with Program(*words) as first:
        first.says("ready")
        assert first.stop() == 0
    return words


def test_a_clock_far_ahead_of_the_journal_is_refused_until_it_is_accepted(
    words: list[str], gantree: Gantree
) -> None:
    move_events(Path(words[-1]), -2000)
    told = gantree(*words)
    assert told.code == 1
    assert "2000 days ahead of the newest event of the journal" in told.err
    assert "--accept-clock" in told.err
    for more in (["--accept-clock"], []):  # once there is an event of today, nobody asks any more
        with Program(*words, *more) as accepted:
            accepted.says("ready")
            assert accepted.stop() == 0


@pytest.mark.parametrize("days", [-29, 2000])
def test_a_pause_of_weeks_and_a_clock_that_stands_behind_are_no_obstacle(
    words: list[str], days: int
) -> None:
    move_events(Path(words[-1]), days)
    with Program(*words) as program:
        program.says("ready")
        assert program.stop() == 0


CLUSTER = """
name: one
tiers: [node]
machines: {m4: {gpus: 4, gpu: H100-80GB}}
nodes: [{names: n0, machine: m4}]
"""
DURATIONS = {"grace_s", "gpu_s_lost", "lost_s", "checkpoint_every_s", "step_s"}
SHARES = {"health", "load", "slowdown", "level", "amount", "used", "keeps"}


def gpu_hours(daemon: Daemon) -> float:
    return float(daemon.client.usage(since=0.0)["sum"]["held_gpu_hours"])


def test_the_journal_of_a_wrong_clock_is_corrected_and_the_jump_is_charged_to_nobody(
    tmp_path: Path, gantree: Gantree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GANTREE_STATE", str(tmp_path / "state"))
    role = {"role": "worker", "members": 1, "each": {"gpus": 1}, "run": ["sleep", "600"]}
    with Daemon(tmp_path / "state", CLUSTER) as daemon:
        job = daemon.client.submit(json.dumps({"name": "long", "gang": [role]}))["jobs"][0]["job"]
        daemon.wait(job, until="running")
        daemon.stop()
        assert "not ahead" in gantree("journal", "correct-clock").err
        jump_ahead(daemon.state_dir, 2000)
        daemon.start(with_cluster=False)
        assert "days ahead of the clock" in daemon.output.read_text()
        daemon.client.cancel(job)
        daemon.wait(job)
        assert gpu_hours(daemon) > 2000 * 24 - 1
        assert gantree("journal", "correct-clock").code == 1  # the daemon leads
        daemon.stop()
        told = gantree("journal", "correct-clock")
        assert "moved back by 2000.0 days" in told.out, told.err
        assert gantree("journal", "verify").code == 0
        daemon.start(with_cluster=False)
        assert gpu_hours(daemon) < 1
        ended_at = daemon.client.job(job)["ended_at"]
        assert abs(ended_at - time.time()) < DAY_S


def test_the_correction_knows_every_field_that_is_a_moment() -> None:
    kinds: list[Any] = [*EVENTS.values(), *FACTS.values(), *ORDERS.values()]
    floats = {each.name for kind in kinds for each in fields(kind) if "float" in str(each.type)}
    assert floats - DURATIONS - SHARES == TIME_FIELDS
