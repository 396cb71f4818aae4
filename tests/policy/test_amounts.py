"""What jobs ask for and gangs hold, as amounts."""

from fractions import Fraction

import pytest

from gantree.model.jobs import Job, Role, Shape
from gantree.model.placements import MemberPlacement, MigPart, SharePart
from gantree.policy.amounts import (
    TICKS,
    held,
    held_devices,
    held_hosts,
    requested,
    ticks,
    weighted_gpus,
)


def job(*roles: tuple[int, Shape]) -> Job:
    return Job("j", tuple(Role(f"r{at}", count, shape) for at, (count, shape) in enumerate(roles)))


def test_a_gang_asks_for_all_its_members() -> None:
    shape = Shape(gpus=8, cpus=64, memory_GiB=512, nics=8, models=("H100-80GB",))
    other = Shape(cpus=0.5, devices=(("fpga", 2),))
    assert requested(job((4, shape), (2, other))) == {
        "gpus": 32,
        "gpus/H100-80GB": 32,
        "cpus": 257,
        "memory_GiB": 2048,
        "nics": 32,
        "devices/fpga": 4,
    }


def test_a_model_is_asked_for_only_where_no_other_would_do() -> None:
    any_of_two = Shape(gpus=1, models=("A100-80GB", "H100-80GB"))
    one = Shape(gpus=2, models=("H100-80GB",))
    assert requested(job((3, any_of_two), (1, one))) == {"gpus": 5, "gpus/H100-80GB": 2}


@pytest.mark.parametrize(
    ("shape", "gpus"),
    [
        (Shape(gpu_share=0.25), 0.25),
        (Shape(gpu_memory_GiB=20, models=("H100-80GB",)), 0.25),
        (Shape(gpu_memory_GiB=20, models=("H100-80GB", "A100-40GB")), 0.5),
        (Shape(gpu_memory_GiB=20), 1.0),
        (Shape(mig="3g.40gb", models=("H100-80GB",)), 3 / 7),
        (Shape(mig="3g.40gb"), 3 / 7),
        (Shape(mig="2g.12gb", models=("A30-24GB",)), 2 / 4),
        (Shape(devices=(("nvidia.com/mig-3g.40gb", 2), ("pods", 1))), 6 / 7),
        (Shape(gpus=1, devices=(("nvidia.com/mig-1g.10gb.me", 1),)), 8 / 7),
    ],
)
def test_a_part_of_a_gpu_counts_as_that_part(shape: Shape, gpus: float) -> None:
    assert requested(job((1, shape)))["gpus"] == pytest.approx(gpus)


def test_what_is_held_counts_by_the_models_of_the_nodes() -> None:
    members = (
        MemberPlacement("w", 0, "n0", gpus=(0, 1), nics=("a", "b"), cpus=8, memory_GiB=4),
        MemberPlacement("w", 1, "n1", mig=(MigPart(0, "3g.40gb", 0),), devices=(("fpga", 1),)),
        MemberPlacement("w", 2, "n1", share=SharePart(1, 0.5, 40, "mps")),
        MemberPlacement("w", 3, "n2", cpus=1),
    )
    one = MemberPlacement("w", 0, "n1", devices=(("nvidia.com/mig-3g.40gb", 1),))
    instance = held((one,), {"n1": "H100-80GB"}.get)
    assert instance["gpus"] == instance["gpus/H100-80GB"] == pytest.approx(3 / 7)
    models = {"n0": "A100-80GB", "n1": "H100-80GB"}
    amounts = held(members, models.get)
    assert amounts == {
        "gpus": pytest.approx(2 + 3 / 7 + 0.5),
        "gpus/A100-80GB": 2,
        "gpus/H100-80GB": pytest.approx(3 / 7 + 0.5),
        "cpus": 9,
        "memory_GiB": 4,
        "nics": 2,
        "devices/fpga": 1,
    }


@pytest.mark.parametrize("part", [Fraction(1, 7), Fraction(1, 3), Fraction(1, 1000)])
def test_thirds_sevenths_and_thousandths_add_up_to_the_whole(part: Fraction) -> None:
    assert ticks(float(part)) * part.denominator == TICKS


def test_gpus_weigh_by_their_models_and_others_one() -> None:
    amounts = {"gpus": 10.0, "gpus/H100-80GB": 4.0, "gpus/T4-16GB": 2.0, "cpus": 99.0}
    assert weighted_gpus(amounts, {"H100-80GB": 3.0, "T4-16GB": 0.5}) == 4 * 3 + 2 * 0.5 + 4


def test_devices_and_hosts_that_are_held_come_to_the_amounts_that_are_held() -> None:
    members = (
        MemberPlacement("w", 0, "h0", gpus=(0, 1), cpus=8, memory_GiB=4),
        MemberPlacement("w", 1, "h0", mig=(MigPart(2, "3g.40gb", 0),), cpus=1),
        MemberPlacement("w", 2, "h0", share=SharePart(3, 0.25, 20, "mps")),
        MemberPlacement("w", 3, "a0", devices=(("amd.com/cpx_nps1", 2), ("fpga", 1)), cpus=2),
        MemberPlacement("w", 4, "c0", memory_GiB=2),
    )
    model_of_node = {"h0": "H100-80GB", "a0": "MI300X-192GB"}.get
    devices = held_devices(members, model_of_node)
    assert devices == (
        ("H100-80GB", "", 2.0),
        ("H100-80GB", "3g.40gb", 3 / 7),
        ("H100-80GB", "share", 0.25),
        ("MI300X-192GB", "cpx", 0.25),
    )
    assert sum(gpus for *_, gpus in devices) == pytest.approx(held(members, model_of_node)["gpus"])
    hosts = (("H100-80GB", 9.0, 4.0), ("MI300X-192GB", 2.0, 0.0), ("", 0.0, 2.0))
    assert held_hosts(members, model_of_node) == hosts
