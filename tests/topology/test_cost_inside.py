"""What GPUs of one machine are to each other: figures by hand for real machines, and the search for rings."""

from collections.abc import Sequence
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.model.cluster import Link, Machine
from gantree.topology.hardware.catalog import machine
from gantree.topology.hardware.constants import XGMI_SHARE
from gantree.topology.hardware.intra_node import (
    HOST_MEMORY,
    UNKNOWN_LINK,
    Host,
    WornGpu,
    closed_way,
)


def full_mesh(gpus: int, link: str, gpu: str) -> Machine:
    links = tuple(tuple("X" if a == b else link for b in range(gpus)) for a in range(gpus))
    return Machine("mesh", gpus, gpu, links)


def without_peers(model: Machine) -> Machine:
    peer = tuple(tuple(a == b for b in range(model.gpus)) for a in range(model.gpus))
    return Machine(model.name, model.gpus, model.gpu, model.links, model.numa, peer=peer)


MI300X = full_mesh(8, "XGMI1", "MI300X-192GB")
RTX4090 = without_peers(machine("rtx4090-8"))


@pytest.mark.parametrize(
    ("model", "gpus", "GBps", "weakest"),
    [
        (machine("dgx-a100"), range(8), 12 * 20, "NV12"),
        (machine("dgx-h100"), range(8), 18 * 20.6, "NV18"),
        (machine("dgx-h100"), [2, 5], 18 * 20.6, "NV18"),
        (machine("dgx-b200"), range(5), 18 * 40.1, "NV18"),
        (machine("dgx-2"), range(16), 6 * 20, "NV6"),
        (machine("dgx-1-v100"), range(8), 6 * 20, "NV1"),  # three rings, both ways, on all 6 links
        (machine("dgx-1-v100"), range(4), 4 * 20, "NV1"),  # two rings that use some pairs twice
        (machine("dgx-1-v100"), [0, 3], 2 * 20, "NV2"),
        (machine("dgx-1-v100"), [0, 1], 1 * 20, "NV1"),
        (machine("dgx-1-v100"), [0, 5], 10, "SYS"),  # no link between them
        (machine("dgx-1-v100"), [0, 1, 2], 2 * 20, "NV1"),
        (machine("hgx-a100-4"), range(4), 12 * 20, "NV4"),
        (machine("hgx-a100-4"), range(3), 8 * 20, "NV4"),
        (machine("a6000-pairs-8"), [0, 1], 4 * 12, "NV4"),
        (machine("a6000-pairs-8"), range(4), 24 / 1.2, "NODE"),
        (machine("a6000-pairs-8"), range(8), 16, "SYS"),
        (machine("t4-4"), [1, 2, 3], 12 / 1.2, "NODE"),
        (MI300X, range(8), 7 * 64 * XGMI_SHARE, "XGMI1"),
        (MI300X, [3, 6], 64 * XGMI_SHARE, "XGMI1"),
    ],
)
def test_a_ring_has_what_its_links_carry(
    model: Machine, gpus: list[int], GBps: float, weakest: str
) -> None:
    inside = Host.of(model, {}).inside(list(gpus))
    assert inside.ring_GBps == pytest.approx(GBps)
    assert inside.weakest == weakest
    assert inside.nvlink == (weakest[:2] in {"NV", "XG"})


def test_one_gpu_has_no_ring_to_wait_for() -> None:
    assert Host.of(machine("dgx-h100"), {}).inside([3]).ring_GBps == float("inf")


def test_nvswitches_are_told_from_direct_links_by_the_number_of_links() -> None:
    switched = {"dgx-a100", "dgx-h100", "dgx-b200", "dgx-2", "gb200-nvl72-tray"}
    direct = {"dgx-1-v100", "hgx-a100-4", "a6000-pairs-8", "rtx4090-8"}
    told = {name: Host.of(machine(name), {}).switched for name in switched | direct}
    assert {name for name, yes in told.items() if yes} == switched


def test_without_peer_access_gpus_over_two_sockets_are_faster_than_in_one() -> None:
    links = tuple(
        tuple("X" if a == b else "NODE" if a // 4 == b // 4 else "SYS" for b in range(8))
        for a in range(8)
    )
    model = without_peers(Machine("m", 8, "RTX5090-32GB", links, (0,) * 4 + (1,) * 4))
    packed, spread = (Host.of(model, {}).inside(gpus) for gpus in ([0, 1, 2, 3], [0, 1, 4, 5]))
    assert packed.weakest == spread.weakest == HOST_MEMORY
    assert packed.ring_GBps == pytest.approx(24)  # measured: 24 and 35
    assert spread.ring_GBps == pytest.approx(40)


def test_without_peer_access_gpus_of_a_switch_share_its_up_link() -> None:
    host = Host.of(RTX4090, {})
    assert host.inside([0, 1, 2, 3]).ring_GBps == pytest.approx(24 / 4)
    assert host.inside([0, 4]).ring_GBps == pytest.approx(24 / 1.2)


def test_an_exchange_is_held_by_the_slowest_pair_of_a_mesh_and_the_link_of_sockets() -> None:
    assert Host.of(MI300X, {}).inside(range(8)).exchange_GBps == pytest.approx(7 * 64 * XGMI_SHARE)
    pcie = Host.of(machine("l40s-8"), {}).inside(range(8))
    assert pcie.exchange_GBps == pytest.approx(7 * 16 / 16)  # 4 x 4 pairs over one 16 GB/s link


def test_what_holds_a_ring_up_goes_by_the_name_of_its_links() -> None:
    tpu = machine("tpu-v5p-host")
    assert Host.of(tpu, {}).inside(range(4)).weakest == "ICI1"
    measured = Host.of(tpu, {"ICI1": Link(10.0, 1.0)}).inside(range(4))
    assert measured.ring_GBps == 2 * 10  # one way over four links, in both directions
    untold = Machine("m", 4, "H100-80GB")
    assert Host.of(untold, {}).inside(range(4)).weakest == UNKNOWN_LINK


def test_measured_links_take_the_place_of_the_constants() -> None:
    host = Host.of(machine("dgx-h100"), {"NV18": Link(300.0, 2.0)})
    assert host.inside(range(8)).ring_GBps == 300
    assert host.port_GBps == 300


@given(st.data(), st.integers(3, 6))
def test_a_closed_way_is_found_exactly_where_trying_all_orders_finds_one(
    data: st.DataObject, count: int
) -> None:
    joined = [
        [a != b and data.draw(st.booleans(), label=f"{a}-{b}") for b in range(count)]
        for a in range(count)
    ]
    orders = [(0, *rest) for rest in permutations(range(1, count))]
    ways = [
        order
        for order in orders
        if all(joined[a][b] for a, b in zip(order, (*order[1:], 0), strict=True))
    ]
    found = closed_way(joined)
    assert (found in ways) if ways else found is None


@pytest.mark.parametrize(
    ("model", "worn", "gpus", "share"),
    [
        (machine("dgx-h100"), WornGpu(3, nvlink=0.5), range(8), 0.5),
        (machine("dgx-h100"), WornGpu(3, nvlink=0.5), [0, 1, 2], 1.0),
        (machine("dgx-h100"), WornGpu(3, pcie=0.5), range(8), 1.0),  # NVLink carries it
        (machine("dgx-1-v100"), WornGpu(3, nvlink=0.5), range(8), 0.5),
        (MI300X, WornGpu(3, nvlink=0.5), range(8), 0.5),
        (machine("t4-4"), WornGpu(3, pcie=0.25), range(4), 0.25),
        (RTX4090, WornGpu(0, pcie=0.5), [0, 1], 0.5),
    ],
)
def test_a_ring_is_as_fast_as_the_links_of_its_most_worn_gpu(
    model: Machine, worn: WornGpu, gpus: Sequence[int], share: float
) -> None:
    whole = Host.of(model, {}).inside(tuple(gpus)).ring_GBps
    assert Host.of(model, {}, worn=(worn,)).inside(tuple(gpus)).ring_GBps == pytest.approx(
        share * whole
    )
