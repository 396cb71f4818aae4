"""kill -9 of the real daemon at random moments, while jobs are handed in and real gangs run.

What must hold however it falls: every job that was acknowledged runs to its end, every rank of every job runs
exactly once (each appends a line to one file), and the journal folds into a ledger without contradictions.
"""

import json
import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from gantree.core.ledger.invariants import check
from gantree.core.scheduler import Scheduler
from gantree.journal.sqlite import SqliteJournal
from gantree.model.errors import Unreachable
from gantree.model.phases import ENDED, Phase
from gantree.policy.rules import Policy
from support.daemon import Daemon
from support.examples import seeds

CLUSTER = """
name: four
tiers: [leaf, node]
machines:
  m8: {gpus: 8, gpu: H100-80GB}
nodes:
  - {names: "n[0-3]", machine: m8, at: {leaf: l0}}
"""
KILLS = 6
RANKS = 4


class Submitter(threading.Thread):
    """Hands in jobs one after the other, whether or not anybody answers, and remembers what was acknowledged."""

    def __init__(self, daemon: Daemon, lines: Path) -> None:
        super().__init__()
        self.acknowledged: list[str] = []
        self.enough = threading.Event()
        self._daemon = daemon
        script = f'echo "$GANTREE_JOB $GANTREE_ATTEMPT $RANK" >> {lines}; sleep 0.1'
        run = json.dumps(["sh", "-c", script])
        self._text = (
            "name: tiny\ngang:\n"
            f"  - {{role: w, members: 2, processes: 2, each: {{gpus: 2}}, run: {run}}}\n"
        )

    def run(self) -> None:
        while not self.enough.is_set():
            try:
                answer = self._daemon.client.submit(self._text)
                self.acknowledged += [each["job"] for each in answer["jobs"]]
            except Unreachable:
                pass
            time.sleep(0.06)

    def until(self, count: int) -> None:
        """Wait until so many jobs were acknowledged."""
        deadline = time.monotonic() + 300
        while len(self.acknowledged) < count:
            assert time.monotonic() < deadline, "nobody answers any more"
            time.sleep(0.005)


def kill_at_random_moments(daemon: Daemon, submitter: Submitter, moments: random.Random) -> None:
    for number in range(KILLS):
        submitter.until(number + 1)
        time.sleep(moments.uniform(0.0, 0.4))
        daemon.kill()
        if number % 2:
            daemon.spawn(with_cluster=bool(number % 4 == 1))
            time.sleep(moments.uniform(0.0, 1.2))
            daemon.kill()
        daemon.start(with_cluster=False)


@pytest.mark.parametrize("seed", seeds(1))
def test_no_acknowledged_job_is_lost_and_none_runs_twice(tmp_path: Path, seed: int) -> None:
    lines = tmp_path / "lines"
    with Daemon(tmp_path / "state", CLUSTER) as daemon:
        submitter = Submitter(daemon, lines)
        submitter.start()
        kill_at_random_moments(daemon, submitter, random.Random(seed))
        submitter.enough.set()
        submitter.join()
        jobs = [row["job"] for row in daemon.client.jobs()]
        assert len(submitter.acknowledged) >= KILLS
        assert set(submitter.acknowledged) <= set(jobs)
        for job in jobs:
            daemon.wait(job)
        ends = {row["job"]: (row["phase"], row["attempt"]) for row in daemon.client.jobs()}
        assert ends == dict.fromkeys(jobs, ("succeeded", 1))
        assert daemon.client.health()["set_aside"] == 0
    ran = Counter(lines.read_text().splitlines())
    assert ran == Counter(f"{job} 1 {rank}" for job in jobs for rank in range(RANKS))
    check_journal(tmp_path / "state", len(jobs))


def check_journal(state_dir: Path, jobs: int) -> None:
    """Fold what is on record; it must be without contradictions and at rest."""
    journal = SqliteJournal(state_dir)
    scheduler = Scheduler(Policy())
    scheduler.recover(recorded.fact for recorded in journal.facts())
    check(scheduler.ledger)
    assert {state.phase for state in scheduler.ledger.jobs.values()} == {Phase.SUCCEEDED} <= ENDED
    assert len(scheduler.ledger.jobs) == jobs
    starts = [order.id for _, order in journal.orders()]
    assert len(starts) == len(set(starts)) == jobs, "each gang was ordered to start once"
    journal.close()
