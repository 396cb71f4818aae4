"""What a refusal offers, applied to the job file as it is written."""

from dataclasses import replace
from typing import Any

import pytest
import yaml

from gantree.formats import read_job
from gantree.formats.refusals import refusal_json
from gantree.model.errors import BadInput
from gantree.model.jobs import Elastic, Slices, TopologySpec
from gantree.model.placements import Placement
from gantree.model.verdicts import Refused
from gantree.placement.choice.search import place
from gantree.placement.request.relaxations import fewer_members, relaxed
from gantree.testing.builders import job
from gantree.testing.pictures import drawn
from support.yaml_text import read_yaml

PICTURE = """s0/l0: n0 aaaaaa.. n1 aaaaaaa.
             s0/l1: n2 aaaaaaa. n3 aaaaaaaa
             s1/l2: n4 aaaaaaa. n5 aaaaaaa."""
"""Free GPUs: leaf l0 has 3, l1 has 1, l2 has 2; spine s0 has 4, s1 has 2."""

ONE_ROLE = "{role: worker, members: %d, each: {gpus: 1}}"
JOBS = {
    "slices in a leaf that spines could hold": (
        "{name: j, gang: ["
        + ONE_ROLE % 4
        + "], topology: {slices: [{members: 4, required: leaf}]}}",
        [
            {"topology.slices": [{"members": 4, "required": "spine"}]},
        ],
    ),
    "a single mapping of slices, of a role": (
        "{name: j, gang: ["
        + ONE_ROLE % 6
        + "], topology: {slices: {members: 2, required: node, role: worker}}}",
        [
            {"topology.slices": [{"members": 2, "required": "spine", "role": "worker"}]},
            {"members": 2},
        ],
    ),
    "slices that no tier holds": (
        "{name: j, gang: ["
        + ONE_ROLE % 6
        + "], topology: {slices: [{members: 6, required: leaf}]}}",
        [{"topology.slices": None}],
    ),
    "two layers, both wider": (
        "{name: j, gang: ["
        + ONE_ROLE % 4
        + "], topology: {slices: [{members: 4, required: leaf}, {members: 2, required: leaf}]}}",
        [
            {
                "topology.slices": [
                    {"members": 4, "required": "spine"},
                    {"members": 2, "required": "spine"},
                ]
            },
        ],
    ),
    "a tier": (
        "{name: j, gang: [" + ONE_ROLE % 4 + "], topology: {required: leaf}}",
        [{"topology.required": "spine"}, {"members": 3}],
    ),
    "no tier": (
        "{name: j, gang: [" + ONE_ROLE % 6 + "], topology: {required: spine}}",
        [{"topology.required": None}, {"members": 4}],
    ),
    "neither tier nor slices": (
        "{name: j, gang: ["
        + ONE_ROLE % 6
        + "], topology: {required: leaf, slices: [{members: 3, required: node}]}}",
        [{"topology.required": None, "topology.slices": None}],
    ),
    "one of several roles": (
        "{name: j, gang: [{role: a, members: 2, each: {gpus: 1}}, {role: b, members: 4, each: {gpus: 1}}],"
        " topology: {slices: [{members: 4, required: node, role: b}]}}",
        [{"topology.slices": [{"members": 4, "required": "spine", "role": "b"}]}],
    ),
}


@pytest.mark.parametrize("name", JOBS)
def test_every_patch_that_is_offered_fits_when_written_into_the_job_file(name: str) -> None:
    text, patches = JOBS[name]
    answer = placed(text)
    assert isinstance(answer, Refused)
    offered = [each["patch"] for each in refusal_json(answer)["would_fit_if"]]
    assert offered == patches
    for patch in offered:
        assert isinstance(placed(yaml.safe_dump(patched(read_yaml(text), patch))), Placement)


def placed(text: str) -> Placement | Refused:
    (wanted,) = read_job(text, "job.yaml")
    return place(drawn(PICTURE), wanted)


def patched(document: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Set the dotted fields; members are those of the only role."""
    for path, value in patch.items():
        at = document["gang"][0] if path == "members" else document
        *outer, last = path.split(".")
        for field in outer:
            at = at[field]
        at[last] = value
    return document


def test_fewer_members_are_whole_slices_of_every_size() -> None:
    slices = (Slices(2, "leaf"), Slices(3, "spine"))
    wanted = replace(job("j", 18), topology=TopologySpec(slices=slices))
    assert tuple(fewer_members(wanted)) == (6, 12)
    assert tuple(fewer_members(replace(wanted, elastic=Elastic(7, 18)))) == (12,)


@pytest.mark.parametrize(
    "patch",
    [
        {"topology.required": 3},
        {"topology.slices": "spine"},
        {"members": None},
        {"members": 0},
        {"queue": "default"},
    ],
)
def test_what_is_no_patch_is_bad_input(patch: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="cannot apply"):
        relaxed(job("j", 2), patch)
