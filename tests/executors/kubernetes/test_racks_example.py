"""examples/racks as GangJobs: gangs of 16 pods get a rack each, although the gangs that borrow are in every rack."""

from collections import Counter
from pathlib import Path

import pytest

from support.racks_story import RacksStage


@pytest.mark.parametrize(("policy", "served"), [("counts", 3), ("cells", 4)])
def test_each_gang_of_a_queue_within_its_guarantee_gets_a_rack(
    tmp_path: Path, policy: str, served: int
) -> None:
    with RacksStage(tmp_path, policy) as stage:
        gangs = {gang.name: gang for gang in stage.play()}
        pods = stage.pods()
    asked = [gangs[f"gec-{number}"] for number in range(5)]
    assert [len(each.racks) for each in asked] == [1] * served + [0] * (5 - served)
    assert len({each.racks for each in asked[:served]}) == served
    assert all("needs 64 GPUs in one nvlink" in each.why for each in asked[served:])
    stopped = Counter(each.stopped_for for each in gangs.values() if "gec" in each.stopped_for)
    assert stopped == {f"reclaim default/{each.name}": 4 for each in asked[:served]}
    for name, gang in gangs.items():
        nodes = [
            pod["spec"].get("nodeName")
            for pod_name, pod in pods.items()
            if pod_name.startswith(f"{name}-")
        ]
        assert all(nodes) or not any(nodes), f"{name} is there in part"
        assert {node.partition("-")[0] for node in nodes if node} == set(gang.racks)
