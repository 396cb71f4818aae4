"""What gets out of a machine: which NICs a set of GPUs has, at what rate, and who else uses them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.model.cluster import Machine, Nic
from gantree.topology.hardware.catalog import machine
from gantree.topology.hardware.masks import mask_of
from gantree.topology.traffic.nic_egress import NicEgress

H100 = machine("dgx-h100")


def out(model: Machine, gpus: list[int], busy: list[int] | None = None) -> float:
    ways = NicEgress.of(model, {})
    return ways.out_GBps(mask_of(gpus), mask_of(gpus if busy is None else busy))


def with_nics(*nics: Nic) -> Machine:
    return replace(H100, nics=nics)


ONE = Nic("a", (0,), 0, 25.0)
SHARED = Nic("a", tuple(range(8)), 0, 25.0)


@pytest.mark.parametrize(
    ("model", "gpus", "GBps"),
    [
        (H100, list(range(8)), 8 * 48),  # 50 GB/s NICs behind 48 GB/s of PCIe
        (H100, [3], 48),
        (machine("dgx-a100"), [0, 1], 2 * 24),  # two NICs for two GPUs
        (machine("dgx-a100"), [0], 24),  # and the GPU's own port holds one
        (machine("dgx-a100"), list(range(8)), 8 * 24),
        (with_nics(SHARED), list(range(8)), 25),  # one NIC serves eight
        (with_nics(SHARED), [5], 25),
        (with_nics(ONE), [0], 25),
        (with_nics(ONE), [5], 25),  # over the GPU that is near it
        (with_nics(replace(SHARED, path="NODE", bandwidth_GBps=50.0)), [0], 48 * 2 / 3),
        (with_nics(replace(SHARED, path="PIX", bandwidth_GBps=50.0)), [0], 48),
        (with_nics(*(Nic(f"n{n}", (n // 4,), n, 12.5) for n in range(32))), list(range(8)), 8 * 48),
        (with_nics(Nic("storage"), ONE), list(range(8)), 25),  # near to none: not for traffic
        (with_nics(Nic("a", (), None, 10.0), Nic("b", (), None, 10.0)), [0], 20),
        (with_nics(), [0, 1], 2 * 48),  # none known: one for each GPU, as in the vendor's systems
        (machine("t4-4"), [0, 1], 2 * 12),
    ],
)
def test_gpus_have_the_nics_they_are_near_to(model: Machine, gpus: list[int], GBps: float) -> None:
    assert out(model, gpus) == pytest.approx(GBps)


def test_nics_are_shared_by_gpus_that_send_at_the_same_time() -> None:
    model = machine("dgx-a100")
    assert out(model, [0], [0, 1]) == pytest.approx(24)  # half of two
    assert out(with_nics(SHARED), [5], list(range(8))) == pytest.approx(25 / 8)
    assert out(with_nics(SHARED), [5, 6], [4, 5, 6, 7]) == pytest.approx(25 / 2)


def test_what_is_left_of_a_nic_counts() -> None:
    worn = NicEgress.of(H100, {"mlx5_3": 0.5})
    assert worn.out_GBps(0xFF, 0xFF) == pytest.approx(7.5 * 48)


def test_a_rate_that_the_sites_links_imply_is_at_least_there() -> None:
    assert NicEgress.of(machine("dgx-b200"), {}, least_nic_GBps=12.0).out_GBps(
        1, 1
    ) == pytest.approx(48)
    v100 = NicEgress.of(machine("dgx-2"), {}, least_nic_GBps=20.0)
    assert v100.out_GBps(1, 1) == pytest.approx(12)  # PCIe 3 holds it


FEW = with_nics(Nic("a", (0,), 0, 12.0), Nic("b", (1,), 1, 12.0), Nic("storage"))
"""Six of its eight GPUs are near to no NIC."""


@given(
    mask=st.integers(1, 255),
    more=st.integers(0, 255),
    busy=st.integers(0, 255),
    model=st.sampled_from([machine("dgx-a100"), FEW]),
)
def test_more_gpus_never_get_less_out_and_company_never_gives_more(
    mask: int, more: int, busy: int, model: Machine
) -> None:
    ways = NicEgress.of(model, {"mlx5_1": 0.3, "b": 0.7})
    both = mask | more
    assert ways.out_GBps(both, both) >= ways.out_GBps(mask, mask) - 1e-9
    assert ways.out_GBps(mask, mask | busy) <= ways.out_GBps(mask, mask) + 1e-9


@pytest.mark.parametrize(
    ("model", "gpus", "GBps"),
    [
        (H100, [3], 24),
        (H100, list(range(8)), 7 * 48 + 24),
        (H100, [0, 1], 2 * 48),
        (with_nics(SHARED), [3], 24),  # its own port holds it
        (with_nics(SHARED), [5], 25),  # another GPU near the NIC is whole
        (with_nics(), [2, 3], 48 + 24),
    ],
)
def test_a_gpu_at_half_of_its_pcie_width_sends_half(
    model: Machine, gpus: list[int], GBps: float
) -> None:
    ways = NicEgress.of(model, {}, residual_of_port={3: 0.5})
    assert ways.out_GBps(mask_of(gpus), mask_of(gpus)) == pytest.approx(GBps)
