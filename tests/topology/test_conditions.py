"""Health and load: apart, beside the fabric, and what a broken node means for placement."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from gantree.cli.main import app
from gantree.model.cluster import Cluster, DomainFacts, Machine, Nic, NicFacts, Node
from gantree.model.errors import BadInput
from gantree.topology.fabric.conditions import Conditions, sound_nodes
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy

NICS = (Nic("a", (0,), 0), Nic("b", (1,), 1))


def site(*domains: DomainFacts, nics: tuple[NicFacts, ...] = ()) -> Fabric:
    machines = {"m": Machine("m", 2, nics=NICS), "bare": Machine("bare", 2)}
    nodes = (Node("n0", "m", ("l0",)), Node("n1", "m", ("l0",)), Node("n2", "bare", ("l1",)))
    cluster = Cluster("c", ("leaf", "node"), machines, nodes, domains=domains, nics=nics)
    return Fabric.build(cluster)


def test_what_the_cluster_says_is_where_it_belongs_and_all_else_is_whole_and_idle() -> None:
    conditions = Conditions(
        site(
            DomainFacts("leaf", "l1", health=0.5, load=0.25),
            DomainFacts("node", "n1", health=0.75),
            nics=(NicFacts("n1", "b", 0.5, 0.5),),
        )
    )
    assert [health.tolist() for health in conditions.health_of_domain] == [
        [1],
        [1, 0.5],
        [1, 0.75, 1],
    ]
    assert [load.tolist() for load in conditions.load_of_domain] == [[0], [0, 0.25], [0, 0, 0]]
    assert conditions.health_of_nic.tolist() == [[1, 1], [1, 0.5], [1, 1]]
    assert conditions.load_of_nic.tolist() == [[0, 0], [0, 0.5], [0, 0]]


@given(st.floats(0, 1), st.floats(0, 1))
def test_new_traffic_finds_health_times_what_load_leaves(health: float, load: float) -> None:
    conditions = Conditions(site())
    conditions.set_domain(1, 1, health, load)
    conditions.set_nic("n0", "b", health, load)
    assert conditions.residual(1, 1) == pytest.approx(health * (1 - load))
    assert conditions.residual_of_domain(1).tolist() == [1, conditions.residual(1, 1)]
    assert conditions.residual_of_nic("n0", "b") == pytest.approx(health * (1 - load))
    assert conditions.residual_of_nic("n0", "a") == 1


def test_health_and_load_change_apart() -> None:
    conditions = Conditions(site())
    before = conditions.version
    conditions.set_domain(1, 0, load=0.5)
    conditions.set_domain(1, 0, health=0.5)
    conditions.set_nic("n0", "a", load=1)
    assert (conditions.health_of_domain[1][0], conditions.load_of_domain[1][0]) == (0.5, 0.5)
    assert (conditions.health_of_nic[0, 0], conditions.load_of_nic[0, 0]) == (1, 1)
    assert conditions.version == before + 3


def test_a_copy_lives_on_its_own() -> None:
    conditions = Conditions(site())
    twin = conditions.copy()
    twin.set_domain(1, 0, health=0)
    twin.set_nic("n0", "a", load=1)
    assert conditions.residual(1, 0) == conditions.residual_of_nic("n0", "a") == 1
    assert twin.residual(1, 0) == twin.residual_of_nic("n0", "a") == 0


@pytest.mark.parametrize(
    ("domains", "nics", "words"),
    [
        (
            (DomainFacts("leaf", "l0", health=1.5),),
            (),
            "leaf l0: health 1.5 is not between 0 and 1",
        ),
        ((DomainFacts("leaf", "l0", load=float("nan")),), (), "load nan"),
        ((), (NicFacts("n0", "a", load=-1),), "NIC a of n0: load -1"),
        ((), (NicFacts("n0", "c"),), "no NIC 'c', only a, b"),
        ((), (NicFacts("n2", "a"),), "only none"),
        ((), (NicFacts("n9", "a"),), "no node 'n9'"),
    ],
)
def test_facts_that_cannot_be_are_bad_input(
    domains: tuple[DomainFacts, ...], nics: tuple[NicFacts, ...], words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        Conditions(site(*domains, nics=nics))


def test_a_node_of_health_0_takes_no_work_but_counts_in_an_empty_healthy_fabric() -> None:
    fabric = site(
        DomainFacts("node", "n1", health=0),
        DomainFacts("node", "n0", health=0.01),
        DomainFacts("leaf", "l1", health=0),
    )
    np.testing.assert_array_equal(sound_nodes(fabric), [True, False, True])
    for occupancy in (Occupancy(fabric), Occupancy(fabric, empty=True), Occupancy(fabric).copy()):
        assert [occupancy.usable(name) for name in ("n0", "n1", "n2")] == [True, False, True]
        occupancy.check()
    assert Occupancy(fabric).emptied().usable_node.all()


CLUSTER = """\
name: c
tiers: [leaf, node]
machines: {m: {gpus: 4}}
nodes: [{names: "n[0-1]", machine: m, at: {leaf: l0}}]
domains: [{tier: node, name: n0, health: 0}]
"""
JOB = "name: j\ngang: [{role: w, members: 1, each: {gpus: 4}, run: [x]}]\n"


def test_place_passes_a_broken_node_by_and_the_picture_says_so(tmp_path: Path) -> None:
    cluster, job = tmp_path / "c.yaml", tmp_path / "j.yaml"
    cluster.write_text(CLUSTER, encoding="utf-8")
    job.write_text(JOB, encoding="utf-8")
    done = CliRunner().invoke(app, ["place", str(cluster), str(job), str(job), "--json"])
    first, second = json.loads(done.stdout)["placements"]
    assert [member["node"] for member in first["members"]] == ["n1"]
    assert (second["placed"], second["why"]["gate"], second["why"]["never"]) == (
        False,
        "ROOM",
        False,
    )
    shown = CliRunner().invoke(app, ["topo", "show", str(cluster)])
    assert "out of use" in shown.stdout
