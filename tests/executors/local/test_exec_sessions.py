"""Guests of a member, on real processes: they have its environment, end with it, and say nothing of how it ended."""

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gantree.executors.exec_session import Terminal
from gantree.executors.local.shim.exec_session import CHUNK, HEAD, MOST_WAITING
from gantree.executors.local.shim.shim import process_stat, read_json
from gantree.model.errors import Conflict, NotFound
from gantree.model.events import GangEnded, GangStarted
from gantree.model.orders import SuspendGang
from support.gangs import QUICK_PYTHON, GangStage, left_over


class Line:
    """The daemon's end of a guest."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        connection.settimeout(60)

    def say(self, letter: bytes, payload: bytes = b"") -> None:
        self.connection.sendall(HEAD.pack(letter, len(payload)) + payload)

    def hear(self) -> tuple[bytes, bytes]:
        letter, length = HEAD.unpack(self._read(HEAD.size))
        return letter, self._read(length)

    def hear_all(self) -> tuple[bytes, bytes, int]:
        """Output, error output and exit status, to the end."""
        said = {b"o": b"", b"r": b""}
        while True:
            letter, payload = self.hear()
            if letter == b"x":
                return said[b"o"], said[b"r"], json.loads(payload)["code"]
            said[letter] += payload

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.connection.recv(size - len(data))
            if not more:
                raise EOFError
            data += more
        return data


@contextmanager
def guest(
    stage: GangStage, *command: str, rank: int = 0, terminal: Terminal | None = None
) -> Iterator[Line]:
    awaited = stage.cluster.exec_session("j", 1, rank, command, terminal)
    awaited.listener.settimeout(60)
    connection, _ = awaited.listener.accept()
    assert awaited.accepts(connection)
    awaited.close()
    with connection:
        yield Line(connection)


def started(stage: GangStage, *run: str, **fields: Any) -> None:
    stage.start(*(run or ("sleep", "600")), env=(("MINE", "yes"),), **fields)
    stage.until_told(GangStarted)


def test_a_guest_has_the_environment_and_the_directory_of_its_rank(stage: GangStage) -> None:
    started(stage, members=2, processes=2, gpus=(3,))
    with guest(
        stage, "sh", "-c", "echo $RANK $MINE $CUDA_VISIBLE_DEVICES; pwd; cat; exit 7", rank=3
    ) as line:
        line.say(b"i", b"typed\n")
        line.say(b"e")
        assert line.hear_all() == (b"3 yes 3\n/tmp\ntyped\n", b"", 7)
    assert stage.cluster.inventory().status("j", 1) == "running"


def test_a_guest_whose_command_has_ended_stays_until_whoever_called_has_read_that(
    stage: GangStage,
) -> None:
    """Else nobody could tell any more who called, and what was said is lost where something comes too late for it."""
    started(stage)
    awaited = stage.cluster.exec_session("j", 1, 0, ("echo", "quick"), None)
    awaited.listener.settimeout(60)
    connection, _ = awaited.listener.accept()
    line = Line(connection)
    with connection:
        assert line.hear() == (b"o", b"quick\n")
        time.sleep(0.3)
        assert awaited.accepts(connection)
        line.say(b"e")
        assert line.hear_all() == (b"", b"", 0)
    awaited.close()


def test_error_output_a_signal_and_a_missing_program_are_told(stage: GangStage) -> None:
    started(stage)
    with guest(stage, "sh", "-c", "echo bad >&2; kill -9 $$") as line:
        assert line.hear_all() == (b"", b"bad\n", 137)
    with guest(stage, "no-such-program") as line:
        out, error, code = line.hear_all()
        assert (out, code) == (b"", 127)
        assert b"no-such-program" in error


ON_TERMINAL = """
trap 'stty size; exit 4' INT
stty size; tty; echo $TERM
while :; do sleep 0.02; done
"""


def test_a_terminal_has_its_size_and_hands_on_an_interrupt(stage: GangStage) -> None:
    started(stage)
    with guest(stage, "sh", "-c", ON_TERMINAL, terminal=Terminal("vt100", 33, 77)) as line:
        said = b""
        while b"vt100" not in said:
            said += line.hear()[1]
        assert said.startswith(b"33 77\r\n/dev/pts/")
        line.say(b"w", b"\0\x14\0\x28")
        line.say(b"i", b"\x03")
        out, _, code = line.hear_all()
        assert (out, code) == (b"^C20 40\r\n", 4)


def test_a_shell_is_what_one_gets_who_names_no_command(stage: GangStage) -> None:
    started(stage)
    with guest(stage) as line:
        line.say(b"i", b"echo $0 | grep -c sh; exit 5\n")
        assert line.hear_all()[::2] == (b"1\n", 5)


def test_a_guest_ends_with_its_member_and_does_not_hold_it_up(stage: GangStage) -> None:
    gate = stage.state_dir / "gate"
    started(stage, "sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.01; done; exit 3")
    with guest(stage, "sh", "-c", "trap '' TERM HUP; setsid sleep 61 & echo up; sleep 61") as line:
        assert line.hear() == (b"o", b"up\n")
        gate.touch()
        assert stage.until_ended() == 3
        assert left_over(stage.state_dir) == []
        with pytest.raises((EOFError, ConnectionError)):
            line.hear_all()
    assert stage.told(GangEnded)[0].unprompted


def test_nothing_of_a_guest_outlives_whoever_holds_the_line(stage: GangStage) -> None:
    started(stage)
    before = set(left_over(stage.state_dir))
    with guest(stage, "sh", "-c", "trap '' TERM HUP; setsid sleep 61 & echo up; sleep 61") as line:
        assert line.hear() == (b"o", b"up\n")
    stage.until(lambda: set(left_over(stage.state_dir)) <= before)
    assert stage.cluster.inventory().status("j", 1) == "running"


def test_what_a_command_leaves_behind_ends_with_it(stage: GangStage) -> None:
    started(stage)
    before = set(left_over(stage.state_dir))
    with guest(stage, "sh", "-c", "setsid sleep 61 & exit 0") as line:
        assert line.hear_all() == (b"", b"", 0)
    stage.until(lambda: set(left_over(stage.state_dir)) <= before)


def test_who_reads_slowly_slows_the_command_down_and_nobody_piles_up(stage: GangStage) -> None:
    started(stage)
    with guest(stage, "sh", "-c", "echo $PPID; exec cat /dev/zero") as line:
        pid = int(line.hear()[1].split(b"\n")[0])
        stage.until(lambda: is_quiet(pid))
        status = Path(f"/proc/{pid}/status").read_text()
        held_KiB = int(status.partition("VmRSS:")[2].split()[0])
        assert held_KiB < 40_000  # Python, and MOST_WAITING for either side
        got = sum(len(line.hear()[1]) for _ in range(100))
        assert got > MOST_WAITING // CHUNK
    assert stage.cluster.inventory().status("j", 1) == "running"


def is_quiet(pid: int) -> bool:
    """Whether a process goes no further: it has read nothing for a while."""

    io = Path(f"/proc/{pid}/io")
    before = io.read_text()
    time.sleep(0.1)
    return io.read_text() == before


def test_a_command_that_reads_nothing_stops_who_types_and_still_ends_with_him(
    stage: GangStage,
) -> None:
    started(stage)
    before = set(left_over(stage.state_dir))
    with guest(stage, "sleep", "600") as line:
        line.connection.settimeout(0.5)
        with pytest.raises(TimeoutError):
            for _ in range(1000):
                line.say(b"i", b"x" * CHUNK)
    stage.until(lambda: set(left_over(stage.state_dir)) <= before)


def test_a_guest_of_a_suspended_gang_is_suspended_too(stage: GangStage) -> None:
    started(stage)
    stage.cluster.carry_out(SuspendGang(id="s", job="j", attempt=1, turn=1))
    stage.until(lambda: {state(pid) for pid in left_over(stage.state_dir)} == {"T"})
    time.sleep(0.1)  # the shim has seen that nobody goes on, and looks no more
    with closing(
        stage.cluster.exec_session("j", 1, 0, ["sleep", "600"], None)
    ):  # else it ends by itself
        stage.until(lambda: len(children_of_the_shim(stage)) == 2)
        stage.until(lambda: {state(pid) for pid in children_of_the_shim(stage)} == {"T"})


def children_of_the_shim(stage: GangStage) -> list[int]:
    pid = read_json(str(stage.state_dir / "runs/j/1/m0/shim.json"))["pid"]
    return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def state(pid: int) -> str:
    stat = process_stat(pid)
    return stat[0] if stat else ""


def test_a_killed_shim_takes_its_guests_along(stage: GangStage) -> None:
    started(stage)
    with guest(stage, "sh", "-c", "trap '' TERM HUP; setsid sleep 61 & echo up; sleep 61") as line:
        assert line.hear() == (b"o", b"up\n")
        os.kill(read_json(str(stage.state_dir / "runs/j/1/m0/shim.json"))["pid"], signal.SIGKILL)
        assert stage.until_ended() == 137
    assert left_over(stage.state_dir) == []


def test_only_what_runs_has_guests(stage: GangStage) -> None:
    with pytest.raises(Conflict, match="not begun"):
        stage.cluster.exec_session("j", 1, 0, [], None)
    started(stage, "sh", "-c", "[ $RANK = 0 ] || sleep 61", processes=2)
    with pytest.raises(NotFound, match="ranks 0 to 1"):
        stage.cluster.exec_session("j", 1, 2, [], None)
    stage.until(lambda: 0 in stage.exit_codes())
    with pytest.raises(Conflict, match="rank 0 of j does not run"):
        stage.cluster.exec_session("j", 1, 0, [], None)


def test_a_stranger_who_calls_is_not_taken_for_the_guest(stage: GangStage) -> None:
    started(stage)
    awaited = stage.cluster.exec_session("j", 1, 0, ["sleep", "600"], None)
    awaited.listener.settimeout(60)
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(awaited.listener.getsockname())
        callers = [awaited.listener.accept()[0] for _ in range(2)]
        assert sorted(map(awaited.accepts, callers)) == [False, True]
    for caller in callers:
        caller.close()
    awaited.close()


LISTENS = """
import socket, time
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
time.sleep(60)
"""


def test_only_ports_of_the_members_own_processes_are_reached(stage: GangStage) -> None:
    started(stage, "sh", "-c", f"{' '.join(QUICK_PYTHON)} '{LISTENS}' & wait")
    port = int(stage.until_file(stage.cluster.log_path("j", 1, 0)))
    assert stage.cluster.port("j", 1, 0, port) == ("127.0.0.1", port)
    with socket.create_server(("127.0.0.1", 0)) as somebody_elses:
        other = somebody_elses.getsockname()[1]
        with pytest.raises(Conflict, match=f"no process of this member listens at port {other}"):
            stage.cluster.port("j", 1, 0, other)
