"""The benchmark of fail-overs in its short form: under load nothing is lost and nothing is started twice."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.postgres import Server

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "failover.py"


@pytest.mark.soak
def test_in_two_failovers_under_load_nothing_is_lost_and_nothing_is_started_twice(
    postgres: Server,
) -> None:
    command = [sys.executable, str(BENCHMARK), "--failovers", "2", "--clients", "2", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["acknowledged"] == told["jobs"] > 0
    assert told["failovers"] == 2
