"""Jobs as the Unix users of those who hand them in, and their secrets: a real daemon of root's, real users."""

import json
import os
import pwd
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gantree.api.client.client import Client
from gantree.api.client.exec_session import open_exec_session
from gantree.executors.local.launch.lent_package import LENT
from gantree.executors.local.unix_users import unix_user
from gantree.model.errors import BadInput, Forbidden, NotFound
from support.daemon import Daemon

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
  quinn: {grants: {role: queue_admin, queue: default}}
  otto: {grants: {role: operator}}
  ben: {grants: {role: user, queue: default}}
unix: {ada: nobody, bob: daemon, quinn: games, otto: man, ben: bin}
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
def place() -> Iterator[Path]:
    """A directory that every user of the machine can reach.

    pytest's own are not: each run of pytest that begins closes the root of all of them to other users again.
    """
    with tempfile.TemporaryDirectory(prefix="run-as-") as made:
        Path(made).chmod(0o711)
        yield Path(made)


@pytest.fixture(scope="module")
def daemon(place: Path) -> Iterator[Daemon]:
    access = place / "access.yaml"
    access.write_text(ACCESS)
    state = place / "state"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GANTREE_TEST_DAEMON", "is no business of a job's")
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
    return client.job(name, wait_s=300)


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
    with pytest.raises(BadInput, match="'daemon' is an account of the system"):
        unix_user("daemon", None)
    assert unix_user("nobody", None).uid == unix_user("ada", "nobody").uid


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
    ada.job("long", wait_s=300, until="running")
    uid = pwd.getpwnam("nobody").pw_uid
    assert _sleepers(uid)
    ada.cancel("long")
    ada.job("long", wait_s=300)
    deadline = time.monotonic() + 300
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


WHO = (
    "id -u; id -g; id -G; echo $RANK $HF_TOKEN $HOME; env | grep -c GANTREE_TEST_DAEMON;"
    " ls /proc/self/fd | wc -w; cat"
)


@pytest.fixture
def sleeper(daemon: Daemon, place: Path) -> Iterator[str]:
    """A job of ada's that runs."""
    ada = user(daemon, "ada")
    secrets = {"HF_TOKEN": str(secret_of(place, "attached", "nobody"))}
    role = {"role": "w", "members": 1, "run": ["sleep", "600"], "workdir": "/"}
    receipt = ada.submit(jobs=[{"name": "sleeper", "gang": [role], "secrets": secrets}])
    job = str(receipt["jobs"][0]["job"])
    ada.job(job, wait_s=300, until="running")
    yield job
    ada.cancel(job)


@pytest.fixture
def null() -> Iterator[None]:
    """The sink of the machine is root's, and is so afterwards, whatever a test comes to."""
    yield
    sink = Path(os.devnull)
    owner, mode = sink.stat().st_uid, sink.stat().st_mode & 0o777
    os.chown(sink, 0, 0)
    sink.chmod(0o666)
    assert (owner, mode) == (0, 0o666)


def attached(client: Client, job: str, wish: dict[str, Any], typed: bytes = b"") -> tuple[str, int]:
    """What a command says and its status."""
    line, said = open_exec_session(client.target, job, wish), b""
    line.send(b"i", typed)
    line.send(b"e")
    for letter, payload in line.receive():
        if letter == b"x":
            return said.decode(), int(json.loads(payload)["code"])
        said += payload
    raise AssertionError("it never ended")


@pytest.mark.usefixtures("null")
def test_what_is_attached_runs_as_the_job_s_user_with_its_secrets(
    daemon: Daemon, sleeper: str
) -> None:
    nobody = pwd.getpwnam("nobody")
    said, code = attached(user(daemon, "ada"), sleeper, {"command": ["sh", "-c", WHO]}, b"typed")
    assert (said.split(), code) == (
        [*map(str, (nobody.pw_uid, nobody.pw_gid, nobody.pw_gid)), "0", SECRET, nobody.pw_dir, "0", "4", "typed"], 0,
    )  # fmt: skip
    script = "sleep 600 & test -O $(tty) && test -w $(tty) && id -u; stty size; kill -9 $$"
    terminal = {"rows": 7, "columns": 30}
    wish = {"command": ["sh", "-c", script], "terminal": terminal}
    said, code = attached(user(daemon, "ada"), sleeper, wish)
    assert (said.split(), code) == ([str(nobody.pw_uid), "7", "30"], 137)
    assert len(_sleepers(nobody.pw_uid)) == 1  # that of the job


def test_a_port_of_another_user_s_job_is_reached_by_its_owner(daemon: Daemon) -> None:
    ada = user(daemon, "ada")
    code = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True);"
        " s.accept()[0].sendall(b'hello'); input()"
    )
    role = {"role": "w", "members": 1, "run": [PYTHON, "-I", "-S", "-c", code], "workdir": "/"}
    ada.submit(jobs=[{"name": "serves", "gang": [role]}])
    ada.job("serves", wait_s=300, until="running")
    deadline = time.monotonic() + 300
    while not output(ada, "serves").strip() and time.monotonic() < deadline:
        time.sleep(0.02)
    port = int(output(ada, "serves").split()[-1])
    said, _ = attached(ada, "serves", {"port": port})
    assert said == "hello"
    ada.cancel("serves")


def test_nobody_acts_as_somebody_who_may_do_more(daemon: Daemon, sleeper: str) -> None:
    quinn, otto = user(daemon, "quinn"), user(daemon, "otto")
    role = {"role": "w", "members": 1, "run": ["sleep", "600"], "workdir": "/"}
    refused = {
        "otto": "otto may do more",
        "bob": "bob may do more",
        "games": "games may not submit",
    }
    for other, says in refused.items():
        with pytest.raises(Forbidden, match=says):
            quinn.submit(jobs=[{"name": "as", "gang": [role], "user": other}])
    otto.submit(jobs=[{"name": "of-otto", "gang": [role]}])
    otto.job("of-otto", wait_s=300, until="running")
    with pytest.raises(Forbidden, match="otto may do more"):
        attached(quinn, "of-otto", {"command": ["id"]})
    assert attached(otto, sleeper, {"command": ["true"]})[1] == 0
    quinn.cancel("of-otto")
    quinn.submit(jobs=[{"name": "for-ben", "gang": [role], "user": "ben", "hold": True}])
    assert quinn.job("for-ben")["user"] == "ben"
    quinn.cancel("for-ben")


def test_a_record_says_of_files_what_their_user_may_know(daemon: Daemon, place: Path) -> None:
    hidden = place / "only-root"
    hidden.mkdir(mode=0o700)
    (hidden / "password").write_text("12345")
    ada = user(daemon, "ada")
    role = {"role": "w", "members": 1, "run": ["cat", str(hidden / "password")], "workdir": "/"}
    ada.submit(jobs=[{"name": "reads", "gang": [role], "restarts": 0}])
    ada.job("reads", wait_s=300)
    deadline = time.monotonic() + 300
    while not (record := ada.record("reads"))["found"] and time.monotonic() < deadline:
        time.sleep(0.02)
    found = record["roles"]["w"]
    assert found["executable"]["sha256"] and found["script"] is None


def test_of_the_state_directory_everybody_gets_to_the_socket_alone(daemon: Daemon) -> None:
    """Files that everybody may read or write, below directories that everybody may pass; `lent` has a copy of code."""
    tests_own = {"daemon.out", "cluster-of-test.yaml", "policy-of-test.yaml"}
    found, waiting = set(), [daemon.state_dir]
    while waiting:
        for path in waiting.pop().iterdir():
            mode = path.lstat().st_mode
            if path.name == LENT:
                assert mode & 0o026 == 0
                assert not any(each.lstat().st_mode & 0o022 for each in path.rglob("*"))
                continue
            if path.is_dir() and not path.is_symlink():
                waiting += [path] if mode & 0o001 else []
                assert not mode & 0o026, path
            elif mode & 0o006 and path.name not in tests_own:
                found.add(str(path.relative_to(daemon.state_dir)))
    assert found == {"gantree.sock"}
