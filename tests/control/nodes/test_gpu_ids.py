"""Which name a process sees its GPUs under."""

import pytest

from gantree.control.nodes.sharing.gpu_ids import gpu_ids_of, mig_ids_of
from gantree.model.errors import Unreachable
from gantree.model.placements import MigPart
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


def test_instances_are_those_of_the_real_machine_each_time_anew() -> None:
    there = {MigPart(0, "3g.40gb", 0): "MIG-a"}
    ids = mig_ids_of("n0", lambda: dict(there))
    assert (ids("n0"), ids("n1")) == (there, {})
    there[MigPart(0, "3g.40gb", 4)] = "MIG-b"
    assert ids("n0") == there


def test_without_a_driver_there_are_no_instances() -> None:
    def no_instances() -> dict[MigPart, str]:
        raise Unreachable("no driver")

    assert mig_ids_of("n0", no_instances)("n0") == {}
