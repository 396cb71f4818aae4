"""Each check of a state directory on one that really has the fault."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from gantree.cli.doctor import daemon, directory, journal
from gantree.cli.doctor.finding import Finding, Subject
from gantree.control.clock import DAY_S
from gantree.journal.sqlite import FILE, SqliteJournal, quick_check
from gantree.journal.state_directory import LOCK
from gantree.model.events import TimePassed

NOW = 1_800_000_000.0


def levels(findings: Iterable[Finding]) -> dict[str, str]:
    return {finding.check: finding.level.value for finding in findings}


def of(path: Path, wall: float = NOW, **more: Any) -> Subject:
    return Subject(path, wall, **more)


def test_a_usable_directory_is_ok(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    assert levels(directory.check_directory(of(tmp_path))) == {"state directory": "ok"}
    assert levels(directory.check_permissions(of(tmp_path))) == {"permissions": "ok"}


def test_a_directory_that_is_not_there_yet_is_a_warning(tmp_path: Path) -> None:
    assert levels(directory.check_directory(of(tmp_path / "a" / "b"))) == {
        "state directory": "warn"
    }


def test_a_file_in_place_of_the_directory_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert levels(directory.check_directory(of(tmp_path / "file"))) == {"state directory": "fail"}
    inside = directory.check_directory(of(tmp_path / "file" / "state"))
    assert levels(inside) == {"state directory": "fail"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives directories away")
def test_a_directory_of_another_user_fails(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12345)
    (found,) = directory.check_directory(of(tmp_path))
    assert (found.level, found.found) == ("fail", f"{tmp_path} belongs to user 12345")


MOUNTS = {
    "size=64k": {"state directory": "fail", "disk": "fail", "file system": "warn"},
    "size=512m,nr_inodes=60": {"state directory": "ok", "inodes": "fail", "disk": "ok"},
    "ro": {"state directory": "fail", "inodes": "ok"},
}


@pytest.mark.parametrize("options", MOUNTS)
def test_a_mount_that_is_full_or_read_only_fails(tmp_path: Path, options: str) -> None:
    if subprocess.run(["unshare", "-Urm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("unprivileged mounts are not allowed here")
    script = (
        f'mount -t tmpfs -o {options} none "$1" && exec "$2" -c '
        "'import sys, json, time; from pathlib import Path; from gantree.cli.doctor import directory as d;"
        "from gantree.cli.doctor.finding import Subject; s = Subject(Path(sys.argv[1]), time.time());"
        "f = [*d.check_directory(s), *d.check_disk(s), *d.check_file_system(s)];"
        'print(json.dumps({e.check: e.level for e in f}))\' "$1"'
    )
    words = ["unshare", "-Urm", "sh", "-c", script, "sh", str(tmp_path), sys.executable]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert {check: found[check] for check in MOUNTS[options]} == MOUNTS[options]


MOUNTINFO = """21 1 8:1 / / rw - ext4 /dev/sda1 rw
22 21 0:40 / /home rw,relatime shared:1 - nfs4 server:/home rw
23 22 0:41 / /home/ann/my\\040disk rw - xfs /dev/sdb rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/ann/state", "nfs4"),
        ("/homes", "ext4"),
        ("/home/ann/my disk/s", "xfs"),
        ("/home", "nfs4"),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(tmp_path: Path, path: str, kind: str) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTINFO)
    assert directory.file_system_of(Path(path), mounts) == kind


def test_a_network_file_system_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "file_system_of", lambda path: "nfs4")
    assert levels(directory.check_file_system(of(tmp_path))) == {"file system": "warn"}


@pytest.mark.parametrize("name", ["token", FILE])
def test_a_private_file_that_others_may_read_fails(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch(0o644)
    (found,) = directory.check_permissions(of(tmp_path))
    assert (found.level, found.fix) == ("fail", f"chmod go-rwx {tmp_path / name}")


def test_a_directory_that_others_may_write_fails(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert levels(directory.check_permissions(of(tmp_path))) == {"permissions": "fail"}


def test_a_token_file_that_is_missing_or_open_fails(tmp_path: Path) -> None:
    named = {"GANTREE_TOKEN_FILE": str(tmp_path / "mine")}
    missing, *_ = directory.check_permissions(of(tmp_path, environment=named))
    assert (missing.level, "no such file" in missing.found) == ("fail", True)
    (tmp_path / "mine").touch(0o640)
    (readable,) = directory.check_permissions(of(tmp_path, environment=named))
    assert (readable.level, str(tmp_path / "mine") in readable.found) == ("fail", True)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state directory whose journal has an event of NOW, and enough pages to damage one."""
    path = tmp_path_factory.mktemp("journal") / "state"
    made = SqliteJournal(path)
    epoch = made.lead("test", 60.0)
    assert epoch is not None
    events = [TimePassed(id=f"t{number}" + "x" * 200, observed_at=NOW) for number in range(500)]
    made.append_inbox(events, epoch)
    made.close()
    return path


@pytest.fixture
def state(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "state"))


def damage(state: Path) -> None:
    raw = bytearray((state / FILE).read_bytes())
    half = len(raw) // 2
    raw[half : half + 8192] = b"\xff" * 8192
    (state / FILE).write_bytes(raw)


def pragma(text: str) -> Callable[[Path], None]:
    import sqlite3

    def run(state: Path) -> None:
        connection = sqlite3.connect(state / FILE)
        connection.execute(text)
        connection.commit()
        connection.close()

    return run


def lose(state: Path) -> None:
    (state / FILE).unlink()
    (state / "runs").mkdir()


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (damage, "damaged"),
        (pragma("PRAGMA user_version = 9999"), "newer"),
        (pragma("PRAGMA user_version = 1"), "older"),
        (pragma("PRAGMA application_id = 7"), "no journal of gantree"),
        (lose, "no journal that knows"),
    ],
)
def test_a_journal_that_cannot_be_used_fails(
    state: Path, spoil: Callable[[Path], None], told: str
) -> None:
    spoil(state)
    *_, found = (each for each in journal.check_journal(of(state)) if each.check == "journal")
    assert (found.level, told in found.found, bool(found.fix)) == ("fail", True, True)


@pytest.mark.parametrize(("said", "level"), [(None, "warn"), (["row 3 is missing"], "fail")])
def test_a_journal_that_is_damaged_or_takes_too_long_to_check_is_no_success(
    state: Path, monkeypatch: pytest.MonkeyPatch, said: list[str] | None, level: str
) -> None:
    monkeypatch.setattr(journal, "quick_check", lambda path, within_s: said)
    assert levels(journal.check_journal(of(state)))["journal"] == level


def test_a_check_ends_at_its_time(state: Path) -> None:
    assert quick_check(state, 60.0) == []
    assert quick_check(state, -1.0) in ([], None)


@pytest.mark.parametrize(
    ("ahead_s", "level"),
    [(0, "ok"), (20 * DAY_S, "ok"), (31 * DAY_S, "fail"), (-3600, "warn"), (-31 * DAY_S, "fail")],
)
def test_a_clock_far_from_the_newest_event_fails(state: Path, ahead_s: float, level: str) -> None:
    found = levels(journal.check_journal(of(state, NOW + ahead_s)))
    assert found == {"journal": "ok", "clock": level}


def test_a_directory_without_a_journal_is_ok(tmp_path: Path) -> None:
    assert levels(journal.check_journal(of(tmp_path))) == {"journal": "ok"}


def test_a_socket_of_a_dead_daemon_is_a_warning_and_a_file_there_fails(tmp_path: Path) -> None:
    (none,) = daemon.check_daemon(of(tmp_path), "no daemon answers; start one")
    assert (none.level, none.found) == ("warn", "no daemon answers")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "gantree.sock"))
    (stale,) = daemon.check_daemon(of(tmp_path), "")
    assert (stale.level, "left by a daemon" in stale.found) == ("warn", True)
    (tmp_path / "gantree.sock").unlink()
    (tmp_path / "gantree.sock").write_text("")
    (in_the_way,) = daemon.check_daemon(of(tmp_path), "")
    assert (in_the_way.level, "no socket" in in_the_way.found) == ("fail", True)


def test_a_process_that_holds_the_directory_and_does_not_answer_fails(tmp_path: Path) -> None:
    import fcntl

    with (tmp_path / LOCK).open("w") as lock:
        lock.write("4711\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        (found,) = daemon.check_daemon(of(tmp_path), "")
    assert (found.level, "process 4711 holds" in found.found) == ("fail", True)
