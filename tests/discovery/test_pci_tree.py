"""Classes of paths in a PCI tree, drawn as trees, and held against a plain walk up to the common ancestor."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.topology.discovery.machines.devices.pci_ids import (
    gpu_model,
    is_gpu,
    is_nic,
    is_nvswitch,
)
from gantree.topology.discovery.machines.devices.pci_tree import Place, path_class

ALL_PORTS, AS_ONE = 2, 1


def place(drawn: str, numa: int | None = 0) -> Place:
    """ "hostbridge bridge bridge": a place; "-" for a root complex that is not told."""
    root, *bridges = drawn.split()
    return Place(tuple(bridges), None if root == "-" else root, numa)


@pytest.mark.parametrize(
    ("a", "b", "shown", "expected"),
    [
        ("h s", "h s", AS_ONE, "PIX"),
        ("h s t", "h s", AS_ONE, "PXB"),
        ("h s t", "h s u", AS_ONE, "PXB"),
        ("h s", "h t", AS_ONE, "PHB"),
        ("h", "h s", AS_ONE, "PHB"),
        ("h", "h", AS_ONE, "PHB"),
        ("h root up down1", "h root up down2", ALL_PORTS, "PIX"),
        ("h root", "h root", ALL_PORTS, "PIX"),
        ("h root up down1 up2 down3", "h root up down2", ALL_PORTS, "PXB"),
        ("h root1 up down", "h root2 up3 down3", ALL_PORTS, "PHB"),
        ("h s", "i s", AS_ONE, "NODE"),
        ("- s", "- s", AS_ONE, "PIX"),
        ("-", "-", AS_ONE, "NODE"),
    ],
)
def test_the_class_is_told_by_where_the_path_turns(
    a: str, b: str, shown: int, expected: str
) -> None:
    assert path_class(place(a), place(b), shown) == expected
    assert path_class(place(b), place(a), shown) == expected


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [(0, 0, "NODE"), (0, 1, "SYS"), (None, 1, None), (None, None, None)],
)
def test_between_host_bridges_the_numa_nodes_decide(
    a: int | None, b: int | None, expected: str | None
) -> None:
    assert path_class(place("h s", a), place("i s", b), AS_ONE) == expected


BRIDGES = st.lists(st.sampled_from("abc"), max_size=5).map(tuple)


@given(BRIDGES, BRIDGES, st.sampled_from([ALL_PORTS, AS_ONE]))
def test_the_search_by_halves_agrees_with_a_walk_from_the_root(
    a: tuple[str, ...], b: tuple[str, ...], shown: int
) -> None:
    shared = 0
    while shared < min(len(a), len(b)) and a[shared] == b[shared]:
        shared += 1
    further_down = max(len(a), len(b)) - shared
    expected = "PHB" if not shared else "PIX" if further_down < shown else "PXB"
    assert path_class(Place(a, "h"), Place(b, "h"), shown) == expected


@pytest.mark.parametrize(
    ("class_code", "vendor", "gpu", "nic"),
    [
        ("030200", "10de", True, False),
        ("030200", "", True, False),
        ("030000", "10de", True, False),
        ("030000", "1a03", False, False),  # ASPEED: the server's management chip
        ("030000", "102b", False, False),  # Matrox: the same
        ("0300", "", True, False),
        ("03", "", True, False),
        ("038000", "1002", True, False),
        ("120000", "1002", True, False),
        ("020000", "15b3", False, True),
        ("020700", "", False, True),
        ("02", "", False, True),
        ("060400", "1000", False, False),
        ("068000", "10de", False, False),
        ("010802", "144d", False, False),
        ("", "10de", False, False),
    ],
)
def test_classes_tell_gpus_and_nics(class_code: str, vendor: str, gpu: bool, nic: bool) -> None:
    assert is_gpu(class_code, vendor) is gpu
    assert is_nic(class_code) is nic


def test_an_nvswitch_is_told_from_the_bridge_to_a_power_cpu() -> None:
    assert [is_nvswitch(code) for code in ("068000", "0680", "068001", "060400")] == [
        True,
        True,
        False,
        False,
    ]


def test_a_model_is_named_only_where_the_ids_settle_it() -> None:
    assert gpu_model("10de", "20b5") == "A100-80GB"
    assert gpu_model("1002", "74a1") == "MI300X-192GB"
    assert gpu_model("1002", "740c") is None  # MI250 and MI250X
    assert gpu_model("10de", "74a1") is None
