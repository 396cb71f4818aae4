"""Which ranks are timed together: a pair for each kind of path, a set for each tier, and all."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.telemetry.measuring.plan import (
    Together,
    all_groups,
    gpu_sets,
    processes_of_host,
)
from gantree.topology.hardware.catalog import machine


def told(sets: tuple[Together, ...]) -> list[str]:
    return [f"{each.within} {','.join(map(str, each.ranks))}" for each in sets]


@pytest.mark.parametrize(
    ("model", "gpus", "sets"),
    [
        ("dgx-h100", range(8), ["NV18 0,1", "NV18 0,1,2,3,4,5,6,7"]),
        ("dgx-h100", (3,), []),
        ("dgx-h100", (3, 5), ["NV18 3,5"]),
        ("a6000-pairs-8", range(8), ["NV4 0,1", "NODE 0,2", "SYS 0,4", "SYS 0,1,2,3,4,5,6,7"]),
        ("a6000-pairs-8", range(4), ["NV4 0,1", "NODE 0,2", "NODE 0,1,2,3"]),
        ("dgx-1-v100", range(8), ["NV2 0,3", "NV1 0,1", "SYS 0,5", "NV2 0,1,2,3,4,5,6,7"]),
        ("t4-4", range(4), ["NODE 1,2", "SYS 0,1", "SYS 0,1,2,3"]),
    ],
)
def test_each_link_class_gets_a_pair_and_the_machine_what_joins_it(
    model: str, gpus: tuple[int, ...], sets: list[str]
) -> None:
    assert told(gpu_sets(machine(model).links, tuple(gpus))) == sets


def test_paths_of_unknown_class_are_called_so() -> None:
    assert told(gpu_sets((), range(3))) == ["unknown 0,1", "unknown 0,1,2"]
    links = (("X", "NV4", ""), ("NV4", "X", ""), ("", "", "X"))
    assert told(gpu_sets(links, range(3))) == ["NV4 0,1", "unknown 0,2", "unknown 0,1,2"]


@pytest.mark.parametrize(
    ("count", "sets"), [(1, []), (2, ["host 0,1"]), (4, ["host 0,1", "host 0,1,2,3"])]
)
def test_processes_of_a_host_are_timed_in_pairs_and_all_together(
    count: int, sets: list[str]
) -> None:
    assert told(processes_of_host(count)) == sets


PLACES = {
    "a0": ("s0", "l0"),
    "a1": ("s0", "l0"),
    "b0": ("s0", "l1"),
    "c0": ("s1", "l2"),
    "c1": ("s1", "l2"),
}
TIERS = ("spine", "leaf", "node")


@pytest.mark.parametrize(
    ("nodes", "groups"),
    [
        ("a0 a1 b0 c0 c1", ["node 0,1", "leaf 0,2", "spine 0,3", "spine 0,1,2,3,4"]),
        ("c1 b0 a1 a0", ["node 2,3", "leaf 1,2", "spine 0,1", "spine 0,1,2,3"]),
        ("a0 a1", ["node 0,1"]),
        ("a0 c0", ["spine 0,1"]),
        ("a0 a0 a1 a1", ["NV18 0,1", "node 0,2", "node 0,1,2,3"]),
        ("a0 a1 a0 a1", ["NV18 0,2", "node 0,1", "node 0,1,2,3"]),
        ("a0 a0", ["NV18 0,1"]),
        ("a0 x0", ["spine 0,1"]),
        ("x0 x1", ["spine 0,1"]),
    ],
)  # fmt: skip
def test_each_tier_that_is_crossed_gets_one_rank_in_each_of_its_domains(
    nodes: str, groups: list[str]
) -> None:
    names = nodes.split()
    inside = (Together("NV18", (0, 1)),) if len(set(names)) < len(names) else ()
    assert told(all_groups(names, inside, TIERS, PLACES)) == groups


def test_without_a_cluster_nodes_are_all_that_is_crossed() -> None:
    assert told(all_groups(["n0", "n1", "n2"], ())) == ["node 0,1,2"]


@given(st.lists(st.sampled_from([*PLACES, "x"]), min_size=1, max_size=12))
def test_every_group_is_of_different_ranks_and_crosses_what_it_is_named_after(
    names: list[str],
) -> None:
    for group in all_groups(names, (), TIERS, PLACES):
        assert len(set(group.ranks)) == len(group.ranks) > 1
        tier = TIERS.index(group.within)
        paths = [
            (*PLACES.get(names[rank], (names[rank],) * 2), names[rank]) for rank in group.ranks
        ]
        apart = [a for a, b in combinations(paths, 2) if a[: tier + 1] != b[: tier + 1]]
        assert apart
        assert len({path[:tier] for path in paths}) == 1
