"""Which rail the NICs of a machine model are on: nodes vote, odd ones are named, and other names are not guessed."""

import pytest

from gantree.model.cluster import Machine, Nic
from gantree.topology.discovery.fabrics import SeenNic, SeenNode
from gantree.topology.discovery.machine_rails import Railed, with_rails


def box(*names: str) -> Machine:
    nics = tuple(Nic(name, (place,), place) for place, name in enumerate(names))
    return Machine("box", len(names), nics=nics)


BOX = box("mlx5_0", "mlx5_1")


def node(name: str, rails: str, rate: float | None = 50.0) -> SeenNode:
    """Draw a node: "mlx5_0:1 HCA-2:0" are two NICs on rails 1 and 0."""
    nics = []
    for word in rails.split():
        device, _, rail = word.rpartition(":")
        nics.append(SeenNic(device, rail=int(rail) if rail else None, bandwidth_GBps=rate))
    return SeenNode(name, (), nics=tuple(nics))


def railed(machine: Machine, *rails_of_node: str) -> Railed:
    nodes = [node(f"n{number}", rails) for number, rails in enumerate(rails_of_node)]
    return with_rails(nodes, {each.name: machine for each in nodes})


def rails(found: Railed) -> list[int | None]:
    (machine,) = set(found.machine_of_node.values())
    return [nic.rail for nic in machine.nics]


@pytest.mark.parametrize(
    ("rails_of_node", "expected", "odd"),
    [
        (["mlx5_0:1 mlx5_1:0"] * 3, [1, 0], ""),
        (["mlx5_0:1 mlx5_1:0"] * 9 + ["mlx5_0:0 mlx5_1:1"], [1, 0], "1 of 10 nodes"),
        (["mlx5_0:1 mlx5_1:0"] * 9 + ["mlx5_7:0"], [1, 0], "1 of 10 nodes"),
        (["mlx5_0:1"] * 9 + ["mlx5_0:1 mlx5_1:1"], [1, None], "1 of 10 nodes"),
        (["mlx5_0:1"] * 4 + ["mlx5_0:1 mlx5_1:0"], [1, 0], ""),
        (["mlx5_0:1 mlx5_1:0"] * 9 + [""], [1, 0], ""),
    ],
    ids=["all agree", "a swapped cable", "a manager", "a NIC that one node shows", "dead ports", "no NIC at all"],
)  # fmt: skip
def test_most_nodes_decide_and_the_odd_ones_are_named(
    rails_of_node: list[str], expected: list[int | None], odd: str
) -> None:
    found = railed(BOX, *rails_of_node)
    assert rails(found) == expected
    assert "box: rails are as the fabric's leaves tell" in found.inferred[0]
    told = [warning for warning in found.warnings if "hang on other rails" in warning]
    assert bool(told) == bool(odd)
    assert all(odd in warning and "(n9)" in warning for warning in told)


@pytest.mark.parametrize(
    ("rails_of_node", "said"),
    [
        (["mlx5_0:0 mlx5_1:1"] * 8 + ["mlx5_0:1 mlx5_1:0"] * 2, "mlx5_0, mlx5_1 hang on different rails"),
        (["mlx5_0:0 mlx5_3:1"] * 3, "calls NICs otherwise (mlx5_0, mlx5_3)"),
        (["mlx5_0:0 :1"] * 3, "calls NICs otherwise (mlx5_0, no name)"),
    ],
)  # fmt: skip
def test_where_most_do_not_agree_the_order_of_the_machine_stays_and_that_is_said(
    rails_of_node: list[str], said: str
) -> None:
    found = railed(BOX, *rails_of_node)
    assert rails(found) == [0, 1]
    assert said in found.inferred[0]
    assert "rails are in the order of the machine's own NICs" in found.inferred[0]


@pytest.mark.parametrize(
    ("names", "rails_of_node", "expected"),
    [
        ("mlx5_0 mlx5_1", ["HCA-1:1 HCA-2:0"] * 3, [1, 0]),
        ("mlx5_1 mlx5_0", ["HCA-1:1 HCA-2:0"] * 3, [0, 1]),
        ("mlx5_0 mlx5_1", ["HCA-1:1 HCA-2:0"] * 5 + ["mlx5_0:1 mlx5_1:0"], [1, 0]),
        ("mlx5_0 mlx5_1", ["HCA-1:1 HCA-2:0"] * 19 + ["mlx5_0:0 mlx5_1:1"], None),
        ("mlx5_0 mlx5_1", ["HCA-1:1 HCA-2:0"] * 19 + ["HCA-3:1"], None),
        ("mlx5_0 mlx5_2", ["HCA-1:1 HCA-2:0"] * 3, None),
        ("mlx5_0 irdma1", ["HCA-1:1 HCA-2:0"] * 3, None),
        (" ".join(f"mlx5_{n}" for n in range(11)), ["HCA-1:1 HCA-2:0"] * 3, None),
    ],
    ids=[
        "all fit", "however the machine orders them", "names agree", "names contradict", "a number too many",
        "a device too few", "two drivers", "too many for their names' order",
    ],
)  # fmt: skip
def test_numbered_hcas_are_devices_only_where_that_is_certain(
    names: str, rails_of_node: list[str], expected: list[int | None] | None
) -> None:
    machine = box(*names.split())
    found = railed(machine, *rails_of_node)
    if expected is None:
        assert set(found.machine_of_node.values()) == {machine}
        assert "the fabric calls NICs otherwise (HCA-1, HCA-2" in found.inferred[0]
    else:
        assert rails(found) == expected
        assert "HCA-1 is taken as mlx5_0 and so on" in found.inferred[0]


def test_nics_that_the_fabric_does_not_show_have_no_rail_and_that_is_said() -> None:
    found = railed(box("mlx5_0", "mlx5_1", "mlx5_2"), *["mlx5_0:0 mlx5_2:1"] * 3)
    assert rails(found) == [0, None, 1]
    assert "mlx5_1 hang on none of them, and have no rail" in found.inferred[0]


def test_the_rate_of_most_nodes_is_taken_where_the_machine_tells_none() -> None:
    nodes = [node(f"n{i}", "mlx5_0:0 mlx5_1:1") for i in range(9)]
    nodes.append(node("n9", "mlx5_0:0 mlx5_1:1", rate=25.0))
    own = Machine("box", 2, nics=(Nic("mlx5_0", (0,), 0), Nic("mlx5_1", (1,), 1, 12.5)))
    found = with_rails(nodes, {each.name: own for each in nodes})
    assert [nic.bandwidth_GBps for nic in found.machine_of_node["n0"].nics] == [50.0, 12.5]


@pytest.mark.parametrize(
    ("rails_of_node", "told"),
    [
        (["mlx5_0:0 mlx5_1:1"] * 2, []),
        (["mlx5_0:0"] * 3, ["2 NICs are near to its GPUs, but the fabric shows 1 on 3 of 3 nodes"]),
        (["mlx5_0:0 mlx5_1:1", "mlx5_0:0"], ["shows 1 NIC, not 2, on 1 of 2 nodes (n1)"]),
        (["mlx5_0:0"] * 2 + ["mlx5_0:0 mlx5_1:1"],
         ["shows 1 on 2 of 3 nodes", "shows 2 NICs, not 1, on 1 of 3 nodes (n2)"]),
    ],
)  # fmt: skip
def test_another_number_of_nics_is_warned_of_once_for_most_nodes_and_once_for_the_others(
    rails_of_node: list[str], told: list[str]
) -> None:
    found = railed(BOX, *rails_of_node)
    assert len(found.warnings) == len(told)
    assert all(part in warning for part, warning in zip(told, found.warnings, strict=True))
