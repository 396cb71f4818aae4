"""What is written down of a run: found by reading files, without secrets, and without holding up the start."""

import json
import os
import string
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.executors.local.launch.launch_record import launch_record
from gantree.executors.local.launch.rank_map import rank_map
from gantree.executors.local.launch.visible_gpus import gpu_indices
from gantree.executors.local.progress_file import progress_in
from gantree.executors.local.recording import recorder
from gantree.executors.local.recording.changes import changes
from gantree.executors.local.recording.git import git_revision
from gantree.executors.local.recording.program import _nccl_library, program_provenance
from gantree.executors.local.recording.redaction import (
    REDACTED,
    redacted_command,
    redacted_env,
    redacted_value,
)
from gantree.executors.local.run_directory import RunDirectory
from gantree.model.cluster import Cluster, Machine, Node
from gantree.model.events import GangEnded
from gantree.model.orders import MemberLaunch, StartGang
from support.examples import examples
from support.gangs import QUICK_PYTHON, GangStage, four_nodes, start_order

GIT = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", "HOME": "/nonexistent"}


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("WANDB_API_KEY", "abc", False),
        ("HF_TOKEN", "x", False),
        ("DB_PASSWORD", "x", False),
        ("MY_APIKEY", "x", False),
        ("AWS_SECRET_ACCESS_KEY", "x", False),
        ("TOKENIZERS_PARALLELISM", "false", True),
        ("MONKEY_PATH", "/x", True),
        ("MAX_TOKENS", "4096", True),
        ("SSL_CERT_FILE", "/x", True),
        ("SEED", "1", True),
        ("URL", "https://a:b@h/x", False),
        ("URL", "https://h/x:y@z", True),
        ("X", "ghp_0123456789abcdef", False),
        ("X", "eyJhbGciOiJI.eyJzdWIiOiIx.sig", False),
        ("CERT", "-----BEGIN RSA PRIVATE KEY-----", False),
        ("H", "Authorization: Bearer abc", False),
        ("KEYBOARD", "us", True),
        ("MYSQL_PWD", "x", False),
        ("PWD", "/home/x", True),
    ],
)
def test_what_looks_like_a_secret_is_not_kept(name: str, value: str, kept: bool) -> None:
    assert redacted_value(name, value) == (value if kept else REDACTED)


def test_secrets_in_a_command_go_by_the_names_of_their_options() -> None:
    words = [
        "t.py",
        "--api-key=abc",
        "--token",
        "abc",
        "--lr",
        "3e-4",
        "--max-tokens",
        "4096",
        "PASSWORD=x",
        "-k",
    ]
    assert redacted_command(words) == [
        "t.py",
        f"--api-key={REDACTED}",
        "--token",
        REDACTED,
        "--lr",
        "3e-4",
        "--max-tokens",
        "4096",
        f"PASSWORD={REDACTED}",
        "-k",
    ]


@settings(max_examples=examples(40), deadline=None)
@given(st.text(string.ascii_letters, min_size=8), st.sampled_from(["TOKEN", "SECRET", "API_KEY"]))
def test_no_value_of_a_secret_name_gets_through(value: str, name: str) -> None:
    told = json.dumps(
        [
            redacted_env({f"MY_{name}": value}),
            redacted_command([f"--my-{name}={value}", f"--{name.lower()}", value]),
        ]
    )
    assert value not in told or value.lower() in ("redacted",)


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words],
        cwd=folder,
        env={**os.environ, **GIT},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_the_revision_is_read_from_a_branch_packed_refs_a_worktree_and_a_detached_head(
    tmp_path: Path,
) -> None:
    repository = tmp_path / "r"
    (repository / "below").mkdir(parents=True)
    git(repository, "init", "-b", "main")
    assert git_revision(repository) == {"root": str(repository), "revision": None, "branch": "main"}
    git(repository, "commit", "--allow-empty", "-m", "x")
    revision = git(repository, "rev-parse", "HEAD")
    expected = {"root": str(repository), "revision": revision, "branch": "main"}
    assert git_revision(repository / "below") == expected
    git(repository, "pack-refs", "--all")
    assert git_revision(repository) == expected
    git(repository, "worktree", "add", "-b", "side/x", str(tmp_path / "w"))
    assert git_revision(tmp_path / "w") == {
        "root": str(tmp_path / "w"),
        "revision": revision,
        "branch": "side/x",
    }
    git(repository, "checkout", "--detach")
    assert git_revision(repository) == {**expected, "branch": None}
    assert git_revision(tmp_path) is None


@given(
    head=st.sampled_from(
        [
            "ref: refs/heads/../../../x",
            "ref: /etc/passwd",
            "",
            "\0",
            "ref: refs/heads/" + "a" * 5000,
        ]
    )
)
def test_a_hostile_repository_tells_nothing(
    head: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("r")
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text(head)
    (folder / "x").write_text("0" * 40)
    found = git_revision(folder)
    assert found is None or found["revision"] is None


def venv(folder: Path, *distributions: str) -> Path:
    """What looks like a virtual environment, without the time that a real one takes."""
    site = folder / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True)
    for each in distributions:
        (site / f"{each}.dist-info").mkdir()
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.7\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(sys.executable)
    return folder / "bin"


def test_the_python_of_a_script_is_found_with_what_is_installed(tmp_path: Path) -> None:
    bin_folder = venv(tmp_path / "v", "Torch-2.13.0+cpu", "nvidia_nccl_cu12-2.28.3", "zope.x-1.0")
    (tmp_path / "train.py").write_text("x")
    (bin_folder / "torchrun").write_text(f"#!{bin_folder}/python\n")
    (bin_folder / "torchrun").chmod(0o755)
    for command in (["python", "train.py"], ["torchrun", "train.py"], ["/bin/sh", "train.py"]):
        found = program_provenance(command, {"PATH": str(bin_folder)}, str(tmp_path))
        assert found["python"]["version"] == "3.11.7"
        assert found["python"]["distributions"] == [
            "nvidia-nccl-cu12==2.28.3",
            "torch==2.13.0+cpu",
            "zope-x==1.0",
        ]
        assert (found["nccl"], found["torch"]) == ("2.28.3", "2.13.0+cpu")
        assert found["script"]["path"] == str(tmp_path / "train.py")
    assert program_provenance(["nowhere"], {"PATH": "/nonexistent"}, "/")["executable"] is None
    assert program_provenance([], {}, "/nonexistent")["python"] is None


def test_the_real_python_here_is_found_as_it_says_itself() -> None:
    found = program_provenance([sys.executable, "-c", "x"], {}, "/")["python"]
    version = f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
    assert found["version"] == version
    assert any(each.startswith("pytest==") for each in found["distributions"])


def test_a_record_of_what_ran_is_there_after_the_start_and_survives_the_executor(
    stage: GangStage,
) -> None:
    env = (("API_KEY", "hush-hush"), ("SEED", "1"))
    stage.start(*QUICK_PYTHON, "pass", env=env)
    found = RunDirectory(stage.state_dir / "runs", "j", 1).record
    stage.until(found.exists)
    assert "hush-hush" not in found.read_text()
    stage.open().adopt()
    record = stage.cluster.record("j", 1)
    assert record is not None
    assert record["roles"]["worker"]["env"]["API_KEY"] == REDACTED
    assert record["roles"]["worker"]["env"]["SEED"] == "1"
    assert record["roles"]["worker"]["executable"]["real_path"] == os.path.realpath(sys.executable)
    assert [each["node"] for each in record["members"]] == ["n0"]
    assert stage.cluster.record("j", 2) is None
    assert stage.cluster.changes("j", 1) == ()
    stage.until_ended()


def test_an_attempt_that_was_left_without_a_record_gets_one_when_it_is_adopted(
    stage: GangStage,
) -> None:
    stage.start(*QUICK_PYTHON, "import time; time.sleep(60)")
    found = RunDirectory(stage.state_dir / "runs", "j", 1).record
    stage.until(found.exists)
    stage.cluster.close()
    found.unlink()
    stage.open().adopt()
    stage.until(found.exists)
    stage.stop()
    stage.until_ended()


def test_the_next_attempt_is_told_how_large_the_one_before_was(stage: GangStage) -> None:
    program = "import os; print({n: v for n, v in os.environ.items() if n.startswith('GANTREE_')})"
    stage.start(*QUICK_PYTHON, program, processes=2)
    stage.until_ended()
    stage.start(*QUICK_PYTHON, program, attempt=3)
    stage.until(lambda: len(stage.told(GangEnded)) == 2)
    first, third = stage.log(), stage.log(attempt=3)
    assert "PREVIOUS" not in first
    assert "'GANTREE_PREVIOUS_WORLD_SIZE': '2'" in third
    assert "'GANTREE_RENDEZVOUS_ID': 'j-3'" in third
    assert "'GANTREE_RESTARTS': '2'" in third


def test_progress_of_a_hostile_job_counts_as_not_there(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.json"
    assert progress_in(tmp_path) is None
    for text in (
        "{",
        "[]",
        '{"step": true, "at": 1}',
        '{"step": 1}',
        '{"step": 1e400, "at": 1}',
        "x" * 9999,
    ):
        path.write_text(text)
        assert progress_in(tmp_path) is None
    path.write_text(json.dumps({"step": 3, "loss": float("nan"), "samples_per_s": "x", "at": 1}))
    found = progress_in(tmp_path)
    assert found is not None
    assert (found.step, str(found.loss), found.samples_per_s) == (3, "nan", None)


def test_slurms_variables_count_tasks_node_by_node(tmp_path: Path) -> None:
    cluster, run = four_nodes(), RunDirectory(tmp_path, "j", 2)
    nodes = {node.name: node for node in cluster.nodes}
    where = [("n1", 2, 0), ("n1", 2, 2), ("n3", 2, 4)]
    members = tuple(
        MemberLaunch(
            role="w",
            rank=number,
            node=node,
            node_rank=number,
            first_rank=first,
            processes=processes,
            gpus=(),
            nics=(),
            run=("true",),
            cpus=8,
        )
        for number, (node, processes, first) in enumerate(where)
    )
    order = StartGang(
        id="", job="j", attempt=2, world_size=6, members=members, array_index=7, variables="slurm"
    )
    record = launch_record(order, members[1], nodes, run, 1, {}, gpu_indices, 5.0)
    alike = {name: value for name, value in record["env"].items() if name.startswith("SLURM")}
    assert alike["SLURM_JOB_NODELIST"] == "n[1,3]"
    assert alike["SLURM_TASKS_PER_NODE"] == "4,2"
    assert (alike["SLURM_NNODES"], alike["SLURM_NTASKS"], alike["SLURM_NODEID"]) == ("2", "6", "0")
    assert (alike["SLURM_ARRAY_TASK_ID"], alike["SLURM_RESTART_COUNT"]) == ("7", "1")
    assert alike["SLURM_CPUS_PER_TASK"] == "4"
    own = [each["env"] for each in record["processes"]]
    assert [(env["SLURM_PROCID"], env["SLURM_LOCALID"]) for env in own] == [("2", "2"), ("3", "3")]
    plain = launch_record(
        start_order("true"), start_order("true").members[0], nodes, run, 1, {}, gpu_indices, 5.0
    )
    assert not [name for name in plain["env"] if name.startswith("SLURM")]


def test_the_rank_map_knows_the_nvlink_domain_of_each_process() -> None:
    links = (
        ("X", "NV4", "SYS", "SYS"),
        ("NV4", "X", "SYS", "SYS"),
        ("SYS", "SYS", "X", "NV4"),
        ("SYS", "SYS", "NV4", "X"),
    )
    cluster = Cluster(
        "c", ("leaf", "node"), {"m": Machine("m", 4, links=links)}, (Node("n0", "m", ("l0",)),)
    )
    member = MemberLaunch(
        role="w",
        rank=0,
        node="n0",
        node_rank=0,
        first_rank=0,
        processes=4,
        gpus=(0, 1, 2, 3),
        nics=(),
        run=(),
    )
    order = StartGang(id="", job="j", attempt=1, world_size=4, members=(member,))
    (told,) = rank_map(order, cluster, {"n0": cluster.nodes[0]})["members"]
    assert told["nvlink"] == ["n0#0", "n0#0", "n0#1", "n0#1"]
    assert told["domains"] == {"leaf": "l0", "node": "n0"}


def test_what_changed_since_a_record_is_told_by_name() -> None:
    def record(revision: str, numpy: str, driver: str, digest: str) -> dict[str, object]:
        python = {
            "version": "3.11.7",
            "distributions": [f"numpy=={numpy}"],
            "distributions_sha256": numpy,
        }
        role = {
            "git": {"revision": revision},
            "python": python,
            "script": {"path": "/t.py", "sha256": digest},
        }
        return {
            "gantree": "0.1.0",
            "policy": "p",
            "nodes": {"n0": {"driver": driver}},
            "roles": {"w": role},
        }

    then, now = record("a", "1.26", "550", "x"), record("b", "2.0", "560", "y")
    assert changes(then, then) == ()
    told = "\n".join(changes(then, now))
    for part in (
        "driver was 550, and is 560",
        "/t.py has changed",
        "revision was a, and is b",
        "numpy 1.26 -> 2.0",
    ):
        assert part in told


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("export WANDB_API_KEY=0123abc; ./run", f"export WANDB_API_KEY={REDACTED}; ./run"),
        ("cd x && API_KEY='a b' ./run --seed 1", f"cd x && API_KEY={REDACTED} ./run --seed 1"),
        ("A=1 ./run --api-key hush --lr=0.1", f"A=1 ./run --api-key {REDACTED} --lr=0.1"),
        ("./run --auth --verbose > key.txt", "./run --auth --verbose > key.txt"),
    ],
)
def test_a_secret_within_a_shells_text_goes_by_its_name(text: str, kept: str) -> None:
    assert redacted_command(["bash", "-c", text]) == ["bash", "-c", kept]


def test_relative_places_of_python_are_those_of_the_job(tmp_path: Path) -> None:
    (tmp_path / "libs" / "mine-1.0.dist-info").mkdir(parents=True)
    (tmp_path / "libs" / "libnccl.so.2.27.3").touch()
    (tmp_path / "libs" / "libnccl.so.2").symlink_to("libnccl.so.2.27.3")
    env = {"PYTHONPATH": "libs", "LD_LIBRARY_PATH": "libs", "PATH": ""}
    found = program_provenance([sys.executable, "x.py"], env, str(tmp_path))
    assert "mine==1.0" in found["python"]["distributions"]
    assert _nccl_library(env, str(tmp_path)) == "2.27.3"


def test_a_stop_does_not_wait_for_a_file_system_that_hangs(
    stage: GangStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, began = Event(), Event()

    def program_provenance(*_: object) -> dict[str, object]:
        began.set()
        hangs.wait()
        return {}

    monkeypatch.setattr(recorder, "CLOSE_WITHIN_S", 0.01)
    monkeypatch.setattr(recorder, "program_provenance", program_provenance)
    stage.start(*QUICK_PYTHON, "pass")
    stage.until(began.is_set)
    stage.cluster.close()
    assert not RunDirectory(stage.state_dir / "runs", "j", 1).record.exists()
    hangs.set()
