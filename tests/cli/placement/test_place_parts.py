"""`gantree place` from files: parts of GPUs, devices, NUMA nodes, spread and apart, boxes, data, spares, ranks."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gantree.cli.placement.document import read_placements
from gantree.formats import read_cluster, read_job, read_policy
from gantree.formats.policy.reader import PRESETS
from gantree.model.jobs import Shape
from gantree.model.placements import Domain, Placement, Predicted
from gantree.placement.request.placement_preferences import (
    DEFAULT_PREFERENCES,
    PlacementPreferences,
    TypicalMember,
)
from gantree.planning.policy_preferences import placement_preferences_of
from gantree.testing.placement_checker import problems_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy

Gantree = Callable[..., Any]
Complaints = Callable[[Any, str], list[str]]
Place = Callable[..., list[Any]]

PARTS = """\
name: parts
tiers: [leaf, node]
machines:
  a100-4:
    {gpus: 4, gpu: A100-80GB, numa: [0, 0, 1, 1], cpus: 64, memory_GiB: 512, devices: {fpga: 2}, numa_memory_GBps: 190}
  cpu: {gpus: 0, cpus: 16, memory_GiB: 64}
nodes:
  - {names: "p[0-1]", machine: a100-4, at: {leaf: l0}, share: none, mig: {by: nobody}}
  - names: c0
    machine: a100-4
    at: {leaf: l0}
    share: none
    mig: {gpus: [0, 1], instances: [{gpu: 0, profile: 3g.40gb, start: 4}, {gpu: 1, profile: 1g.10gb, start: 0}]}
  - {names: "s[0-1]", machine: a100-4, at: {leaf: l1}, share: {modes: [mps], tenants: 2}, mig: {by: nobody}}
  - {names: "e[0-3]", machine: cpu, at: {leaf: l1}}
allocations:
  - {job: chat-1, node: e0, cpus: 1}
  - {job: other, node: s0, shares: [{gpu: 0, compute: 0.75, memory_GiB: 60, isolation: mps}]}
data:
  - {name: imagenet, at: p1}
"""


def job_text(each: dict[str, Any], members: int = 1, **more: Any) -> str:
    role = {"role": "r", "members": members, "each": each, "processes": more.pop("processes", 1)}
    role |= {field: more.pop(field) for field in ("gpu", "node_labels") if field in more}
    return json.dumps({"name": "j", "gang": [role], **more})


@pytest.fixture
def place(gantree: Gantree, complaints: Complaints, tmp_path: Path) -> Place:
    """Place jobs one after the other, judge each place, take it, and return what was printed of each."""

    def run(cluster: str, *jobs: str, options: tuple[object, ...] = ()) -> list[Any]:
        (tmp_path / "c.yaml").write_text(cluster)
        files = [tmp_path / f"j{number}.yaml" for number in range(len(jobs))]
        for file, text in zip(files, jobs, strict=True):
            file.write_text(text)
        outcome = gantree("place", tmp_path / "c.yaml", *files, "--json", *options)
        assert outcome.code in {0, 3}, outcome.err
        assert complaints(outcome.json(), "place") == []
        answers: list[Any] = outcome.json()["placements"]
        _judge(cluster, jobs, answers)
        return answers

    return run


def _judge(cluster: str, jobs: tuple[str, ...], answers: list[Any]) -> None:
    fabric = Fabric.build(read_cluster(cluster, "c.yaml"))
    occupancy = Occupancy(fabric)
    for number, (text, answer) in enumerate(zip(jobs, answers, strict=True)):
        if answer["placed"]:
            (members,) = read_placements(json.dumps(answer), "p.json", fabric).values()
            domain = Domain(answer["domain"]["tier"], answer["domain"]["name"])
            placement = Placement(members, domain, Predicted(0.0, ()))
            assert problems_of(occupancy, read_job(text, "j.yaml")[0], placement) == []
            occupancy.take(str(number), members)
    occupancy.check()


def nodes_of(answer: Any) -> list[str]:
    assert answer["placed"], answer["why"]["sentence"]
    return [member["node"] for member in answer["members"]]


def test_shares_go_where_nodes_are_shared_and_never_beyond_what_is_left(place: Place) -> None:
    half = job_text(
        {"gpu_share": 0.5, "gpu_memory_GiB": 20, "isolation": "mps"}, 14, communicates=False
    )
    one = job_text({"gpu_share": 0.5}, communicates=False)
    many, more, last = place(PARTS, half, one, one)
    assert set(nodes_of(many)) == {"s0", "s1"}
    assert {member["share"]["isolation"] for member in many["members"]} == {"mps"}
    assert (more["placed"], last["placed"]) == (False, False)


def test_a_share_that_a_node_does_not_offer_is_refused(place: Place) -> None:
    (answer,) = place(PARTS, job_text({"gpu_share": 0.5, "isolation": "time-slicing"}))
    assert (answer["placed"], answer["why"]["never"]) == (False, True)


def test_an_idle_instance_is_taken_as_it_is_and_others_are_made_first(place: Place) -> None:
    there, made = place(PARTS, job_text({"mig": "3g.40gb"}), job_text({"mig": "4g.40gb"}))
    assert there["members"][0]["mig"] == [{"gpu": 0, "profile": "3g.40gb", "start": 4}]
    assert there["changes"] == []
    (part,) = made["members"][0]["mig"]
    assert (part["profile"], part["start"], nodes_of(made)) == ("4g.40gb", 0, ["c0"])
    assert [change["create"] for change in made["changes"]] == [[part]]
    assert made["changes"][0]["seconds"] > 0


def test_ranks_that_talk_to_each_other_never_share_a_gpu(place: Place) -> None:
    apart, refused = place(PARTS, job_text({"mig": "1g.10gb"}, 4), job_text({"mig": "1g.10gb"}, 9))
    assert len({part["gpu"] for member in apart["members"] for part in member["mig"]}) == 4
    assert refused["placed"] is False


def test_devices_are_counted(place: Place) -> None:
    five = [job_text({"cpus": 1, "devices": {"fpga": 2}})] * 6
    answers = place(PARTS, *five)
    assert [answer["placed"] for answer in answers] == [True] * 5 + [False]
    assert answers[0]["members"][0]["devices"] == {"fpga": 2}


def test_memory_bandwidth_is_held_on_numa_nodes(place: Place) -> None:
    job = job_text({"gpus": 2, "cpus": 8, "memory_GiB": 32, "memory_GBps": 100})
    answers = place(PARTS, *[job] * 3)
    for answer in answers:
        (member,) = answer["members"]
        assert sum(part["memory_GBps"] for part in member["numa"]) == 100
        assert sum(part["cpus"] for part in member["numa"]) == 8
    (never,) = place(PARTS, job_text({"gpus": 1, "memory_GBps": 1000}))
    assert (never["placed"], never["why"]["never"]) == (False, True)


def test_members_are_spread_and_kept_apart(place: Place) -> None:
    spread = job_text({"cpus": 1}, 8, topology={"spread": {"tier": "node", "at_most": 1}})
    (answer,) = place(PARTS, spread)
    assert len(set(nodes_of(answer))) == 8
    apart = {"topology": {"apart": {"tier": "leaf", "jobs": "chat-*"}}}
    (answer,) = place(PARTS, job_text({"cpus": 1}, 8, **apart))
    assert set(nodes_of(answer)) <= {"p0", "p1", "c0"}
    (refused,) = place(
        PARTS, job_text({"gpus": 4}, 4, topology={"required": "leaf", **apart["topology"]})
    )
    assert refused["placed"] is False


def test_preferred_slices_are_kept_where_there_is_room_and_let_go_elsewhere(place: Place) -> None:
    kept = {"topology": {"slices": {"members": 2, "preferred": "node"}}}
    (two,) = place(PARTS, job_text({"gpus": 2}, 4, **kept))
    nodes = nodes_of(two)
    assert nodes[0] == nodes[1]
    assert nodes[2] == nodes[3]
    (six,) = place(PARTS, job_text({"gpus": 4}, 4, **kept))
    assert len(set(nodes_of(six))) == 4


TORUS = """\
name: pod
tiers: [leaf, node]
nodes:
  - {names: "t[0-15]", machine: tpu-v4-host, at: {leaf: l0}}
tori:
  - {name: cube, dims: [4, 4, 4], host: [2, 2, 1], nodes: "t[0-15]"}
"""


def test_a_box_of_a_torus_is_placed_whole(place: Place) -> None:
    box, rest, none_left = place(
        TORUS,
        job_text({"gpus": 4}, 8, topology={"box": "2x4x4"}),
        job_text({"gpus": 4}, 8, topology={"box": "any"}),
        job_text({"gpus": 4}, 1, topology={"box": "2x2x1"}),
    )
    assert len(set(nodes_of(box))) == len(set(nodes_of(rest))) == 8
    assert not set(nodes_of(box)) & set(nodes_of(rest))
    assert none_left["placed"] is False


def test_a_box_that_a_refusal_offers_fits_as_it_is_written(place: Place) -> None:
    (refused,) = place(TORUS, job_text({"gpus": 4}, 8, topology={"box": "4x4x2"}))
    patches = [relaxation["patch"] for relaxation in refused["why"]["would_fit_if"]]
    assert any("topology.box" in patch for patch in patches)
    for patch in patches:
        box = patch.get("topology.box", "4x4x2")
        topology = {} if box is None else {"topology": {"box": box}}
        members = patch.get("members", 8)
        (eased,) = place(TORUS, job_text({"gpus": 4}, members, **topology))
        assert len(nodes_of(eased)) == members


def test_data_draws_a_job_to_where_it_lies(place: Place) -> None:
    near, far = place(
        PARTS,
        job_text({"gpus": 4}, data={"name": "imagenet", "GiB": 5000}),
        job_text({"gpus": 4}, data={"name": "imagenet", "GiB": 5000}),
    )
    assert (nodes_of(near), near["fetch_s"]) == (["p1"], 0.0)
    assert far["fetch_s"] > 0


def test_spare_nodes_are_held_back(place: Place) -> None:
    eight = job_text({"gpus": 4}, 1)
    without = place(PARTS, *[eight] * 5)
    held_back = place(PARTS + "spares: {leaf: 1}\n", *[eight] * 5)
    assert sum(answer["placed"] for answer in held_back) < sum(each["placed"] for each in without)


def test_ranks_are_told_where_they_are_asked_for(
    place: Place, gantree: Gantree, tmp_path: Path
) -> None:
    job = job_text({"gpus": 4}, 2, processes=4, parallelism={"tensor": 4, "data": 2})
    (answer,) = place(PARTS, job, options=("--ranks",))
    placed_ranks = answer["ranks"]["ranks"]
    assert [placed["rank"] for placed in placed_ranks] == list(range(8))
    held = {member["node"]: set(member["gpus"]) for member in answer["members"]}
    assert {
        node: {gpu for placed in placed_ranks if placed["node"] == node for gpu in placed["gpus"]}
        for node in held
    } == held
    lines = gantree("place", tmp_path / "c.yaml", tmp_path / "j0.yaml", "--ranks").out.splitlines()
    assert [line.rpartition("  ")[2] for line in lines[1:]] == ["ranks 0-3", "ranks 4-7"]
    assert "ranks" not in place(PARTS, job)[0]


def test_what_a_policy_prefers_of_places_reaches_the_search() -> None:
    text = "fragmentation_weight: 3\ndemand: [{each: {gpus: 1}, weight: 6}]\n"
    policy = replace(read_policy(text, "p.yaml"), exact_s=2.0)
    assert placement_preferences_of(policy) == PlacementPreferences(
        3.0, (TypicalMember(Shape(1), 6.0),), 2.0
    )
    assert all(
        placement_preferences_of(preset) == DEFAULT_PREFERENCES
        for preset in PRESETS.values()
        if preset.placement == "topology"
    )


AMD = """\
name: amd
tiers: [node]
machines:
  mi300x-8: {gpus: 8, gpu: MI300X-192GB, cpus: 192, memory_GiB: 2048}
nodes:
  - {names: a0, machine: mi300x-8, mig: {instances: [{gpu: 2, profile: cpx, start: 0}]}}
  - names: a1
    machine: mi300x-8
    labels: {memory: nps4}
    mig: {by: nobody, instances: [{gpu: 0, profile: cpx, start: 0}]}
allocations:
  - {job: old, node: a0, mig: [{gpu: 2, profile: cpx, start: 5}]}
"""


def test_a_compute_partition_is_asked_for_as_amd_writes_it(place: Place) -> None:
    five = job_text({"compute_partition": "CPX"}, 5, gpu="MI300X-192GB", communicates=False)
    local = job_text(
        {"compute_partition": "cpx"}, 8, communicates=False, node_labels={"memory": "nps4"}
    )
    more = job_text(
        {"compute_partition": "qpx"}, communicates=False, node_labels={"memory": "nps4"}
    )
    first, eight, refused = place(AMD, five, local, more)
    parts = [part for member in first["members"] for part in member["mig"]]
    assert {(part["gpu"], part["profile"]) for part in parts} == {(2, "cpx")}
    assert 5 not in {part["start"] for part in parts} and first["changes"] == []
    assert set(nodes_of(eight)) == {"a1"}
    assert (refused["placed"], refused["why"]["never"]) == (False, True)


@pytest.mark.parametrize(
    ("each", "gpu", "words"),
    [
        ({"compute_partition": "spx"}, None, "A GPU in spx is whole: gpus: 1"),
        ({"compute_partition": "8"}, None, "one of dpx, tpx, qpx, cpx"),
        ({"compute_partition": "cpx", "gpus": 1}, None, "compute_partition together with gpus"),
        ({"compute_partition": "tpx"}, "MI300X-192GB", "a profile of MI300X-192GB (cpx, qpx, dpx)"),
        ({"compute_partition": "cpx"}, "V100-32GB", "a GPU with compute partitions"),
    ],
)
def test_a_compute_partition_that_there_is_not_is_an_error_with_the_way_out(
    gantree: Gantree, tmp_path: Path, each: dict[str, Any], gpu: str | None, words: str
) -> None:
    (tmp_path / "c.yaml").write_text(AMD)
    (tmp_path / "j.yaml").write_text(job_text(each, gpu=gpu or []))
    outcome = gantree("place", tmp_path / "c.yaml", tmp_path / "j.yaml", "--json")
    assert outcome.code == 2 and words in outcome.err and "j.yaml:1" in outcome.err
