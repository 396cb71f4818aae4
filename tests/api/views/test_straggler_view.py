"""Stragglers as rows: who is compared with whom, where each is, what is suspected, and how often files are read."""

import numpy as np
import pytest

from gantree.api.views.straggler_view import (
    FRESH_S,
    StragglerJudge,
    peer_groups,
    straggler_rows,
)
from gantree.executors.progress import RankSteps, StepReports

STEPS = 60


def reports(
    slow: dict[int, float],
    ranks: int = 8,
    parallelism: tuple[tuple[str, int], ...] = (),
    gpus_of_process: int = 1,
    roles: tuple[str, ...] = ("worker",),
) -> StepReports:
    """Ranks, four on each node, of which some take a multiple of the usual time."""
    random = np.random.default_rng(5)
    found = []
    for rank in range(ranks):
        own_s = slow.get(rank, 1.0) * np.exp(random.normal(0, 0.02, STEPS))
        first = rank % 4 * gpus_of_process
        gpus = tuple(range(first, first + gpus_of_process))
        role = roles[rank * len(roles) // ranks]
        found.append(RankSteps(rank, role, f"n{rank // 4}", gpus, dict(enumerate(own_s.tolist()))))
    return StepReports(1e9, ranks, tuple(found), parallelism)


def test_a_slow_rank_is_named_with_node_and_gpu() -> None:
    (row,) = straggler_rows(reports({6: 1.31}))
    assert (row["rank"], row["node"], row["gpus"], row["suspect"]) == (
        6, "n1", [2], "GPU 2 or host n1",
    )  # fmt: skip
    assert row["at"] == 1e9
    assert row["sentence"] == (
        f"rank 6 on n1 GPU 2 takes {row['ratio']:.2f}x the time of its 7 peers before each collective,"
        f" for at least {STEPS - 15} steps: suspected GPU 2 or host n1"
    )


def test_where_all_ranks_of_a_node_are_slow_the_host_is_suspected() -> None:
    rows = straggler_rows(reports({4: 1.4, 5: 1.4, 6: 1.4, 7: 1.4}, ranks=16))
    assert [(row["rank"], row["suspect"]) for row in rows] == [(4 + n, "host n1") for n in range(4)]


def test_a_single_rank_of_a_node_says_nothing_of_its_host_alone() -> None:
    (row,) = straggler_rows(reports({8: 1.4}, ranks=9))
    assert row["suspect"] == "GPU 0 or host n2"


@pytest.mark.parametrize(
    ("gpus", "where", "suspect"),
    [(0, "n1", "host n1"), (2, "n1 GPUs 2-3", "GPUs 2-3 or host n1")],
)
def test_a_process_without_a_gpu_or_with_several(gpus: int, where: str, suspect: str) -> None:
    (row,) = straggler_rows(reports({5: 1.5}, gpus_of_process=gpus))
    assert row["suspect"] == suspect
    assert row["sentence"].startswith(f"rank 5 on {where} takes ")


@pytest.mark.parametrize(
    ("parallelism", "groups"),
    [
        ((), [list(range(8))]),
        ((("tensor", 2), ("data", 4)), [list(range(8))]),
        ((("tensor", 2), ("data", 2), ("pipeline", 2)), [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ((("tensor", 2), ("pipeline", 2), ("data", 2)), [[0, 1, 4, 5], [2, 3, 6, 7]]),
        ((("tensor", 1), ("expert", 2), ("data", 4), ("pipeline", 2)), [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ((("tensor", 4), ("data", 4), ("pipeline", 2)), [list(range(8))]),  # not of eight ranks
    ],
)  # fmt: skip
def test_stages_of_a_pipeline_are_not_compared(
    parallelism: tuple[tuple[str, int], ...], groups: list[list[int]]
) -> None:
    assert peer_groups(reports({}, parallelism=parallelism)) == groups


def test_roles_are_not_compared() -> None:
    slow = dict.fromkeys(range(4, 8), 3.0)
    assert straggler_rows(reports(slow, roles=("actor", "learner"))) == []


class Source:
    """Reports that count how often they are read."""

    def __init__(self, told: StepReports | None) -> None:
        self.told, self.reads = told, 0

    def step_reports(self, job: str, attempt: int) -> StepReports | None:
        self.reads += 1
        if job == "damaged":
            raise OSError
        return self.told


def test_a_gang_is_judged_again_after_a_moment_only() -> None:
    now = 0.0
    judge, source = StragglerJudge(lambda: now), Source(reports({2: 1.4}))
    first = judge.rows(source, "j", 1)
    now = FRESH_S / 2
    assert judge.rows(source, "j", 1) is first
    assert source.reads == 1
    source.told, now = None, FRESH_S
    assert judge.rows(source, "j", 1) == []
    assert judge.rows(source, "j", 2) == []
    assert judge.rows(source, "damaged", 1) == []
