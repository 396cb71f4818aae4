"""`gantree doctor` on a real daemon, and its checks of the machine on processes that really have the fault."""

import os
import resource
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from gantree.cli.doctor import daemon as daemon_checks
from gantree.cli.doctor import machine
from gantree.cli.doctor.finding import Daemon as Found
from gantree.cli.doctor.finding import Finding, Subject
from gantree.journal.sqlite import FILE
from gantree.model.errors import Unreachable
from gantree.telemetry.nvml import driver as nvml
from support.daemon import Daemon

Gantree = Callable[..., Any]
CLUSTER = """
name: one
tiers: [node]
machines: {m4: {gpus: 4, gpu: H100-80GB}}
nodes: [{names: n0, machine: m4}]
"""


def levels(findings: Iterable[Finding]) -> dict[str, str]:
    return {finding.check: finding.level.value for finding in findings}


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    with Daemon(tmp_path / "state", CLUSTER, listen="127.0.0.1:0") as running:
        monkeypatch.setenv("GANTREE_STATE", str(running.state_dir))
        yield running


def test_a_sound_daemon_has_no_failure_and_one_with_another_journal_has(
    gantree: Gantree, daemon: Daemon, complaints: Callable[[Any, str], list[str]]
) -> None:
    port = daemon.url.rpartition(":")[2]
    outcome = gantree("doctor", "--json", "--listen", f"127.0.0.1:{port}")
    document = outcome.json()
    found = {each["check"]: (each["level"], each["found"]) for each in document["findings"]}
    assert (outcome.code, document["failed"], complaints(document, "doctor")) == (0, 0, [])
    assert {found[check][0] for check in ("daemon", "ready", "version", "journal", "clock")} == {
        "ok"
    }
    assert found["port"] == ("ok", f"127.0.0.1:{port} is held by the daemon")

    shutil.copy(daemon.state_dir / FILE, daemon.state_dir / "copy")
    (daemon.state_dir / "copy").replace(daemon.state_dir / FILE)
    broken = gantree("doctor")
    assert broken.code == 1
    assert [line for line in broken.out.splitlines() if line.startswith("fail  ready ")]
    assert "-> see the daemon's log" in broken.out
    daemon.kill()


def test_a_daemon_that_hangs_is_not_waited_for(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_checks, "ANSWER_WITHIN_S", 0.3)
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        assert daemon_checks.daemon_at(daemon.client) == "it does not answer within 0.3 s"
        absent = daemon_checks.check_daemon(Subject(daemon.state_dir, 0.0), "hangs")
        assert levels(absent) == {"daemon": "fail"}
    finally:
        daemon.process.send_signal(signal.SIGCONT)


def test_a_daemon_of_another_version_is_a_warning(tmp_path: Path) -> None:
    other = Found(1, "0.0.9", "", is_local=False)
    found = levels(daemon_checks.check_daemon(Subject(tmp_path, 0.0, daemon=other), ""))
    assert found == {"daemon": "ok", "ready": "ok", "version": "warn"}


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:99999", ":80"])
def test_what_is_no_address_fails(tmp_path: Path, address: str) -> None:
    found = daemon_checks.check_port(Subject(tmp_path, 0.0, listen=address))
    assert levels(found) == {"port": "fail"}


def test_a_port_that_another_process_holds_fails_and_names_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        (held,) = daemon_checks.check_port(Subject(tmp_path, 0.0, listen=address))
    assert (held.level, f"(process {os.getpid()})" in held.found) == ("fail", True)
    assert levels(daemon_checks.check_port(Subject(tmp_path, 0.0, listen=address))) == {
        "port": "ok"
    }


@pytest.fixture
def sleeper() -> Iterator[Callable[..., Subject]]:
    """A subject whose daemon is a process with these limits of files and processes, and so many open files."""
    running: list[subprocess.Popen[bytes]] = []

    def start(files: int, processes: int, opened: int = 0) -> Subject:
        held = [os.open(os.devnull, os.O_RDONLY) for _ in range(opened)]
        running.append(subprocess.Popen(["sleep", "300"], pass_fds=held))
        for descriptor in held:
            os.close(descriptor)
        pid = running[-1].pid
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(files, 64), files))
        resource.prlimit(pid, resource.RLIMIT_NPROC, (processes, processes))
        return Subject(Path("/"), 0.0, daemon=Found(pid, "", "", is_local=True))

    yield start
    for process in running:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("files", "processes", "found"),
    [
        (8192, 8192, {"open files": "ok", "processes": "ok"}),
        (1024, 1024, {"open files": "warn", "processes": "warn"}),
        (200, 100, {"open files": "fail", "processes": "fail"}),
    ],
)
def test_low_limits_of_the_daemon_fail(
    sleeper: Callable[..., Subject], files: int, processes: int, found: dict[str, str]
) -> None:
    assert levels(machine.check_limits(sleeper(files, processes))) == found


def test_a_daemon_that_has_nearly_all_its_files_open_fails(
    sleeper: Callable[..., Subject],
) -> None:
    *_, found = machine.check_limits(sleeper(50, 8192, opened=45))
    assert (found.level, "of 50 open" in found.found) == ("fail", True)


def test_devices_without_a_driver_fail_and_no_driver_is_a_warning(tmp_path: Path) -> None:
    try:
        nvml.versions()
        pytest.skip("this machine has a driver")
    except Unreachable:
        pass
    none = Subject(tmp_path, 0.0, devices=tmp_path)
    assert levels(machine.check_driver(none)) == {"driver": "warn"}
    (tmp_path / "nvidia0").touch()
    (found,) = machine.check_driver(none)
    assert (found.level, found.found.startswith("nvidia0 exist, but")) == ("fail", True)


@pytest.mark.parametrize(("status", "level"), [(0x40, "warn"), (0x2001, "ok"), (None, "ok")])
def test_a_clock_that_nobody_keeps_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, status: int | None, level: str
) -> None:
    monkeypatch.setattr(machine, "clock_status", lambda: status)
    assert levels(machine.check_synchronised(Subject(Path("/"), 0.0))) == {"time server": level}


def test_the_kernel_says_whether_the_clock_is_kept() -> None:
    status = machine.clock_status()
    assert status is None or 0 <= status < 0x10000


@pytest.mark.parametrize(
    ("requirement", "complaint"),
    [
        ("numpy>=1.26", ""),
        ("typer<0.27,>=0.15", ""),
        ("pyjwt[crypto]>=2.10", ""),
        ("no-such-library>=1", "no-such-library is missing"),
        ("numpy>=99", "is older than 99"),
    ],
)
def test_libraries_that_are_missing_or_old_are_named(
    monkeypatch: pytest.MonkeyPatch, requirement: str, complaint: str
) -> None:
    monkeypatch.setattr(metadata, "requires", lambda name: [requirement])
    (found,) = machine.check_versions(Subject(Path("/"), 0.0))
    assert (found.level, complaint in found.found) == ("fail" if complaint else "ok", True)


def test_gantree_that_runs_from_its_source_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_installed(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", not_installed)
    (found,) = machine.check_versions(Subject(Path("/"), 0.0))
    assert (found.level, "not installed" in found.found) == ("warn", True)
