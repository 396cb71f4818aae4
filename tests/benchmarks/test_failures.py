"""What the run of forced failures takes for wrong."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from failures.watching import Watched, allocated_twice  # found by then
from failures.workloads import Workload

GANG = Workload("w0", is_job=False, has_claims=False, pods=3, gpus=1, priority="batch", runs_s=1)


def pod(node: str, phase: str = "Running", *, going: bool = False) -> dict[str, Any]:
    metadata = {"labels": {"failures/of": "w0"}, **({"deletionTimestamp": "now"} if going else {})}
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("pods", "is_partial"),
    [
        ([pod("n0"), pod("n0"), pod("n1")], False),
        ([pod("n0"), pod(""), pod("")], True),
        ([pod(""), pod(""), pod("")], False),
        ([pod("n0"), pod("n0", going=True), pod("n1", going=True)], True),
        ([pod("n0", going=True), pod("n0", "Failed"), pod("")], False),
        ([pod("n0"), pod("n0", "Succeeded"), pod("n1", "Succeeded")], False),
        ([pod("n0"), pod("n0", "Succeeded"), pod("n1", "Failed")], True),
    ],
)
def test_a_gang_is_there_in_part(pods: list[dict[str, Any]], is_partial: bool) -> None:
    watched = Watched({}, {"w0": GANG})
    watched.pods |= {str(number): each for number, each in enumerate(pods)}
    assert watched.is_partial(GANG) == is_partial


def test_a_device_is_allocated_twice() -> None:
    def claim(name: str, device: str) -> dict[str, Any]:
        results = [{"pool": "n0", "device": device}]
        return {
            "metadata": {"name": name},
            "status": {"allocation": {"devices": {"results": results}}},
        }

    assert not allocated_twice([claim("a", "gpu-0"), claim("b", "gpu-1")])
    assert allocated_twice([claim("a", "gpu-0"), claim("b", "gpu-0")]) == [
        "('n0', 'gpu-0') is allocated to a and to b"
    ]
