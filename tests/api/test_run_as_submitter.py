"""Jobs as the Unix users of those who hand them in, and their secrets: a real daemon of root's, real users."""

import json
import os
import pwd
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gantree.api.client import Client
from gantree.executors.unix_users import unix_user
from gantree.model.errors import BadInput, NotFound
from gantree.testing.daemon import Daemon

CLUSTER = """
name: one
tiers: [node]
machines: {m2: {gpus: 2, gpu: H100-80GB}}
nodes: [{names: n0, machine: m2}]
"""
ACCESS = """
users:
  ada: {grants: {role: user}}
  bob: {grants: {role: user}}
  ghost: {grants: {role: user}}
unix: {ada: nobody, bob: daemon}
"""
PYTHON = "/usr/bin/python3"
"""The one of this test run may be where only its owner gets to."""
SOCKET = """
import json, socket, sys
asked = socket.socket(socket.AF_UNIX)
asked.connect(sys.argv[1])
asked.sendall(b"GET /v1/session HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
print(json.loads(asked.makefile("rb").read().partition(b"\\r\\n\\r\\n")[2])["user"])
"""
SECRET = "hf_not-to-be-seen-anywhere"
SCRIPT = """
import json, os, pathlib
run = pathlib.Path(os.environ["GANTREE_RUN_DIR"])
print(json.dumps({
    "ids": [*os.getresuid(), *os.getresgid()], "groups": os.getgroups(), "home": os.environ["HOME"],
    "user": os.environ["USER"], "secret": os.environ.get("HF_TOKEN"),
    "ranks": bool(json.loads((run / "ranks.json").read_text())),
    "stdout": open("/dev/stdout", "a").write("") == 0,
    "writes": [name for name in (".", "log", "m0", "progress", "checkpoint") if os.access(run / name, os.W_OK)],
    "peeks": [name for name in ("gang.json", "m0/launch.json", "log") if os.access(run / name, os.R_OK)],
}))
try:
    os.setuid(0)
except PermissionError:
    print("not root")
"""
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not Path(PYTHON).exists(),
    reason="only root can change into other users, who need a Python of the system's",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that every user of the machine can reach."""
    made = tmp_path_factory.mktemp("run-as")
    for folder in (made, *made.parents):
        if folder != Path(folder.anchor) and folder.stat().st_uid == os.getuid():
            folder.chmod(folder.stat().st_mode | 0o011)
    return made


@pytest.fixture(scope="module")
def daemon(place: Path) -> Iterator[Daemon]:
    access = place / "access.yaml"
    access.write_text(ACCESS)
    state = place / "state"
    with Daemon(
        state, CLUSTER, listen="127.0.0.1:0", access_file=access, run_as_submitter=True
    ) as daemon:
        yield daemon


def user(daemon: Daemon, name: str) -> Client:
    return Client(daemon.url, daemon.client.make_token(name)["token"])


def submit(client: Client, name: str, code: str, **more: object) -> dict[str, object]:
    role = {
        "role": "w",
        "members": 1,
        "run": [PYTHON, "-I", "-S", "-c", code],
        "workdir": "/",
    }
    client.submit(jobs=[{"name": name, "gang": [role], **more}])
    return client.job(name, wait_s=30)


def output(client: Client, job: str) -> str:
    return b"".join(client.logs(job)).decode()


def secret_of(place: Path, name: str, owner: str) -> Path:
    path = place / name
    path.write_text(SECRET + "\n")
    path.chmod(0o400)
    os.chown(path, pwd.getpwnam(owner).pw_uid, 0)
    return path


def test_a_job_runs_as_its_user_with_its_secret_and_nothing_of_the_daemon_s(
    daemon: Daemon, place: Path
) -> None:
    ada = user(daemon, "ada")
    ended = submit(
        ada, "mine", SCRIPT, secrets={"HF_TOKEN": str(secret_of(place, "hers", "nobody"))}
    )
    assert ended["phase"] == "succeeded", (ended, output(ada, "mine"))
    told, last = output(ada, "mine").splitlines()[:2]
    nobody = pwd.getpwnam("nobody")
    found = json.loads(told.partition("] ")[2])
    assert found["ids"] == [nobody.pw_uid] * 3 + [nobody.pw_gid] * 3
    assert 0 not in found["groups"]
    assert (found["home"], found["user"]) == (nobody.pw_dir, "nobody")
    assert found["secret"] == SECRET
    assert found["ranks"] and found["stdout"]
    assert found["writes"] == ["progress", "checkpoint"]
    assert found["peeks"] == []
    assert last.endswith("not root")
    log = daemon.state_dir / "runs" / "mine" / "1" / "log" / "rank-0.log"
    assert (log.stat().st_uid, log.stat().st_mode & 0o777) == (nobody.pw_uid, 0o600)


def test_a_secret_is_in_no_file_of_the_daemon_and_in_no_answer(daemon: Daemon) -> None:
    ada = user(daemon, "ada")
    log = daemon.state_dir / "runs" / "mine" / "1" / "log" / "rank-0.log"
    holding = [
        path
        for path in daemon.state_dir.rglob("*")
        if path.is_file() and path != log and SECRET.encode() in path.read_bytes()
    ]
    assert holding == []
    told = [ada.job("mine"), ada.record("mine"), list(ada.facts()), daemon.client.audit()]
    assert SECRET not in json.dumps(told)


def test_a_secret_that_its_user_may_not_read_starts_nothing(daemon: Daemon, place: Path) -> None:
    ada = user(daemon, "ada")
    theirs = secret_of(place, "theirs", "daemon")
    ended = submit(ada, "thief", "print(1)", secrets={"HF_TOKEN": str(theirs)}, restarts=0)
    assert ended["phase"] == "failed"
    assert f"secret HF_TOKEN, {theirs}: Permission denied" in str(ended["reason"])


def test_one_user_s_job_cannot_look_into_another_s(daemon: Daemon) -> None:
    bob = user(daemon, "bob")
    runs = daemon.state_dir / "runs"
    code = (
        f"import os; print([p for p in ({str(runs / 'mine/1/ranks.json')!r}, {str(runs / 'mine/1/log')!r},"
        f" {str(runs / 'mine/1/progress')!r}) if os.access(p, os.R_OK)], os.access({str(runs)!r}, os.R_OK))"
    )
    submit(bob, "spy", code)
    assert output(bob, "spy").strip().endswith("[] False")
    with pytest.raises(NotFound):
        bob.job("mine")


def test_a_user_without_a_unix_user_is_refused_and_nobody_is_root(daemon: Daemon) -> None:
    with pytest.raises(BadInput, match="no Unix user 'ghost'"):
        submit(user(daemon, "ghost"), "boo", "print(1)")
    with pytest.raises(BadInput, match="no job runs as root"):
        unix_user("ada", "root")
    with pytest.raises(BadInput, match="nobody is named"):
        unix_user("", "nobody")


def test_a_peer_of_the_socket_is_asked_who_he_is(daemon: Daemon) -> None:
    asked = subprocess.run(
        [PYTHON, "-I", "-S", "-c", SOCKET, str(daemon.state_dir / "gantree.sock")],
        user="nobody", group="nogroup", extra_groups=[], cwd="/",
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert asked.stdout.strip() == "ada", asked.stderr


def test_a_job_that_is_cancelled_leaves_nothing_of_its_user(daemon: Daemon) -> None:
    ada = user(daemon, "ada")
    role = {"role": "w", "members": 1, "run": ["sleep", "600"], "workdir": "/"}
    ada.submit(jobs=[{"name": "long", "gang": [role]}])
    ada.job("long", wait_s=30, until="running")
    uid = pwd.getpwnam("nobody").pw_uid
    assert _sleepers(uid)
    ada.cancel("long")
    ada.job("long", wait_s=30)
    deadline = time.monotonic() + 10
    while _sleepers(uid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _sleepers(uid) == []


def _sleepers(uid: int) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if path.stat().st_uid == uid and b"sleep\x00600" in (path / "cmdline").read_bytes():
                found.append(path.name)
        except OSError:
            continue
    return found
