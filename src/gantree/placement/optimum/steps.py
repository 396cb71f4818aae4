"""The place with the shortest step among those that CP-SAT is led to, case by case, and what no step undercuts.

A step is not monotone in one rate, so no front of rates finds its best place for certain. What is known is a bound
(`optimum_step`) that falls with the rate at which the tightest island sends. So for each case a place is asked for that
sends faster than any place must to beat the best one known; if there is none, the case is done. If there is one, it is
priced, and a few more floors are tried, halving what is open, for the sake of the bound and of the places. Single
nodes are all tried, as far as they differ.
"""

from dataclasses import dataclass, field
from math import inf

from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.placement.members.members import placement_of
from gantree.placement.optimum.model import Case
from gantree.placement.optimum.options import Options
from gantree.placement.optimum.solver import Work
from gantree.placement.optimum.step import StepBound
from gantree.placement.optimum.time import PROVEN_WITHIN, RING, Front, cases, place_that_sends
from gantree.placement.slots.problem import Problem, Spread

FLOORS_TRIED = 8


def seconds_of(placement: Placement) -> float:
    """What counts of a placement: its step where the job tells it, else the all-reduce."""
    step_s = placement.predicted.step_s
    return placement.predicted.comm_s if step_s is None else step_s


@dataclass(slots=True)
class Steps:
    """The best place so far, by its step."""

    problem: Problem
    job: Job
    best: Spread = field(default_factory=list)
    best_s: float = inf

    def take(self, spread: Spread) -> float:
        """Price a place, and keep it if its step is shorter."""
        step_s = seconds_of(placement_of(self.problem, spread, self.job))
        if step_s < self.best_s:
            self.best, self.best_s = spread, step_s
        return step_s

    @property
    def to_beat_s(self) -> float:
        """Steps below this are shorter by more than is asked for."""
        return self.best_s * (1 - PROVEN_WITHIN)


def follow_steps(options: Options, job: Job, steps: Steps, work: Work) -> float:
    """Take what is best in each case; what no step undercuts in any."""
    bound, node_tier = StepBound(options, job), options.problem.fabric.node_tier
    each_node = all(role.shape.gpus for role in options.problem.request.roles)
    least_s = _least_on_one_node(options, steps) if each_node else inf
    for case in cases(options):
        if each_node and case.top == node_tier:
            continue
        spread, proven = place_that_sends(options, case, 0.0, work)
        if spread is None:
            least_s = min(least_s, inf if proven else bound.least_s(case))
            continue
        steps.take(spread)
        fewest, _, _ = Front(options, case, RING, 1, inf).fewest_steps(0.0, work)
        if fewest is not None:
            steps.take(fewest)
        floor_GBps = bound.out_for(case, steps.to_beat_s)
        if floor_GBps < inf and case.outside:
            ceiling = _tried(options, case, floor_GBps, steps, work)
            least_s = min(least_s, bound.least_s(case, ceiling))
        else:
            least_s = min(least_s, bound.least_s(case))
    return least_s


def _least_on_one_node(options: Options, steps: Steps) -> float:
    """The shortest step of a gang that is whole on one node: each node that differs from the others is tried."""
    alike, least_s = set[tuple[int, int]](), inf
    for node, of_node in options.of_node.items():
        for option in of_node:
            key = (int(options.traffic_index.kind_of_node[node]), option.mask)
            if option.counts == options.problem.members and key not in alike:
                alike.add(key)
                least_s = min(least_s, steps.take([(node, option.counts)]))
    return least_s


def _tried(options: Options, case: Case, floor_GBps: float, steps: Steps, work: Work) -> float:
    """A rate that the tightest island of no place of a case exceeds; the lowest that a few floors show."""
    reached, ceiling = 0.0, _most_GBps(options)
    for _ in range(FLOORS_TRIED):
        spread, proven = place_that_sends(options, case, floor_GBps, work)
        if spread is not None:
            steps.take(spread)
            reached = floor_GBps
        elif proven:
            ceiling = floor_GBps
        if not reached or (spread is None and not proven):
            break
        floor_GBps = (reached + ceiling) / 2
    return ceiling


def _most_GBps(options: Options) -> float:
    """What all nodes together could send."""
    return sum(max(option.out_GBps for option in each) for each in options.of_node.values())
