"""Batch scripts: what Slurm's manual says of each option is what a job comes to, or a line says why not."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.formats import read_job, read_script
from gantree.formats.slurm import values
from gantree.formats.slurm.header import is_script
from gantree.formats.slurm.options import KNOWN, OWN_READ, READ, REFUSED, WITHOUT_EFFECT
from gantree.model.errors import BadFields, GantreeError
from gantree.model.jobs import Job


def header(*lines: str) -> str:
    return "\n".join(["#!/bin/bash", *lines, "python train.py", ""])


def document(*lines: str, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(read_script(header(*lines), "t.sh", ["/t.sh"], **more).text)
    return found


def role(*lines: str) -> dict[str, Any]:
    (found,) = document(*(f"#SBATCH {line}" for line in lines))["gang"]
    return dict(found)


def problem_of(*lines: str) -> str:
    with pytest.raises(BadFields) as caught:
        read_script(header(*lines), "t.sh", ["/t.sh"])
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("1:30", 90),
        ("2:03:04", 7384),
        ("1-0", 86400),
        ("2-12", 216000),
        ("1-2:30", 95400),
        ("7-01:02:03", 608523),
        ("0", None),
        ("00:00:00", None),
        ("UNLIMITED", None),
        ("infinite", None),
        ("-1", None),
        ("0:90", 90),
        ("100:00", 6000),
    ],
)
def test_times_are_read_as_the_manual_of_sbatch_writes_them(
    text: str, seconds: float | None
) -> None:
    assert values.seconds(text) == seconds


@given(st.integers(0, 400), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_a_time_of_all_four_parts_is_their_sum(d: int, h: int, m: int, s: int) -> None:
    total = ((d * 24 + h) * 60 + m) * 60 + s
    assert values.seconds(f"{d}-{h:02}:{m:02}:{s:02}") == (total or None)
    assert values.seconds(f"{d * 24 + h}:{m}:{s}") == (total or None)


@pytest.mark.parametrize(
    "text", ["", "1:2:3:4", "1-", "-5", "1h", "1.5", "1-2:3:4:5", "٣", "9" * 30]
)
def test_what_is_no_time_says_which_forms_there_are(text: str) -> None:
    with pytest.raises(values.BadValue):
        values.seconds(text)


@pytest.mark.parametrize(
    ("text", "gib"),
    [
        ("1024", 1),
        ("64G", 64),
        ("64g", 64),
        ("512M", 0.5),
        ("1T", 1024),
        ("1048576K", 1),
        ("2GB", 2),
    ],
)
def test_sizes_count_megabytes_where_no_unit_stands(text: str, gib: float) -> None:
    assert values.gib(text) == gib


@pytest.mark.parametrize(
    ("text", "count", "kind"),
    [
        ("4", 4, None),
        ("h100:4", 4, "h100"),
        ("a100", 1, "a100"),
        ("nvidia_h100_80gb_hbm3:8", 8, "nvidia_h100_80gb_hbm3"),
    ],
)
def test_gpus_may_have_a_type(text: str, count: int, kind: str | None) -> None:
    assert values.gpus(text) == values.Gpus(count, kind)
    assert values.gres(f"gpu:{text}") == values.Gpus(count, kind)


@pytest.mark.parametrize(
    ("text", "signal", "seconds", "to_shell"),
    [
        ("USR1@120", "SIGUSR1", 120, False),
        ("B:SIGUSR2@30", "SIGUSR2", 30, True),
        ("10", "SIGUSR1", 60, False),
        ("HUP", "SIGHUP", 60, False),
    ],
)
def test_signals_go_by_name_or_number(text: str, signal: str, seconds: int, to_shell: bool) -> None:
    assert values.signal(text) == values.Warned(signal, seconds, to_shell)


@given(st.sets(st.integers(0, 300), min_size=1, max_size=60), st.integers(1, 9) | st.none())
def test_an_array_has_the_indices_that_were_listed(found: set[int], at_once: int | None) -> None:
    text = ",".join(map(str, sorted(found, reverse=True))) + (f"%{at_once}" if at_once else "")
    indices, limit = values.array(text)
    spans = [part.partition("-") for part in indices.split(",")]
    assert limit == at_once
    assert {i for a, _, b in spans for i in range(int(a), int(b or a) + 1)} == found


@given(st.integers(0, 50), st.integers(0, 200), st.integers(1, 9))
def test_a_step_in_an_array_is_that_of_a_range(low: int, length: int, step: int) -> None:
    listed = ",".join(map(str, range(low, low + length + 1, step)))
    assert values.array(f"{low}-{low + length}:{step}") == values.array(listed)


def test_nodes_tasks_and_gpus_make_members_and_processes() -> None:
    found = role("--nodes=2 --ntasks-per-node=8", "--gpus-per-node=h100:8 -c 4 --mem=512G")
    assert (found["members"], found["processes"]) == (2, 8)
    assert found["each"] == {"gpus": 8, "cpus": 32, "memory_GiB": 512}
    assert found["gpu"][0] == "H100-80GB"
    assert found["run"] == ["/bin/bash", "/t.sh"]


@pytest.mark.parametrize(
    ("lines", "members", "processes", "gpus"),
    [
        (["-N4"], 4, 1, None),
        (["-n 8", "-N2"], 2, 4, None),
        (["-n 8"], 8, 1, None),
        (["-n 8 --ntasks-per-node 4"], 2, 4, None),
        (["-n8", "--gpus=8"], 8, 1, 1),
        (["-N2 -G 8"], 2, 1, 4),
        (["-N2 --ntasks-per-node=4 --gpus-per-task=1"], 2, 4, 4),
        (["--gres=gpu:a100:2"], 1, 1, 2),
        (["-N 2-4"], 2, 1, None),
        (["--ntasks-per-node=3"], 1, 3, None),
    ],
)
def test_sizes_follow_from_what_is_told(
    lines: list[str], members: int, processes: int, gpus: int | None
) -> None:
    found = role(*lines)
    assert (found["members"], found["processes"], found["each"].get("gpus")) == (
        members,
        processes,
        gpus,
    )


@pytest.mark.parametrize(
    ("lines", "field"),
    [
        (["-N3 -n 8"], "ntasks"),
        (["-N2 -G 3"], "gpus"),
        (["-n4 --gres=gpu:2"], "gres"),
        (["-n4 --mem=4G"], "mem"),
        (["-N2 --gpus-per-node=4", "--gres=gpu:2"], "gres"),
        (["--mem=4G --mem-per-cpu=1G"], "mem-per-cpu"),
        (["-N2 -n 8 --ntasks-per-node=3"], "ntasks"),
    ],
)
def test_sizes_that_contradict_each_other_name_the_option(lines: list[str], field: str) -> None:
    told = problem_of(*(f"#SBATCH {line}" for line in lines))
    assert f"#SBATCH --{field}: " in told
    assert told.startswith("t.sh:")


def test_the_rest_of_a_header_becomes_fields_of_a_job() -> None:
    told = document(
        "#SBATCH -J llama -p gpu -t 1-0 --dependency=afterok:a:b,afterok:c --requeue --hold",
        "#SBATCH --switches=1 --signal=B:USR1@90 --array=0-7:2 --constraint='ib&rack=r1' --exclusive",
        "#SBATCH --chdir=/data --export=NONE,A=1,B",
        environment={"PATH": "/bin", "B": "2", "C": "3"},
        queue_of_partition={"gpu": "research/nlp"},
    )
    (worker,) = told.pop("gang")
    assert told == {
        "name": "llama",
        "queue": "research/nlp",
        "time_limit": 86400.0,
        "after": ["a", "b", "c"],
        "restarts": 3,
        "hold": True,
        "array": "0,2,4,6",
        "checkpoint": {"signal": "SIGUSR1", "grace": 90},
        "warn": {"signal": "SIGUSR1", "before": 90},
        "variables": "slurm",
        "topology": {"required": "leaf", "apart": {"tier": "node", "jobs": ["*"]}},
    }
    assert worker["env"] == {"A": "1", "B": "2"}
    assert worker["node_labels"] == {"ib": "true", "rack": "r1"}
    assert worker["workdir"] == "/data"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("--signal=USR2@120", "there is none"),
        ("--signal=USR2@120 --time=UNLIMITED", "there is none"),
        ("--signal=USR2@120 --time=2", "that is 120 s"),
        ("--signal=USR2@120 --time=2:01", None),
    ],
)
def test_a_signal_that_would_come_before_no_time_limit_says_so(
    lines: str, told: str | None
) -> None:
    script = read_script(header(f"#SBATCH {lines}"), "t.sh", ["/t.sh"])
    said = [each for each in script.warnings if "--signal" in each]
    assert [told in each for each in said if told] == ([True] if told else [])
    assert len(said) == (told is not None)
    assert ("warn" in json.loads(script.text)) == (told is None)


@given(st.integers(1, 60), st.integers(1, 12))
def test_several_switches_are_slices_that_need_no_more_of_them(nodes: int, switches: int) -> None:
    topology = document(f"#SBATCH --nodes={nodes} --switches={switches}").get("topology") or {}
    together = topology.get("slices", {}).get("members", nodes if "required" in topology else 1)
    assert nodes % together == 0
    assert nodes // together <= switches


def test_gantrees_own_lines_go_before_slurms_wherever_they_stand() -> None:
    told = document("#GANTREE --queue=q --time=5 --required=rack", "#SBATCH -p gpu --time=60 -N2")
    assert (told["queue"], told["time_limit"]) == ("q", 300)
    assert told["topology"]["required"] == "rack"
    assert "variables" not in document("#GANTREE --nodes=2")


def test_nothing_that_has_no_effect_is_passed_over_in_silence() -> None:
    lines = ["#SBATCH --account=a --array=0-3%2", "#SBATCH -o out.txt --nodes=2-4"]
    text = header(*lines) + "srun python x.py\n#SBATCH --late\n"
    told = read_script(text, "t.sh", ["/t.sh"]).warnings
    assert [each.split()[0] for each in told] == [
        "t.sh:2:",
        "t.sh:2:",
        "t.sh:3:",
        "t.sh:3:",
        "t.sh:5:",
        "t.sh:6:",
    ]
    for word, warning in zip(
        ("--account", "--array", "--nodes", "--output", "srun", "#SBATCH after"), told, strict=True
    ):
        assert word in warning


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_an_option_that_cannot_be_had_is_refused_with_a_way_out(name: str) -> None:
    known, way_out = REFUSED[name]
    told = problem_of(f"#SBATCH --{name}" + ("=x" if known.takes == "yes" else ""))
    assert told.startswith(f"t.sh:2: #SBATCH --{name}: ")
    assert way_out in told


def test_an_unknown_option_names_the_one_that_was_probably_meant() -> None:
    told = problem_of("#SBATCH --nods=2", "#SBATCH --time=soon", "#SBATCH --members=2")
    assert told.splitlines()[0].endswith("Did you mean `--nodes`?")
    assert "t.sh:3: #SBATCH --time: found `soon`" in told
    assert "t.sh:4: #SBATCH --members: found an unknown option" in told


def test_no_option_stands_in_two_tables() -> None:
    tables = (READ, OWN_READ, WITHOUT_EFFECT, REFUSED)
    names = [name for table in tables for name in table]
    letters = [known.letter for known in KNOWN["#SBATCH"].values() if known.letter]
    assert len(names) == len(set(names))
    assert len(letters) == len(set(letters))


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("#!/bin/sh\n", True),
        ("#! /usr/bin/env -S python -u\n", True),
        ("name: a\n#!/bin/sh", False),
        ("", False),
        ("#!/usr/bin/env -S gantree submit\nname: a\n", False),
        ("#!\n", False),
    ],
)
def test_a_script_begins_with_its_interpreter(text: str, is_one: bool) -> None:
    assert is_script(text) is is_one


OPTIONS = st.sampled_from(sorted({**READ, **OWN_READ, **WITHOUT_EFFECT, **REFUSED}))
VALUES = st.sampled_from(
    ["1", "2-4", "gpu:4", "h100:2", "USR1@9", "a", "64G", "0-3%2", "1:2", ""]
) | st.text(max_size=8)


@given(st.lists(st.tuples(st.sampled_from(["#SBATCH", "#GANTREE"]), OPTIONS, VALUES), max_size=6))
def test_any_header_is_a_job_or_problems_with_lines(
    header_lines: list[tuple[str, str, str]],
) -> None:
    lines = [f"{mark} --{name}={value}".replace("\n", " ") for mark, name, value in header_lines]
    try:
        script = read_script(header(*lines), "t.sh", ["/t.sh"])
    except BadFields as error:
        assert all(problem.source == "t.sh" for problem in error.problems)
        return
    jobs = read_job(script.text, "t.sh")
    assert all(isinstance(job, Job) for job in jobs)


@given(st.text(alphabet="#SBATCHGANTREE -=:\n'\"N2\\", max_size=80))
def test_no_text_at_all_breaks_the_reader(text: str) -> None:
    try:
        read_script(f"#!/bin/sh\n{text}", "t.sh", ["/t.sh"])
    except GantreeError as error:
        assert "t.sh" in str(error)


def test_data_may_be_declared_by_version_alone() -> None:
    text = "name: a\ndata: {path: /data/c4, version: v3}\ngang: [{role: w, members: 1, run: [x]}]\n"
    (job,) = read_job(text, "job.yaml")
    assert [(need.name, need.GiB, need.path, need.version) for need in job.data] == [
        ("/data/c4", 0.0, "/data/c4", "v3")
    ]
    with pytest.raises(
        BadFields, match=r"job.yaml:2: data\[0\].*GiB or version|neither GiB nor version"
    ):
        read_job(text.replace(", version: v3", ""), "job.yaml")


@pytest.mark.parametrize("value", ["--5", "-", "5-", "\N{SUPERSCRIPT TWO}", "9" * 5000])
def test_a_priority_that_is_no_number_is_said_with_its_line(value: str) -> None:
    with pytest.raises(BadFields) as told:
        read_script(f"#!/bin/sh\n#SBATCH --priority={value}\n", "s.sh", ["s.sh"])
    assert [problem.line for problem in told.value.problems] == [2]
