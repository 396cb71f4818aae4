"""Facts from other schedulers' test tables, and generated ones with proven minima, judged by our own checker."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gantree.formats import read_cluster, read_job
from gantree.model.placements import Placement
from gantree.model.verdicts import Gate
from gantree.placement.choice.search import fits, place
from gantree.testing.placement_checker import domains_used, problems_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "placement_cases.json").read_text(encoding="utf-8")
)


def test_all_cases_are_here() -> None:
    assert len(CASES) == len({case["id"] for case in CASES}) == 54


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_gang_goes_where_the_case_says(case: dict[str, Any]) -> None:
    occupancy = Occupancy(Fabric.build(read_cluster(json.dumps(case["cluster"]), case["id"])))
    (job,) = read_job(json.dumps(case["job"]), case["id"])
    expect = case["expect"]

    answer = place(occupancy, job)

    assert fits(occupancy, job) == isinstance(answer, Placement) == expect["placed"]
    if isinstance(answer, Placement):
        assert problems_of(occupancy, job, answer) == []
        used = domains_used(occupancy, answer)
        assert all(used[tier] <= most for tier, most in expect["domains"].items()), used
        on_node = dict(Counter(member.node for member in answer.members))
        assert on_node == expect.get("members_per_node", on_node)
    elif "why_contains" in expect:
        assert answer.gate == Gate(expect["why_contains"])
