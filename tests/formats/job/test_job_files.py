"""job.yaml: what a good file means, and where a bad one is wrong."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.formats import read_job
from gantree.model.errors import BadFields, GantreeError
from gantree.model.jobs import (
    AxisTraffic,
    Checkpoint,
    Elastic,
    Job,
    Restarts,
    Role,
    Shape,
    Slices,
    TopologySpec,
    Traffic,
    Transformer,
)

DATA = Path(__file__).parents[2] / "data" / "jobs"
GOOD = (DATA / "everything.yaml").read_text(encoding="utf-8")

SMALL = """\
name: train
queue: research/nlp
priority: batch
gang:
  - role: worker
    members: 4
    each: {gpus: 8}
    run: [python, train.py]
    env: {SEED: "1"}
  - {role: helper, members: 1}
topology:
  slices: [{members: 2, required: leaf, role: worker}]
elastic: {min: 2, max: 8}
checkpoint: {every: 15m, signal: SIGUSR1}
restarts: {limit: 2, backoff: 10s}
time_limit: 8h
after: [prepare]
array: 0-9
"""


def test_restarts_may_name_exit_codes() -> None:
    text = "name: a\ngang: [{role: r, members: 1}]\nrestarts: {limit: 2, exit_codes: [75, 143]}\n"
    (job,) = read_job(text, "job.yaml")
    assert job.restarts == Restarts(2, exit_codes=(75, 143))


def test_a_good_file_is_read_in_full() -> None:
    first, *rest = read_job(GOOD, "everything.yaml")
    assert first == Job(
        name="llama-7b-0",
        roles=(
            Role(
                "worker",
                4,
                Shape(
                    8, 64.0, 512.0, 8,
                    models=("H100-80GB", "H200-141GB"),
                    labels=(("pool", "a"), ("zone", "1")),
                    devices=(("nvme", 2),),
                ),
                processes=8,
                image="registry/train:1",
                run=("python", "train.py", "--steps", "100"),
                env=(("SEED", "1"), ("LR", "1e-4"), ("DEBUG", "True"), ("EMPTY", "")),
                workdir="/data/run1",
            ),
            Role(
                "helper",
                1,
                Shape(cpus=0.5, models=("T4",)),
                topology=TopologySpec("node", None, (Slices(1, "node", "helper"),)),
            ),
        ),
        queue="research/nlp",
        priority=250,
        topology=TopologySpec("leaf", "nvlink", (Slices(2, "leaf", "worker"),)),
        parallelism=(("tensor", 8), ("data", 2), ("pipeline", 2)),
        elastic=Elastic(2, 8),
        checkpoint=Checkpoint(5400.0, "SIGUSR1", 45.0, "/data/ckpt"),
        restarts=Restarts(5, 10.0, 120.0),
        time_limit_s=86_400.0,
        after=("prepare-data",),
        array_index=0,
    )  # fmt: skip
    assert [job.name for job in rest] == [
        "llama-7b-1",
        "llama-7b-2",
        "llama-7b-7",
        "small",
        "shared",
    ]
    assert [job.array_index for job in rest] == [1, 2, 7, None, None]


def test_what_a_file_leaves_out_gets_the_defaults_of_the_model() -> None:
    (job,) = read_job("name: a\ngang: [{role: r, members: 2}]\n", "a.yaml")
    assert job == Job("a", (Role("r", 2, Shape()),))


def test_short_forms_mean_the_same_as_long_ones() -> None:
    *_, small, shared = read_job(GOOD, "everything.yaml")
    assert small.restarts == Restarts(limit=0)
    assert small.roles[0].shape == Shape(mig="3g.40gb")
    assert shared.after == ("small",)
    assert shared.checkpoint == Checkpoint()
    assert shared.roles[0].shape == Shape(gpu_share=0.5, gpu_memory_GiB=20.0)


def test_a_long_first_backoff_lifts_the_default_of_the_longest() -> None:
    text = "name: a\ngang: [{role: r, members: 1}]\nrestarts: {backoff: 10m}\n"
    (job,) = read_job(text, "a.yaml")
    assert job.restarts == Restarts(3, 600.0, 600.0)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("15m", 900), ("8h", 28_800), ("1h30m", 5400), ("90s", 90), ("7d", 604_800), ("1.5h", 5400),
        ("90", 90), ("0.5", 0.5), ("1d2h3m4s", 93_784), ("1e3", 1000),
    ],
)  # fmt: skip
def test_durations(written: str, seconds: float) -> None:
    (job,) = read_job(f"name: a\ngang: [{{role: r, members: 1}}]\ntime_limit: {written}\n", "a")
    assert job.time_limit_s == seconds


@pytest.mark.parametrize(
    "written",
    ["15 m", "m", "''", "1m1h", "-1", "-5s", "1w", "0", "0s", "true", "[1]", ".inf", "1e300", "9" * 30 + "d"],
)  # fmt: skip
def test_what_is_no_duration(written: str) -> None:
    with pytest.raises(BadFields) as caught:
        read_job(f"name: a\ngang: [{{role: r, members: 1}}]\ntime_limit: {written}\n", "a")
    (problem,) = caught.value.problems
    assert (problem.line, problem.field) == (3, "time_limit")
    assert "duration" in problem.allowed


WRONG = [
    # what is replaced, by what, line, field, words of the message
    ("name: train", "name: ../train", 1, "name", "`../train`"),
    ("name: train", "name: .train", 1, "name", "`.train`"),
    ("name: train", "name: a/b", 1, "name", "`a/b`"),
    ("name: train", "name: " + "a" * 64, 1, "name", "at most 63"),
    ("name: train", "name: " + "a" * 62, 1, "name", "in the array"),
    ("name: train", "name: null", 1, "name", "nothing"),
    ("name: train", "name: 'a\\n'", 1, "name", "a name"),
    ("research/nlp", "research//nlp", 2, "queue", "joined by `/`"),
    ("research/nlp", "/research", 2, "queue", "joined by `/`"),
    ("research/nlp", "research/..", 2, "queue", "joined by `/`"),
    ("priority: batch", "priority: 1.5", 3, "priority", "a whole number"),
    ("priority: batch", "priority: 9999999999", 3, "priority", "from -1000000000 to 1000000000"),
    ("priority: batch", "priority: true", 3, "priority", "`true`"),
    ("priority: batch", "prioritiy: 1", 3, "prioritiy", "Did you mean `priority`?"),
    ("members: 4", "member: 4", 6, "gang[0].member", "Did you mean `members`?"),
    ("members: 4", "member: 4", 5, "gang[0].members", "required"),
    ("members: 4", "replicas: 4", 6, "gang[0].replicas", "Did you mean `members`?"),
    ("run: [python, train.py]", "command: [a]", 8, "gang[0].command", "Did you mean `run`?"),
    ("array: 0-9", "command: [a]", 18, "command", "`run` is a field of `gang`"),
    ("members: 4", "members: 0", 6, "gang[0].members", "1 or more"),
    ("members: 4", "members: 9000000", 6, "gang[0].members", "at most 1000000"),
    ("members: 4", "members: 4\n    processes: 9999", 7, "gang[0].processes", "at most 4096"),
    ("members: 4", "members: four", 6, "gang[0].members", "`four`"),
    ("members: 4", "members: 4.0", 6, "gang[0].members", "`4.0`"),
    ("members: 4", "members: 4\n    processes: false", 7, "gang[0].processes", "`false`"),
    ("each: {gpus: 8}", "each: {gpu: 8}", 7, "gang[0].each.gpu", "Did you mean `gpu"),
    ("each: {gpus: 8}", "each: {gpus: '8'}", 7, "gang[0].each.gpus", "whole number"),
    ("each: {gpus: 8}", "each: {cpus: -1}", 7, "gang[0].each.cpus", "0 or more"),
    ("each: {gpus: 8}", "each: 8", 7, "gang[0].each", "a mapping with the fields gpus"),
    ("each: {gpus: 8}", "each: {gpus: 8, mig: 3g.40gb}", 7, "gang[0].each.mig", "one of"),
    ("each: {gpus: 8}", "each: {mig: 3g}", 7, "gang[0].each.mig", "3g.40gb"),
    ("each: {gpus: 8}", "each: {gpu_share: 1.5}", 7, "gang[0].each.gpu_share", "at most 1"),
    ("each: {gpus: 8}", "each: {gpu_memory_GiB: 8}", 7, "gang[0].each.gpu_memory_GiB", "gpu_share"),
    ("each: {gpus: 8}", "each: {devices: {x: 0}}", 7, "gang[0].each.devices.x", "1 or more"),
    ("each: {gpus: 8}", "gpu: [T4, {}]", 7, "gang[0].gpu[1].model", "required"),
    ("each: {gpus: 8}", "gpu: [T4, [A100]]", 7, "gang[0].gpu[1]", "text in one line"),
    ("each: {gpus: 8}", "gpu: true", 7, "gang[0].gpu", "`true`"),
    ("each: {gpus: 8}", "node_labels: {a: [b]}", 7, "gang[0].node_labels.a", "a list"),
    ("run: [python, train.py]", "run: python train.py", 8, "gang[0].run", "[python, train.py]"),
    ("run: [python, train.py]", "run: []", 8, "gang[0].run", "a list of words"),
    ("run: [python, train.py]", "run: [a, null]", 8, "gang[0].run", 'written as ""'),
    ("run: [python, train.py]", 'run: [a, "b\\0"]', 8, "gang[0].run", "NUL"),
    ('env: {SEED: "1"}', "env: {1A: x}", 9, "gang[0].env.1A", "no digit first"),
    ('env: {SEED: "1"}', "env: {A=B: x}", 9, "gang[0].env.A=B", "variable"),
    ('env: {SEED: "1"}', "env: {A: }", 9, "gang[0].env.A", 'written as ""'),
    ('env: {SEED: "1"}', "env: [A=1]", 9, "gang[0].env", "a mapping"),
    ("role: helper", "role: worker", 10, "gang[1].role", "each role once"),
    ("role: worker}", "role: wroker}", 12, "topology.slices[0].role", "Did you mean `worker`?"),
    ("slices: [{members: 2", "slices: [{members: 0", 12, "topology.slices[0].members", "1 or more"),
    ("slices: [{members: 2", "slices: [{member: 2", 12, "topology.slices[0].member", "`members`?"),
    ("slices: [", "requird: leaf\n  slices: [", 12, "topology.requird", "Did you mean `required`?"),
    ("min: 2", "min: 9", 13, "elastic.min", "at most max"),
    ("min: 2", "min: 6", 13, "elastic.min", "the 5 members"),
    ("max: 8", "max: 4", 13, "elastic.max", "the 5 members"),
    ("every: 15m", "every: 15mm", 14, "checkpoint.every", "a duration"),
    ("every: 15m", "every: 0", 14, "checkpoint.every", "longer than 0s"),
    ("SIGUSR1", "USR1", 14, "checkpoint.signal", "Did you mean `SIGUSR1`?"),
    ("SIGUSR1", "SIGKILL", 14, "checkpoint.signal", "one of SIGUSR1"),
    ("SIGUSR1", "10", 14, "checkpoint.signal", "one of SIGUSR1"),
    ("{limit: 2, backoff: 10s}", "-1", 15, "restarts", "a number of restarts from 0 to"),
    ("{limit: 2, backoff: 10s}", "true", 15, "restarts", "a number of restarts"),
    ("backoff: 10s", "backoff: 10s, backoff_max: 5s", 15, "restarts.backoff_max", "at least backoff"),
    ("backoff: 10s", "exit_codes: [0]", 15, "restarts.exit_codes[0]", "an exit code from 1 to 255"),
    ("backoff: 10s", "exit_codes: x", 15, "restarts.exit_codes", "an exit code from 1 to 255"),
    ("backoff: 10s", "backof: 10s", 15, "restarts.backof", "Did you mean `backoff`?"),
    ("after: [prepare]", "after: [a/b]", 17, "after[0]", "a name"),
    ("after: [prepare]", "after: [x, train-3]", 17, "after[1]", "itself"),
    ("array: 0-9", "array: 9-0", 18, "array", "smaller"),
    ("array: 0-9", "array: 0-99999", 18, "array", "at most 10000"),
    ("array: 0-9", "array: 0-5,3", 18, "array", "each index once"),
    ("array: 0-9", "array: [0, 1]", 18, "array", "indices such as"),
    ("array: 0-9", "arrya: 0-9", 18, "arrya", "Did you mean `array`?"),
    ("array: 0-9", "parallelism: {tensors: 8}", 18, "parallelism.tensors", "`tensor`?"),
    ("array: 0-9", "array: 0-9\n---\nname: train-3\ngang: []\n", 21, "gang",
     "an empty list; allowed: a list of at least 1"),
    ("array: 0-9", "array: 0-9\n---\nname: train-3\ngang: [{role: r, members: 1}]\n", 20, "name",
     "first in line 1"),
    ("array: 0-9", "array: 0-9\n---\n- a\n", 20, "document", "a list"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "field", "words"), WRONG)
def test_a_wrong_field_is_named_with_its_line(
    old: str, new: str, line: int, field: str, words: str
) -> None:
    assert old in SMALL
    with pytest.raises(BadFields) as caught:
        read_job(SMALL.replace(old, new, 1), "j.yaml")
    told = [problem for problem in caught.value.problems if problem.field == field]
    assert told, str(caught.value)
    assert told[0].line == line
    assert words in str(told[0])
    assert str(told[0]).startswith(f"j.yaml:{line}: {field}: found ")


def test_the_unchanged_file_of_the_table_is_good() -> None:
    assert len(read_job(SMALL, "j.yaml")) == 10


def test_problems_of_all_documents_are_told_at_once() -> None:
    text = "name: 1/2\ngang: []\n---\nname: b\ngang: [{role: r, members: 1}]\nelastic: {min: 3, max: 2}\n"
    with pytest.raises(BadFields) as caught:
        read_job(text, "j.yaml")
    found = [(problem.line, problem.field) for problem in caught.value.problems]
    assert found == [(1, "name"), (2, "gang"), (6, "elastic.min")]


def test_a_file_with_a_wrong_name_is_still_checked_across_its_fields() -> None:
    with pytest.raises(BadFields) as caught:
        read_job(SMALL.replace("train", "", 1).replace("min: 2", "min: 9"), "j.yaml")
    assert [problem.field for problem in caught.value.problems] == ["name", "elastic.min"]


@pytest.mark.parametrize("text", ["", "---\n---\n", "# only words\n"])
def test_an_empty_file_is_an_error(text: str) -> None:
    with pytest.raises(BadFields, match="an empty file"):
        read_job(text, "j.yaml")


def test_no_file_makes_more_than_10000_jobs() -> None:
    one = "name: a{n}\ngang: [{{role: r, members: 1}}]\narray: 0-5999\n"
    text = "---\n".join(one.format(n=n) for n in range(500))
    with pytest.raises(BadFields, match="at most 10000 jobs in a file"):
        read_job(text, "j.yaml")


def test_control_characters_do_not_reach_the_error_text() -> None:
    with pytest.raises(BadFields) as caught:
        read_job('name: "\\e[31mred"\n"\\e[2Jx": 1\ngang: [{role: r, members: 1}]\n', "j.yaml")
    assert "\x1b" not in str(caught.value)


# ----- what the job trains and sends

TRAINING = """\
name: train
gang: [{role: worker, members: 8, each: {gpus: 8}}]
parallelism: {tensor: 4, context: 2, expert: 4, data: 4, pipeline: 2}
model:
  parameters: 47B
  layers: 32
  hidden: 4096
  sequence: 8192
  batch: 256
  micro_batch: 2
  heads: 32
  kv_heads: 8
  experts: 8
  experts_per_token: 2
  expert_parameters: 4.5e10
  sharded: optimizer
  mfu: 0.45
traffic: {data: 14GB, tensor: {bytes: 512MiB, calls: 128, collective: all_gather}, compute: 1.5s}
overlap: {data: 0.9, tensor: 0}
"""


def test_a_model_and_its_traffic_are_read_in_full() -> None:
    (job,) = read_job(TRAINING, "train.yaml")
    assert job.trains == Transformer(
        parameters=47e9,
        layers=32,
        hidden=4096,
        sequence=8192,
        batch=256,
        micro_batch=2,
        kv_share=0.25,
        experts=8,
        experts_per_token=2,
        expert_parameters=45e9,
        sharded="optimizer",
        mfu=0.45,
    )
    assert job.traffic == Traffic(
        (AxisTraffic("tensor", 512 * 2**20, 128, "all_gather"), AxisTraffic("data", 14e9)),
        compute_s=1.5,
    )
    assert job.overlap == (("tensor", 0.0), ("data", 0.9))


def test_a_job_without_them_trains_nothing_that_is_known() -> None:
    (job,) = read_job("name: a\ngang: [{role: r, members: 2}]\n", "a.yaml")
    assert (job.trains, job.traffic, job.overlap) == (None, None, ())


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("7B", 7e9),
        ("350M", 350e6),
        ("1.8T", 1.8e12),
        ("1.2e9", 1.2e9),
        ("700000", 7e5),
        ("7 G", 7e9),
    ],
)
def test_parameters_are_written_as_people_do(written: str, number: float) -> None:
    text = TRAINING.replace("parameters: 47B", f"parameters: {written}", 1)
    text = text.replace("expert_parameters: 4.5e10", "expert_parameters: 1K")
    told, plain = read_job(text, "t.yaml")[0].trains, read_job(TRAINING, "t.yaml")[0].trains
    assert plain is not None
    assert told == replace(plain, parameters=number, expert_parameters=1e3)


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("512MiB", 512 * 2**20),
        ("14GB", 14e9),
        ("1e9", 1e9),
        ("4096", 4096),
        ("1.5 KiB", 1536),
        ("7B", 7),
    ],
)
def test_sizes_are_bytes_with_or_without_a_unit(written: str, number: float) -> None:
    traffic = read_job(TRAINING.replace("14GB", written), "t.yaml")[0].traffic
    assert traffic is not None
    assert traffic.axes[1].size_bytes == number


@pytest.mark.parametrize(
    ("old", "new", "field", "allowed"),
    [
        ("47B", "47X", "model.parameters", "such as 7B"),
        ("47B", "-1", "model.parameters", "above 0"),
        ("47B", "1e30", "model.parameters", "above 0"),
        ("47B", "true", "model.parameters", "above 0"),
        ("47B", "9" * 5000, "model.parameters", "above 0"),
        ("hidden: 4096", "hiden: 4096", "model.hiden", "hidden"),
        ("  layers: 32\n", "", "model.layers", "`layers` is required"),
        ("layers: 32", "layers: 33", "model.layers", "a multiple of parallelism.pipeline, which is 2"),
        ("hidden: 4096", "hidden: 4097", "model.hidden", "a multiple of parallelism.tensor, which is 4"),
        ("  heads: 32", "  heads: 34", "model.heads", "a multiple of parallelism.tensor, which is 4"),
        ("sequence: 8192", "sequence: 8193", "model.sequence", "a multiple of parallelism.context, which is 2"),
        ("batch: 256", "batch: 7", "model.batch", "data x micro_batch, which is 8"),
        ("kv_heads: 8", "kv_heads: 5", "model.kv_heads", "which is 32"),
        ("  heads: 32\n", "", "model.kv_heads", "heads, or both"),
        ("experts: 8", "experts: 6", "model.experts", "a multiple of parallelism.expert, which is 4"),
        ("experts_per_token: 2", "experts_per_token: 9", "model.experts_per_token", "at most experts"),
        ("  expert_parameters: 4.5e10\n", "", "model.experts", "expert_parameters as well"),
        ("4.5e10", "48B", "model.expert_parameters", "at most parameters"),
        ("  experts: 8\n", "", "model.expert_parameters", "experts as well"),
        ("optimizer", "optimiser", "model.sharded", "one of none, optimizer, parameters"),
        ("mfu: 0.45", "mfu: 45", "model.mfu", "above 0, at most 1"),
        ("expert: 4,", "expert: 3,", "parallelism.expert", "a divisor of data, which is 4"),
        ("14GB", "0", "traffic.data", "above 0"),
        ("14GB", "14gigs", "traffic.data", "such as 512MiB"),
        ("bytes: 512MiB, ", "", "traffic.tensor.bytes", "`bytes` is required"),
        ("all_gather", "allgather", "traffic.tensor.collective", "one of all_reduce"),
        ("context: 2, ", "", None, ""),
        ("data: 14GB", "context: 14GB", None, ""),
        ("1.5s", "0s", "traffic.compute", "longer than 0s"),
        ("data: 0.9", "data: 9", "overlap.data", "from 0 to 1"),
        ("data: 0.9", "rail: 0.9", "overlap.rail", "tensor, context, expert, data, pipeline"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_model_or_its_traffic_is_told(
    old: str, new: str, field: str | None, allowed: str
) -> None:
    text = TRAINING.replace(old, new, 1)
    assert text != TRAINING
    if field is None:
        read_job(text, "t.yaml")
        return
    with pytest.raises(BadFields) as caught:
        read_job(text, "t.yaml")
    problems = {problem.field: problem for problem in caught.value.problems}
    assert field in problems
    assert allowed in problems[field].allowed
    assert problems[field].line is not None


def test_traffic_along_an_axis_that_the_job_does_not_have_is_told() -> None:
    text = TRAINING.replace("context: 2, ", "").replace("data: 14GB", "context: 14GB")
    with pytest.raises(BadFields, match="traffic along context"):
        read_job(text, "t.yaml")


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 3), st.text(max_size=3)), max_size=6)
)
def test_a_mutated_training_job_is_read_or_refused_in_words(
    mutations: list[tuple[int, int, str]],
) -> None:
    text = TRAINING
    for place, cut, added in mutations:
        at = place % (len(text) + 1)
        text = text[:at] + added + text[at + cut :]
    try:
        read_job(text, "t.yaml")
    except GantreeError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ("", True),
        ("traffic: {data: 1GB}\n", True),
        ("traffic: {expert: 1GB}\n", False),
    ],
)
def test_expert_ways_need_experts_or_told_traffic(more: str, wrong: bool) -> None:
    text = (
        "name: j\ngang: [{role: w, members: 4, each: {gpus: 8}, run: [x]}]\n"
        "parallelism: {data: 32, expert: 4}\n"
        f"model: {{parameters: 7B, layers: 8, hidden: 512, sequence: 64, batch: 32}}\n{more}"
    )
    if not wrong:
        assert dict(read_job(text, "j.yaml")[0].parallelism)["expert"] == 4
        return
    with pytest.raises(BadFields) as caught:
        read_job(text, "j.yaml")
    (problem,) = caught.value.problems
    assert (problem.line, problem.field) == (3, "parallelism.expert")
    assert problem.found == "`4` for a model without experts"


def test_a_model_with_heads_alone_has_as_many_for_keys_and_values() -> None:
    text = "name: j\ngang: [{role: w, members: 1, each: {gpus: 1}}]\n"
    model = (
        "model: {parameters: 7B, layers: 32, hidden: 4096, sequence: 4096, batch: 64, heads: 32}\n"
    )
    (job,) = read_job(text + model, "job.yaml")
    assert job.trains is not None
    assert job.trains.kv_share == 1.0
