"""Masks of CPUs as Linux, NCCL and hwloc write them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.topology.discovery.machines.devices.cpu_masks import mask_bits, runs_of


@pytest.mark.parametrize(
    ("written", "runs"),
    [
        ("00000000,00ffffff", ((0, 23),)),
        ("000000ff,ffff0000,00ffffff", ((0, 23), (48, 71))),
        ("ffff,f00000ff,fff00000", ((20, 39), (60, 79))),
        ("0x0000ffff,0xffffffff,,0x0000ffff,0xffffffff", ((0, 47), (96, 143))),
        ("0x00000303,0x03030000,,0x0", ((80, 81), (88, 89), (96, 97), (104, 105))),
        ("FF", ((0, 7),)),
        ("0", ()),
    ],
)
def test_a_mask_is_read_from_its_highest_word_down(
    written: str, runs: tuple[tuple[int, int], ...]
) -> None:
    bits = mask_bits(written)
    assert bits is not None
    assert runs_of(bits) == runs


@pytest.mark.parametrize(
    "written", ["", ",", "xyz", "0xf...f,0x1", "123456789", "-1", "1;2", "0x0x1", "1," * 512 + "1"]
)
def test_what_is_no_mask_of_a_machine_is_none(written: str) -> None:
    assert mask_bits(written) is None


@given(st.sets(st.integers(0, 300)))
def test_runs_hold_each_bit_once_and_never_touch(cpus: set[int]) -> None:
    runs = runs_of(sum(1 << cpu for cpu in cpus))
    assert [cpu for first, last in runs for cpu in range(first, last + 1)] == sorted(cpus)
    assert all(begin > last + 1 for (_, last), (begin, _) in pairwise(runs))
