"""Programs that are timed: none outlives what started it, and a failure says what the program wrote."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gantree.model.errors import Unreachable
from gantree.telemetry.measuring.lifetime import TIMED_OUT
from gantree.telemetry.measuring.processes import running, wait

PARENT_OF_TWO = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep({sleep})
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(600)
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def is_alive(pid: int) -> bool:
    """True unless the process is gone or a zombie that nobody has reaped yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def until(true: Callable[[], bool], at_most_s: float = 20.0) -> bool:
    end = time.monotonic() + at_most_s
    while not true() and time.monotonic() < end:
        time.sleep(0.02)
    return true()


def child_told_in(log: Path) -> int:
    assert until(lambda: log.exists() and log.read_text().endswith("\n"))
    return int(log.read_text())


@pytest.mark.parametrize("sleep", [600, 0], ids=["leader-lives", "leader-has-ended"])
def test_on_leaving_no_process_of_a_group_lives(tmp_path: Path, sleep: int) -> None:
    log = tmp_path / "log"
    with running([python(PARENT_OF_TWO.format(sleep=sleep))], os.environ, [log]) as (program,):
        child = child_told_in(log)
        assert is_alive(child)
    assert program.poll() is not None
    assert until(lambda: not is_alive(child))


def test_who_ignores_the_request_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running([python(STUBBORN)], os.environ, [log]) as (program,):
        assert until(lambda: log.exists() and "up" in log.read_text())
    assert program.poll() == -9


def test_programs_are_ended_when_the_caller_is_interrupted(tmp_path: Path) -> None:
    with (
        pytest.raises(KeyboardInterrupt),
        running([python("import time; time.sleep(600)")], os.environ, [tmp_path / "log"]) as (
            program,
        ),
    ):
        raise KeyboardInterrupt
    assert program.poll() is not None


def test_all_that_end_well_are_waited_for(tmp_path: Path) -> None:
    logs = [tmp_path / "a", tmp_path / "b"]
    looked = []
    with running(
        [python("print(1)"), python("import time; time.sleep(0.2)")], os.environ, logs
    ) as programs:
        wait(programs, logs, time.monotonic() + 60, lambda: looked.append(1))
    assert logs[0].read_text() == "1\n"
    assert looked


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (
            "import sys; print('first', flush=True); sys.exit('no GPU here')",
            "ended with status 1: first | no GPU here",
        ),
        ("import os; os.kill(os.getpid(), 9)", "was ended by signal 9: it wrote nothing"),
        ("print('x' * 100_000 + ' the end'); raise SystemExit(7)", "xxx the end"),
    ],
)
def test_a_failure_says_how_it_ended_and_what_it_wrote_last(
    tmp_path: Path, code: str, told: str
) -> None:
    logs = [tmp_path / "a", tmp_path / "b"]
    commands = [python("import time; time.sleep(600)"), python(code)]
    with running(commands, os.environ, logs) as programs, pytest.raises(Unreachable) as caught:
        wait(programs, logs, time.monotonic() + 60)
    assert told in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert [program.poll() is not None for program in programs] == [True, True]


def test_what_does_not_end_in_time_is_stopped(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        running([python("import time; time.sleep(600)")], os.environ, [log]) as (program,),
        pytest.raises(Unreachable, match="did not end in time and was stopped"),
    ):
        wait([program], [log], time.monotonic() + 0.3)
    assert program.poll() is not None


def test_a_program_that_is_none_is_named(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    with (
        pytest.raises(Unreachable, match=r"plain: cannot be started: Permission denied"),
        running([[str(plain)]], os.environ, [tmp_path / "log"]),
    ):
        pass


ENDS_WITH_PARENT = """
import os, sys, time
from gantree.telemetry.measuring.lifetime import end_with_parent
end_with_parent({seconds}, int(sys.argv[1]))
print("up", flush=True)
time.sleep(600)
"""


def test_a_rank_ends_itself_at_its_deadline() -> None:
    done = subprocess.run(
        [*python(ENDS_WITH_PARENT.format(seconds=0.5)), str(os.getpid())], timeout=300, check=False
    )
    assert done.returncode == TIMED_OUT


def test_a_rank_ends_itself_when_its_parent_is_gone() -> None:
    done = subprocess.run(
        [*python(ENDS_WITH_PARENT.format(seconds=600)), "1"], timeout=300, check=False
    )
    assert done.returncode == TIMED_OUT
