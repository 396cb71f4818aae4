"""What MIG configs make of nodes, with those that NVIDIA ships, and which nodes change for a gang."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.executors.kubernetes.apiserver.objects import Metadata, Node, NodeStatus
from gantree.executors.kubernetes.nodes.mig_layouts import (
    Partitionable,
    least_change,
    offer_of,
    offers,
    offers_any,
    partitionable,
    with_offer,
)
from gantree.formats.mig_configs import read_mig_configs
from gantree.model.mig_configs import MigConfig, MigLayout
from gantree.topology.hardware.mig import TABLES

DEFAULTS = Path(__file__).parents[4] / "shared/data/topology/mig/mig-parted-config-default.yaml"
needs_data = pytest.mark.skipif(not DEFAULTS.exists(), reason="shared data is not here")
LABELS = {
    "nvidia.com/mig.capable": "true",
    "nvidia.com/mig.strategy": "mixed",
    "nvidia.com/gpu.count": "2",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.memory": "81559",
}
SMALL = MigConfig("small", (MigLayout(None, True, (("1g.10gb", 7),)),))
OFF = (MigLayout(None, on=False),)
MIXED = MigConfig("mixed", (MigLayout((0,), on=False), MigLayout((1,), True, (("1g.10gb", 7),))))


def node(**labels: str) -> Node:
    told = {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()}
    amounts: dict[str, str | float] = {"cpu": "96", "nvidia.com/gpu": "2"}
    return Node(Metadata("n", labels=LABELS | told), status=NodeStatus(amounts, amounts))


def short(offer: Mapping[str, int] | None) -> dict[str, int] | None:
    """An offer without the vendor in its names."""
    return (
        None
        if offer is None
        else {name.removeprefix("nvidia.com/"): number for name, number in offer.items()}
    )


@needs_data
@pytest.mark.parametrize(
    ("config", "model", "offer"),
    [
        ("all-disabled", "H100-80GB", {"gpu": 8}),
        ("all-1g.10gb", "H100-80GB", {"mig-1g.10gb": 56}),
        ("all-1g.10gb", "A100-40GB", {"mig-1g.10gb": 32}),
        ("all-1g.10gb", "A30-24GB", None),
        ("all-1g.10gb.me", "H100-80GB", {"mig-1g.10gb.me": 8}),
        ("all-balanced", "A100-40GB", {"mig-1g.5gb": 16, "mig-2g.10gb": 8, "mig-3g.20gb": 8}),
        ("all-balanced", "H200-141GB", {"mig-1g.18gb": 16, "mig-2g.35gb": 8, "mig-3g.71gb": 8}),
        ("all-1g.5gb", "H100-80GB", None),
    ],
)  # fmt: skip
def test_each_gpu_model_gets_its_own_of_the_configs_that_nvidia_ships(
    config: str, model: str, offer: dict[str, int] | None
) -> None:
    configs = {each.name: each for each in read_mig_configs(DEFAULTS.read_text(), "defaults.yaml")}
    assert short(offer_of(configs[config], 8, TABLES[model])) == offer


@pytest.mark.parametrize(
    ("layouts", "offer"),
    [
        (MIXED.layouts, {"gpu": 1, "mig-1g.10gb": 7}),
        ((*OFF, MigLayout((1,), True, (("7g.80gb", 1),))), {"gpu": 1, "mig-7g.80gb": 1}),
        ((MigLayout((0,), on=False),), None),
        ((MigLayout((0, 1, 2), on=False),), None),
        ((MigLayout(None, True, (("1g.10gb", 8),)),), None),
        ((MigLayout(None, True, (("3g.40gb", 1), ("4g.40gb", 1), ("1g.10gb", 1))),), None),
        ((MigLayout(None, True, (("1c.3g.40gb", 1),)),), None),
        ((MigLayout(None, True),), {}),
    ],
)  # fmt: skip
def test_layouts_by_gpu_are_added_up_and_those_that_cannot_be_are_no_offer(
    layouts: tuple[MigLayout, ...], offer: dict[str, int] | None
) -> None:
    assert short(offer_of(MigConfig("c", layouts), 2, TABLES["H100-80GB"])) == offer


@pytest.mark.parametrize(
    "labels",
    [
        {"nvidia_com__mig_strategy": "single"},
        {"nvidia_com__mig_capable": "false"},
        {"nvidia_com__gpu_count": "two"},
        {"nvidia_com__mig_config_state": "pending"},
        {"nvidia_com__mig_config_state": "failed"},
    ],
)
def test_nodes_that_the_manager_cannot_change_now_are_left_out(labels: dict[str, str]) -> None:
    assert partitionable(node(**labels), (SMALL,)) is None
    assert partitionable(node(), (SMALL,)) is not None


def test_the_present_config_is_no_change_and_a_node_offers_what_it_is_given() -> None:
    found = partitionable(node(nvidia_com__mig_config="small"), (SMALL, MIXED))
    assert found is not None
    assert found.offers.keys() == {"mixed"}
    changed = found.with_config("mixed")
    assert changed.status.allocatable == {
        "cpu": "96", "nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "7",
    }  # fmt: skip
    assert offers(changed, found.offers["mixed"])
    assert not offers(with_offer(changed, {"nvidia.com/gpu": 2}), found.offers["mixed"])


OFFERS = {"mixed": {"a": 1, "b": 7}, "off": {"a": 2}, "small": {"b": 14}, "again": {"b": 14}}


@pytest.mark.parametrize(
    ("needed", "found"),
    [
        (1, (1, "small")),
        (14, (1, "small")),
        (15, (2, "small")),
        (42, (3, "small")),
        (43, None),
    ],
)
def test_the_least_change_is_few_nodes_then_little_that_nobody_asked_for(
    needed: int, found: tuple[int, str] | None
) -> None:
    nodes = [Partitionable(node(), OFFERS)] * 3

    def fits(chosen: Sequence[Partitionable], config: str) -> bool:
        return sum(each.offers[config].get("b", 0) for each in chosen) >= needed

    change = least_change(nodes, list(OFFERS), frozenset({"b"}), fits)
    assert (None if change is None else (len(change[0]), change[1])) == found


@given(st.integers(1, 50), st.integers(1, 60))
def test_the_fewest_nodes_are_found_in_few_questions(there: int, needed: int) -> None:
    nodes, asked = [Partitionable(node(), {"c": {"b": 1}})] * there, list[int]()

    def fits(chosen: Sequence[Partitionable], _: str) -> bool:
        asked.append(len(chosen))
        return len(chosen) >= needed

    change = least_change(nodes, ["c"], frozenset({"b"}), fits)
    assert (change and len(change[0])) == (needed if needed <= there else None)
    assert len(asked) <= 1 + there.bit_length()


def test_a_node_offers_any_of_what_it_has_of_it() -> None:
    assert offers_any(node(), frozenset({"nvidia.com/gpu", "nvidia.com/mig-1g.10gb"}))
    assert not offers_any(node(), frozenset({"nvidia.com/mig-1g.10gb"}))
    assert not offers_any(with_offer(node(), {"nvidia.com/gpu": 0}), frozenset({"nvidia.com/gpu"}))
