"""XIDs of NVML: GPUs can be registered where there are any, and listening ends in time."""

import pytest

from gantree.model.errors import Unreachable
from gantree.telemetry.nvml.driver import bus_ids
from gantree.telemetry.nvml.events import XidEvents


def has_driver() -> bool:
    try:
        bus_ids()
    except Unreachable:
        return False
    return True


@pytest.mark.skipif(not has_driver(), reason="needs an NVIDIA driver")
def test_gpus_are_registered_and_no_xid_comes_from_healthy_ones() -> None:
    events = XidEvents()
    try:
        assert events.gpus == len(bus_ids())
        assert events.wait(0.2) == []
    finally:
        events.close()


@pytest.mark.skipif(has_driver(), reason="needs a machine without an NVIDIA driver")
def test_without_a_driver_there_is_an_error() -> None:
    with pytest.raises(Unreachable, match="no NVIDIA driver answers"):
        XidEvents()
