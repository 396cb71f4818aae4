"""Searches the placement with the shortest step with CP-SAT, case by case, and a lower bound on the step.

A step is not monotone in one rate, so no Pareto front of rates contains its best placement for certain. Its lower bound
(`step_bound`) falls as the rate of the tightest island rises. For each case CP-SAT searches a placement whose islands
send faster than any placement must to beat the incumbent. If none exists, the case is closed. Otherwise the placement
is priced, and a bisection over the rate tightens the bound and finds more placements. Placements on a single node are
enumerated, equal nodes once.
"""

from dataclasses import dataclass, field
from math import inf

from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.placement.members.members import placement_of
from gantree.placement.optimum.all_reduce_search import (
    PROVEN_WITHIN,
    RING,
    ParetoFront,
    cases,
    placement_with_egress,
)
from gantree.placement.optimum.model import Case
from gantree.placement.optimum.options import Options
from gantree.placement.optimum.solver import Work
from gantree.placement.optimum.step_bound import StepBound
from gantree.placement.slots.problem import Problem, Spread

FLOORS_TRIED = 8


def seconds_of(placement: Placement) -> float:
    """Return the objective in seconds: the predicted step where the job declares its traffic, else the all-reduce."""
    step_s = placement.predicted.step_s
    return placement.predicted.comm_s if step_s is None else step_s


@dataclass(slots=True)
class StepIncumbent:
    """The placement with the shortest step found so far."""

    problem: Problem
    job: Job
    best: Spread = field(default_factory=list)
    best_s: float = inf

    def take(self, spread: Spread) -> float:
        """Return the step of a placement in seconds, and keep the placement if its step is the shortest."""
        step_s = seconds_of(placement_of(self.problem, spread, self.job))
        if step_s < self.best_s:
            self.best, self.best_s = spread, step_s
        return step_s

    @property
    def to_beat_s(self) -> float:
        """Steps below this are better by more than PROVEN_WITHIN."""
        return self.best_s * (1 - PROVEN_WITHIN)


def search_steps(options: Options, job: Job, steps: StepIncumbent, work: Work) -> float:
    """Search each case; return a lower bound on the step, in seconds, over all of them."""
    bound, node_tier = StepBound(options, job), options.problem.fabric.node_tier
    each_node = all(role.shape.gpus for role in options.problem.request.roles)
    least_s = _least_on_one_node(options, steps) if each_node else inf
    for case in cases(options):
        if each_node and case.top == node_tier:
            continue
        spread, proven = placement_with_egress(options, case, 0.0, work)
        if spread is None:
            least_s = min(least_s, inf if proven else bound.least_s(case))
            continue
        steps.take(spread)
        fewest, _, _ = ParetoFront(options, case, RING, 1, inf).fewest_steps(0.0, work)
        if fewest is not None:
            steps.take(fewest)
        floor_GBps = bound.egress_to_beat(case, steps.to_beat_s)
        if floor_GBps < inf and case.outside:
            ceiling = _tried(options, case, floor_GBps, steps, work)
            least_s = min(least_s, bound.least_s(case, ceiling))
        else:
            least_s = min(least_s, bound.least_s(case))
    return least_s


def _least_on_one_node(options: Options, steps: StepIncumbent) -> float:
    """Return the shortest step of the gang on one node; of equal nodes one is tried."""
    alike, least_s = set[tuple[int, int]](), inf
    for node, of_node in options.of_node.items():
        for option in of_node:
            key = (int(options.traffic_index.kind_of_node[node]), option.mask)
            if option.counts == options.problem.members and key not in alike:
                alike.add(key)
                least_s = min(least_s, steps.take([(node, option.counts)]))
    return least_s


def _tried(
    options: Options, case: Case, floor_GBps: float, steps: StepIncumbent, work: Work
) -> float:
    """Return a rate that the tightest island of no placement of a case exceeds, by FLOORS_TRIED bisections."""
    reached, ceiling = 0.0, _most_GBps(options)
    for _ in range(FLOORS_TRIED):
        spread, proven = placement_with_egress(options, case, floor_GBps, work)
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
    """Return the sum of the rates of all nodes."""
    return sum(max(option.out_GBps for option in each) for each in options.of_node.values())
