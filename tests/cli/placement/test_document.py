"""Placements as JSON and as lines: everything that a member may hold is told, and read back the same."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.cli.output.refusals import refusal_lines
from gantree.cli.placement.document import placement_json, read_placements
from gantree.cli.placement.lines import placement_lines
from gantree.formats import read_cluster
from gantree.formats.refusals import refusal_json
from gantree.model.errors import BadFields
from gantree.model.jobs import Apart, Elastic, Job, Role, Shape, Slices, Spread
from gantree.model.placements import (
    Domain,
    GpuChange,
    MemberPlacement,
    MigPart,
    NumaPart,
    Placement,
    Predicted,
    SharePart,
)
from gantree.model.verdicts import Gate, Patch, Refused, Relaxation
from gantree.topology.fabric.fabric import Fabric

Complaints = Callable[[Any, str], list[str]]
FABRIC = Fabric.build(
    read_cluster(
        "name: c\ntiers: [node]\nnodes: [{names: 'n[0-1]', machine: dgx-h100}]\n", "c.yaml"
    )
)
WHOLE = MemberPlacement(
    "a", 0, "n0", (0, 1), ("mlx5_0",), 16.0, 128.0, numa=(NumaPart(0, 16.0, 128.0),)
)
CUT = MemberPlacement("b", 0, "n0", mig=(MigPart(3, "3g.40gb", 4), MigPart(3, "1g.10gb", 0)))
SHARED = MemberPlacement("b", 1, "n1", share=SharePart(2, 0.5, 20.0, "mps"), devices=(("fpga", 2),))
CHANGES = (
    GpuChange("n0", 3, None, (MigPart(3, "1g.10gb", 6),), (MigPart(3, "3g.40gb", 4),), 2.4),
    GpuChange("n1", 2, False, (MigPart(2, "7g.80gb", 0),), (), 75.0),
    GpuChange("n1", 5, True, (), (MigPart(5, "7g.80gb", 0),), 75.0),
)


def job(a: int = 1, b: int = 2) -> Job:
    return Job(
        "j", (Role("a", a, Shape(2)), Role("b", b, Shape(mig="3g.40gb"))), elastic=Elastic(1, 9)
    )


def placed(*members: MemberPlacement, changes: tuple[GpuChange, ...] = ()) -> Placement:
    domain, predicted = Domain("fabric", ""), Predicted(0.5, (("node", 2),))
    return Placement(members, domain, predicted, changes, fetch_s=12.0)


def test_everything_that_members_hold_is_told_as_the_schema_says(complaints: Complaints) -> None:
    answer = placement_json(job(), placed(WHOLE, CUT, SHARED, changes=CHANGES))
    assert complaints({"placements": [answer]}, "place") == []
    whole, cut, shared = answer["members"]
    assert (whole["cpus"], whole["memory_GiB"], whole["share"], whole["mig"]) == (
        16.0,
        128.0,
        {},
        [],
    )
    assert whole["numa"] == [{"numa": 0, "cpus": 16.0, "memory_GiB": 128.0, "memory_GBps": 0.0}]
    assert cut["mig"][0] == {"gpu": 3, "profile": "3g.40gb", "start": 4}
    assert shared["share"]["compute"] == 0.5
    assert shared["devices"] == {"fpga": 2}
    assert [change["mode"] for change in answer["changes"]] == [None, False, True]
    assert (answer["fetch_s"], "sizes" in answer) == (12.0, False)


def test_an_elastic_gang_of_another_size_says_so(complaints: Complaints) -> None:
    answer = placement_json(job(a=4), placed(WHOLE, CUT, SHARED))
    assert answer["sizes"] == {"a": 1, "b": 2}
    assert complaints({"placements": [answer]}, "place") == []


def test_people_read_how_many_of_its_members_an_elastic_gang_got() -> None:
    asked = Job("j", (Role("a", 4, Shape(2)),), elastic=Elastic(1, 9))
    written, smaller = replace(asked, roles=(Role("a", 1, Shape(2)),)), placed(WHOLE)
    assert next(placement_lines(asked, smaller, {})) == "j: 1 of 4 members, 2 GPUs on fabric"
    assert next(placement_lines(written, smaller, {})) == "j: 2 GPUs on fabric"


def test_people_read_the_fraction_of_a_second_that_a_cut_takes() -> None:
    made = GpuChange("n0", 1, None, (), (MigPart(1, "1g.10gb", 0),), 0.25)
    lines = list(placement_lines(job(), placed(CUT, changes=(made,)), {}))
    assert "  first, 0.25 s: n0 gpu 1: create 1g.10gb at 0" in lines


def test_people_read_of_amd_gpus_that_their_compute_partitions_change() -> None:
    cpx, dpx = MigPart(1, "cpx", 0), MigPart(1, "dpx", 4)
    changes = (
        GpuChange("n0", 1, True, (), (cpx,), 5.0),
        GpuChange("n1", 1, False, (dpx,), (), 5.0),
    )
    held = MemberPlacement("a", 0, "n0", mig=(cpx,))
    lines = list(placement_lines(job(), placed(held, changes=changes), {}))
    assert lines[:3] == [
        "j: 1 of 3 members, 1 compute partition cpx on fabric",
        "  first, 5s: n0 gpu 1: create cpx at 0",
        "  first, 5s: n1 gpu 1: destroy dpx at 4",
    ]


def test_people_read_what_is_held_and_what_is_done_first() -> None:
    lines = list(
        placement_lines(job(), placed(WHOLE, CUT, SHARED, changes=CHANGES), {("a", 0): "0-1"})
    )
    assert lines == [
        "j: 2 GPUs and 1 MIG instance 3g.40gb and 1 MIG instance 1g.10gb and 1 GPU share on 2 nodes of fabric",
        "  first, 2s: n0 gpu 3: destroy 1g.10gb at 6, create 3g.40gb at 4",
        "  first, 1m15s: n1 gpu 2: destroy 7g.80gb at 0, MIG mode off",
        "  first, 1m15s: n1 gpu 5: MIG mode on, create 7g.80gb at 0",
        "  fetches its data for 12s",
        "  a 0  n0  gpus 0-1  nics mlx5_0  ranks 0-1",
        "  b 0  n0  gpu 3: 3g.40gb at 4  gpu 3: 1g.10gb at 0",
        "  b 1  n1  gpu 2: 0.5 and 20 GiB by mps  fpga x2",
    ]


GPUS = st.integers(0, 7)
AMOUNTS = st.sampled_from([0.0, 0.5, 1.0, 16.0, 1 / 3])
INSTANCES = st.builds(
    MigPart, GPUS, st.sampled_from(["1g.10gb", "3g.40gb", "1g.24gb-me"]), st.integers(0, 7)
)
SHARES = st.builds(
    SharePart, GPUS, AMOUNTS, AMOUNTS, st.sampled_from(["mps", "time-slicing"]), st.booleans()
)
NUMAS = st.builds(NumaPart, st.none() | st.integers(0, 7), AMOUNTS, AMOUNTS, AMOUNTS)
MEMBERS = st.builds(
    MemberPlacement,
    st.sampled_from(["a", "b"]),
    st.integers(0, 99),
    st.sampled_from(["n0", "n1"]),
    st.just(()),
    st.lists(st.sampled_from(["mlx5_0", "mlx5_1"]), unique=True).map(tuple),
    AMOUNTS,
    AMOUNTS,
    st.lists(INSTANCES, max_size=2).map(tuple),
    st.none() | SHARES,
    st.dictionaries(st.sampled_from(["fpga", "dpu"]), st.integers(1, 9)).map(
        lambda d: tuple(d.items())
    ),
    st.lists(NUMAS, max_size=2).map(tuple),
)


@given(st.lists(MEMBERS, min_size=1, max_size=4), st.permutations(range(8)))
def test_what_is_printed_is_read_back_the_same(
    members: list[MemberPlacement], gpus: list[int]
) -> None:
    held = MemberPlacement("w", 0, "n0", tuple(gpus[:3]))
    document = {"placements": [placement_json(job(), placed(held, *members))]}
    assert read_placements(json.dumps(document), "p.json", FABRIC) == {"j": (held, *members)}


@pytest.mark.parametrize(
    ("old", "new", "field", "words"),
    [
        ('"gpu": 3', '"gpu": 8', "mig[0].gpu", "numbers below 8"),
        ('"gpu": 2', '"gpu": 8', "share.gpu", "numbers below 8"),
        ('"mps"', '"mpss"', "share.isolation", "one of time-slicing, mps"),
        ('"profile": "3g.40gb"', '"profile": []', "mig[0].profile", "text"),
        ('"start": 4', '"start": -1', "mig[0].start", "0 or more"),
        ('"fpga": 2', '"fpga": 0', "devices.fpga", "1 or more"),
        ('"numa": 0', '"numa": "x"', "numa[0].numa", "whole number"),
        ('"compute": 0.5', '"compute": "half"', "share.compute", "a number"),
    ],
)  # fmt: skip
def test_what_is_no_placement_here_is_named(old: str, new: str, field: str, words: str) -> None:
    text = json.dumps({"placements": [placement_json(job(), placed(WHOLE, CUT, SHARED))]})
    assert old in text
    with pytest.raises(BadFields) as caught:
        read_placements(text.replace(old, new, 1), "p.json", FABRIC)
    (problem,) = caught.value.problems
    assert problem.field.endswith(field)
    assert words in str(problem)


def test_patches_are_told_as_job_files_have_them(complaints: Complaints) -> None:
    slices = (Slices(4, "leaf", "w", preferred=True), Slices(2, "rack"))
    patches: list[Patch] = [
        (("topology.slices", slices),),
        (("topology.spread", Spread("leaf", 4)),),
        (("topology.spread", Spread("leaf")),),
        (("topology.apart", (Apart("node", ("a", "b-*")),)),),
        (("topology.box", (4, 4, 2)),),
        (("topology.spread", None), ("topology.required", "spine")),
    ]
    refused = Refused(Gate.ROOM, "Waiting.", would_fit_if=tuple(map(Relaxation, patches)))
    answer = refusal_json(refused)
    assert complaints({"placements": [{"job": "j", "placed": False, "why": answer}]}, "place") == []
    assert [each["patch"] for each in answer["would_fit_if"]] == [
        {
            "topology.slices": [
                {"members": 4, "preferred": "leaf", "role": "w"},
                {"members": 2, "required": "rack"},
            ]
        },
        {"topology.spread": {"tier": "leaf", "at_most": 4}},
        {"topology.spread": {"tier": "leaf"}},
        {"topology.apart": [{"tier": "node", "jobs": ["a", "b-*"]}]},
        {"topology.box": "4x4x2"},
        {"topology.spread": None, "topology.required": "spine"},
    ]
    assert [line.removeprefix("fits now with: ") for line in refusal_lines(answer)[1:]] == [
        "topology.slices: 4 of role w per leaf if there is room, 2 per rack",
        "topology.spread: at most 4 per leaf",
        "topology.spread: evenly per leaf",
        "topology.apart: a, b-* not in its node",
        "topology.box: 4x4x2",
        "topology.spread: none, topology.required: spine",
    ]
