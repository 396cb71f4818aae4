"""What is compared: the same job on the same network, placed and ordered in different ways."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobOf:
    """One job: its members; pinned to nodes in rank order, or placed by gantree where there are none."""

    members: int
    pinned: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Scenario:
    """Jobs that run at the same time under a policy, on a network of which some nodes are held by others."""

    group: str
    name: str
    jobs: tuple[JobOf, ...]
    policy: str = "gantree"
    busy: tuple[int, ...] = ()

    @property
    def key(self) -> str:
        """Unique among all."""
        return f"{self.group}/{self.name}"


BUSY = (0, 1)
"""So first-fit has two nodes left in the first leaf."""
FOUR = (JobOf(4),)
SCENARIOS = (
    Scenario("placement", "gantree", FOUR, busy=BUSY),
    Scenario("placement", "first-fit", FOUR, "blind-first-fit", BUSY),
    Scenario("placement", "random", FOUR, "blind-random", BUSY),
    Scenario("placement", "adversarial", (JobOf(4, (2, 4, 3, 5)),), busy=BUSY),
    Scenario("rank order", "gantree", (JobOf(8),)),
    Scenario("rank order", "adversarial", (JobOf(8, (0, 4, 1, 5, 2, 6, 3, 7)),)),
    Scenario("two jobs", "gantree: a leaf each", (JobOf(4), JobOf(4))),
    Scenario("two jobs", "both over the spine", (JobOf(4, (0, 1, 4, 5)), JobOf(4, (2, 3, 6, 7)))),
)
"""The first of each group is what the others are compared with."""
