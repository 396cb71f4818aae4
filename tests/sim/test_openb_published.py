"""The openb experiment as published, and what the score adds to it. Needs the lists of the trace; skipped without.

Published figures: FGD, USENIX ATC'23, artifact `expected_results/analysis_allo_discrete.csv`, seed 42 of the default
list; the multi-GPU share is that of FGD on the same arrivals.
"""

from pathlib import Path

import numpy as np
import pytest

from gantree.sim.openb.bound import bound
from gantree.sim.openb.lists import Nodes, Workload, read_nodes, read_ranks, read_workload
from gantree.sim.openb.replay import replay

LISTS = (
    Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "traces" / "openb2023"
).resolve()
SEED = 42

pytestmark = [
    pytest.mark.skipif(not LISTS.exists(), reason="the openb lists are not here"),
    pytest.mark.figures,
]


@pytest.fixture(scope="module")
def experiment() -> tuple[Nodes, Workload, np.ndarray]:
    """The default list, seed 42."""
    nodes = read_nodes(LISTS / "openb_node_list_gpu_node.csv")
    order = LISTS / "replay_order_default_tune1.3_seeds42-46.csv.gz"
    workload = read_workload(LISTS / "openb_pod_list_default.csv.gz", order, SEED)
    ranks = LISTS / "fgd_node_tiebreak_order_seeds42-46.csv.gz"
    return nodes, workload, read_ranks(ranks, SEED, nodes)


@pytest.mark.parametrize(
    ("policy", "allocated", "within"),
    [
        ("FGD", (95.14, 95.19, 95.24, 95.29), 0.006),
        ("BestFit", (92.94, 93.00, 93.07, 93.13), 0.006),
        ("Random", (86.17, 86.73, 87.10, 87.26), 0.3),
    ],
)
def test_published_policies_allocate_what_was_published(
    experiment: tuple[Nodes, Workload, np.ndarray],
    policy: str,
    allocated: tuple[float, ...],
    within: float,
) -> None:
    nodes, workload, ranks = experiment
    outcome = replay(nodes, workload, ranks, SEED, policy)
    found = [outcome.allocated_percent[mark] for mark in (100, 110, 120, 130)]
    assert found == pytest.approx(allocated, abs=within)
    if policy == "FGD":
        assert outcome.multi_gpu_percent[100] == pytest.approx(96.02, abs=0.01)


def test_the_score_comes_within_a_fifth_of_a_point_of_the_bound(
    experiment: tuple[Nodes, Workload, np.ndarray],
) -> None:
    nodes, workload, ranks = experiment
    limit = bound(nodes, workload)
    assert limit is not None
    assert limit.places_first_percent == 96
    assert limit.percent == pytest.approx(96.468, abs=0.005)
    outcome = replay(nodes, workload, ranks, SEED, "gantree")
    assert outcome.all_placed_until_percent is not None
    assert outcome.all_placed_until_percent > 96
    assert limit.percent - 0.2 < (outcome.allocated_percent[130] or 0) <= limit.percent
    assert (outcome.multi_gpu_percent[100] or 0) >= 96.01
