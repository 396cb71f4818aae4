"""Which name a process sees its GPUs under."""

import pytest

from gantree.control.gpu_ids import gpu_ids_of
from gantree.model.errors import Unreachable
from gantree.testing.builders import cluster

SITE = cluster(leaves=1, nodes=2, gpus=2)


def no_driver() -> tuple[str, ...]:
    raise Unreachable("no driver")


@pytest.mark.parametrize(
    ("hostname", "uuids", "node", "seen"),
    [
        ("n0", ("GPU-a", "GPU-b"), "n0", "GPU-b,GPU-a"),
        ("n0", ("GPU-a", "GPU-b"), "n1", "1,0"),
        ("elsewhere", ("GPU-a", "GPU-b"), "n0", "1,0"),
        ("n0", ("GPU-a",), "n0", "1,0"),
        ("n0", (), "n0", "1,0"),
    ],
)
def test_uuids_on_the_real_machine_and_indices_elsewhere(
    hostname: str, uuids: tuple[str, ...], node: str, seen: str
) -> None:
    assert gpu_ids_of(SITE, hostname, lambda: uuids)(node, (1, 0)) == seen


def test_without_a_driver_indices_are_used() -> None:
    assert gpu_ids_of(SITE, "n0", no_driver)("n0", (0, 1)) == "0,1"


def test_the_driver_is_not_asked_where_every_node_is_virtual() -> None:
    def never() -> tuple[str, ...]:
        raise AssertionError("asked")

    assert gpu_ids_of(SITE, "elsewhere", never)("n0", (0,)) == "0"
