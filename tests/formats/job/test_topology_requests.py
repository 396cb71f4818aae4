"""job.yaml: parts of GPUs, and where members wish to be; what they mean, and where they are wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.formats import read_job
from gantree.model.errors import BadFields, GantreeError
from gantree.model.jobs import Apart, DataNeed, Shape, Slices, Spread, TopologySpec

WISHES = """\
name: serve
gang:
  - role: replica
    members: 4
    each: {gpu_share: 0.5, gpu_memory_GiB: 20, isolation: mps, neighbours: true, memory_GBps: 12.5, devices: {fpga: 2}}
    topology: {spread: {tier: node, at_most: 2}, apart: {tier: node, jobs: "chat-*"}}
  - {role: cut, members: 2, each: {mig: 1g.24gb-me}, gpu: [A100-80GB, RTXPRO6000-96GB]}
topology:
  slices: [{members: 2, preferred: leaf}, {members: 1, required: node, role: cut}]
  spread: leaf
  apart: [{tier: leaf, jobs: [train, 7]}, {tier: spine, jobs: ["?-b*"]}]
data: [{name: imagenet-21k, GiB: 1300.5}, {name: "s3://ckpt/7", GiB: 80}]
communicates: false
---
name: pod
gang: [{role: worker, members: 64, each: {gpus: 4}}]
topology: {box: 4x4x16, required: cube}
parallelism: {data: 16, tensor: 16}
rank_order: as-written
data: {name: d, GiB: 1}
"""


def test_parts_of_gpus_are_read() -> None:
    serve, _ = read_job(WISHES, "j.yaml")
    assert serve.roles[0].shape == Shape(
        gpu_share=0.5,
        gpu_memory_GiB=20.0,
        isolation="mps",
        neighbours=True,
        memory_GBps=12.5,
        devices=(("fpga", 2),),
    )
    assert serve.roles[1].shape == Shape(mig="1g.24gb-me", models=("A100-80GB", "RTXPRO6000-96GB"))


def test_where_members_wish_to_be_is_read() -> None:
    serve, pod = read_job(WISHES, "j.yaml")
    assert serve.topology == TopologySpec(
        slices=(Slices(2, "leaf", preferred=True), Slices(1, "node", "cut")),
        spread=Spread("leaf"),
        apart=(Apart("leaf", ("train", "7")), Apart("spine", ("?-b*",))),
    )
    assert serve.roles[0].topology == TopologySpec(
        spread=Spread("node", 2), apart=(Apart("node", ("chat-*",)),)
    )
    assert serve.roles[1].topology == TopologySpec()
    assert pod.topology == TopologySpec("cube", box=(4, 4, 16))


def test_data_traffic_and_rank_order_are_read() -> None:
    serve, pod = read_job(WISHES, "j.yaml")
    assert serve.data == (DataNeed("imagenet-21k", 1300.5), DataNeed("s3://ckpt/7", 80.0))
    assert pod.data == (DataNeed("d", 1.0),)
    assert (serve.communicates, pod.communicates) == (False, True)
    assert (serve.ranks_as_written, pod.ranks_as_written) == (False, True)
    assert pod.parallelism == (("data", 16), ("tensor", 16))


@pytest.mark.parametrize(
    ("written", "box"),
    [("any", ()), ("256", (256,)), ("16x16", (16, 16)), ("1x1x256", (1, 1, 256))],
)
def test_boxes(written: str, box: tuple[int, ...]) -> None:
    pod = read_job(WISHES.replace("4x4x16", written), "j.yaml")[1]
    assert pod.topology.box == box


WRONG = [
    # what is replaced, by what, line, field, words of the message
    ("gpu_share: 0.5, ", "gpus: 1, ", 5, "gang[0].each.gpu_memory_GiB", "of a gpu_share"),
    ("gpu_share: 0.5, ", "gpus: 1, ", 5, "gang[0].each.isolation", "of a gpu_share"),
    ("gpu_share: 0.5, ", "mig: 3g.40gb, ", 5, "gang[0].each.neighbours", "of a gpu_share"),
    ("gpu_share: 0.5, ", "gpus: 1, gpu_share: 0.5, ", 5, "gang[0].each.gpu_share", "compute_partition and gpu_share"),
    ("gpu_share: 0.5, ", "mig: 3g.40gb, gpu_share: 0.5, ", 5, "gang[0].each.gpu_share", "together with mig"),
    ("isolation: mps", "isolation: mp", 5, "gang[0].each.isolation", "Did you mean `mps`?"),
    ("neighbours: true", "neighbours: 1", 5, "gang[0].each.neighbours", "true or false"),
    ("memory_GBps: 12.5", "memory_GBps: -1", 5, "gang[0].each.memory_GBps", "0 or more"),
    ("memory_GBps: 12.5", "memory_Gbps: 1", 5, "gang[0].each.memory_Gbps", "Did you mean `memory_GBps`?"),
    ("at_most: 2", "at_most: 0", 6, "gang[0].topology.spread.at_most", "1 or more"),
    ("at_most: 2", "most: 2", 6, "gang[0].topology.spread.most", "Did you mean `at_most`?"),
    ("{tier: node, at_most: 2}", "[node]", 6, "gang[0].topology.spread", "fields tier, at_most"),
    ("spread: {tier: node,", "required: node, spread: {tier: node,", 6, "gang[0].topology.spread.at_most",
     "at least 4: `required` keeps so many members in one node"),
    ("spread: {tier: node,", "slices: {members: 4, required: node}, spread: {tier: node,", 6,
     "gang[0].topology.spread.at_most", "at least 4"),
    ('jobs: "chat-*"', "jobs: []", 6, "gang[0].topology.apart.jobs", "at least 1"),
    ('jobs: "chat-*"', 'jobs: "chat-[0-9]"', 6, "gang[0].topology.apart.jobs", "such as chat-*"),
    ('jobs: "chat-*"', "job: x", 6, "gang[0].topology.apart.job", "Did you mean `jobs`?"),
    ("apart: {tier: node,", "box: any, apart: {tier: node,", 6, "gang[0].topology.box", "unknown field"),
    ("1g.24gb-me", "1g.24gb-mee", 7, "gang[1].each.mig", "such as 3g.40gb"),
    ("1g.24gb-me", "3g.40g", 7, "gang[1].each.mig", "such as 3g.40gb"),
    ("1g.24gb-me", "1g.24gb-mx", 7, "gang[1].each.mig", "such as"),
    ("1g.24gb-me", "3g.41gb", 7, "gang[1].each.mig", "Did you mean `3g.40gb`?"),
    ("[A100-80GB, RTXPRO6000-96GB]", "A100-80GB", 7, "gang[1].each.mig", "a profile of A100-80GB (1g.10gb"),
    ("[A100-80GB, RTXPRO6000-96GB]", "T4-16GB", 7, "gang[1].each.mig", "a GPU with MIG"),
    ("members: 2, preferred: leaf", "members: 2, preferred: leaf, required: leaf", 9,
     "topology.slices[0].preferred", "one of required and preferred"),
    ("members: 2, preferred: leaf", "members: 2", 9, "topology.slices[0].required", "one of required and preferred"),
    ("role: cut}", "role: cuts}", 9, "topology.slices[1].role", "Did you mean `cut`?"),
    ("spread: leaf", "spread: {at_most: 2}", 10, "topology.spread.tier", "required"),
    ("spread: leaf", "spread: true", 10, "topology.spread", "a tier, or a mapping"),
    ("{tier: leaf, jobs: [train, 7]}", "train", 11, "topology.apart[0]", "a mapping with the fields tier, jobs"),
    ("[train, 7]", "[train, {}]", 11, "topology.apart[0].jobs[1]", "a pattern of names"),
    ("GiB: 1300.5", "GiB: 0", 12, "data[0].GiB", "above 0"),
    ("GiB: 1300.5", "GB: 5", 12, "data[0].GB", "Did you mean `GiB`?"),
    ('name: "s3://ckpt/7"', "name: imagenet-21k", 12, "data[1].name", "each data set once"),
    ("communicates: false", "communicates: 0", 13, "communicates", "true or false"),
    ("4x4x16", "4x4x15", 17, "topology.box", "a box of 256 GPUs (64 x 4), or of nodes"),
    ("4x4x16", "4x0x16", 17, "topology.box", "such as 4x4x16"),
    ("4x4x16", "4 x 4", 17, "topology.box", "any, or GPUs along"),
    ("4x4x16", "[4, 4, 16]", 17, "topology.box", "any, or GPUs along"),
    ("4x4x16", "1x1x1x1x1x1x1x1x256", 17, "topology.box", "at most 8 axes"),
    ("each: {gpus: 4}", "each: {mig: 3g.40gb}", 17, "topology.box", "of parts of GPUs"),
    ("each: {gpus: 4}", "each: {cpus: 4}", 17, "topology.box", "over which 64 members are spread"),
    ("each: {gpus: 4}}", "each: {gpus: 4}}, {role: b, members: 1}", 17, "topology.box", "a gang of one role"),
    ("rank_order: as-written", "elastic: {min: 1, max: 99}", 17, "topology.box", "`any` for an elastic gang"),
    ("rank_order: as-written", "rank_order: written", 19, "rank_order", "Did you mean `as-written`?"),
    ("parallelism: {data: 16, tensor: 16}\n", "", 18, "rank_order", "a job with parallelism"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "field", "words"), WRONG)
def test_a_wrong_wish_is_named_with_its_line(
    old: str, new: str, line: int, field: str, words: str
) -> None:
    assert old in WISHES
    with pytest.raises(BadFields) as caught:
        read_job(WISHES.replace(old, new, 1), "j.yaml")
    told = [problem for problem in caught.value.problems if problem.field == field]
    assert told, str(caught.value)
    assert told[0].line == line
    assert words in str(told[0])


@pytest.mark.parametrize("box", ["4x4x16", "8x8", "4x8"])
def test_a_box_holds_all_gpus_or_as_many_members_on_each_node(box: str) -> None:
    assert read_job(WISHES.replace("4x4x16", box), "j.yaml")


def test_an_elastic_gang_may_be_any_box() -> None:
    text = WISHES.replace("4x4x16", "any") + "elastic: {min: 16, max: 128}\n"
    assert read_job(text, "j.yaml")[1].topology.box == ()


def test_a_profile_of_a_gpu_that_nobody_knows_is_left_to_the_cluster() -> None:
    text = WISHES.replace("[A100-80GB, RTXPRO6000-96GB]", "[A100-80GB, X9]")
    assert read_job(text, "j.yaml")[0].roles[1].shape.mig == "1g.24gb-me"


def test_what_could_not_be_read_makes_no_wish_look_wrong() -> None:
    text = WISHES.replace("gpu_share: 0.5", "gpu_share: 5").replace(
        "preferred: leaf", "preferred: []"
    )
    text = text.replace("parallelism: {data: 16, tensor: 16}", "parallelism: [data]")
    text = text.replace("each: {gpus: 4}", "each: {gpus: -4}").replace("[A100-80GB,", "[{},")
    with pytest.raises(BadFields) as caught:
        read_job(text, "j.yaml")
    assert [problem.field for problem in caught.value.problems] == [
        "gang[0].each.gpu_share",
        "gang[1].gpu[0].model",
        "topology.slices[0].preferred",
        "gang[0].each.gpus",
        "parallelism",
    ]


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 3), st.text(max_size=3)), max_size=6)
)
def test_a_mutated_job_of_wishes_is_read_or_refused_in_words(
    mutations: list[tuple[int, int, str]],
) -> None:
    text = WISHES
    for place, cut, added in mutations:
        at = place % (len(text) + 1)
        text = text[:at] + added + text[at + cut :]
    try:
        read_job(text, "j.yaml")
    except GantreeError as error:
        assert str(error)
