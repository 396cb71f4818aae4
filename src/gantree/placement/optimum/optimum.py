"""An oracle: the placement problem of `placement.choice.search` stated for OR-Tools CP-SAT, to measure the search by.

    fewest domains of the widest tier, then of the next, down to the fewest nodes      `fewest_domains`
    the least predicted time of the gang's traffic, or of its step                      `optimum`

Both return a placement that is made and priced as every other (`placement.members.members`,
`topology.cost.prediction`), and a lower bound. `gang_constraints` states the request, `model` the placement;
`all_reduce_search` and `step_search` search the least time with a proof. Which GPUs of a node a member gets is decided
by `placement.machine`, not here.

OR-Tools is an extra; without it everything here raises Unsupported. Work is counted, not timed (`solver`).
"""

from dataclasses import dataclass
from math import ceil, inf

import numpy as np

from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.placement.members.members import placement_of
from gantree.placement.optimum.all_reduce_search import PROVEN_WITHIN, Priced, fastest
from gantree.placement.optimum.gang_constraints import weights_of_tiers
from gantree.placement.optimum.model import GangModel
from gantree.placement.optimum.options import Options
from gantree.placement.optimum.solver import Work, cp_model
from gantree.placement.optimum.step_search import StepIncumbent, search_steps, seconds_of
from gantree.placement.slots.problem import Problem, Spread
from gantree.topology.cost.cost import pricer_of, ranks_of
from gantree.topology.traffic.paths import each_alone, read_paths

DEFAULT_WORK_S = 10.0
"""CP-SAT's work on one question, in its deterministic seconds."""


@dataclass(frozen=True, slots=True)
class Optimum:
    """The best placement found (None: none fits, or none was found), what it costs, and what none undercuts.

    proven: no placement is better by more than a thousandth of the objective; of fewest domains, by anything; where
    there is no placement, that none fits.
    """

    placement: Placement | None
    objective: float
    bound: float
    proven: bool


def fewest_domains(
    problem: Problem, job: Job, work_s: float = DEFAULT_WORK_S, known: Spread | None = None
) -> Optimum:
    """The placement in the fewest domains, tier by tier. The objective counts them as digits (`weights_of_tiers`)."""
    gang = GangModel(Options.of(problem))
    weights = weights_of_tiers(problem.fabric, sum(problem.members))
    if known is not None:
        gang.hint(known)
    gang.model.minimize(
        sum(weight * gang.used.domains(tier) for tier, weight in enumerate(weights) if weight)
    )
    spread, answer = gang.spread(Work(work_s))
    if spread is None:
        return Optimum(None, inf, inf if answer.proven else answer.bound, answer.proven)
    objective = sum(
        weight * len({int(problem.fabric.domain_of_node[tier][node]) for node, _ in spread})
        for tier, weight in enumerate(weights)
    )
    bound = ceil(answer.bound - 1e-6)  # the objective is whole, the solver's bound is not quite
    return Optimum(placement_of(problem, spread, job), objective, bound, answer.proven)


def optimum(
    problem: Problem, job: Job, work_s: float = DEFAULT_WORK_S, known: Spread | None = None
) -> Optimum:
    """Return the placement of the least predicted time; known is one to begin from.

    The time is that of the step where the job declares its traffic and its parallelism fits its GPUs, else of the
    yardstick all-reduce. If the work suffices, the fastest all-reduce is always found. The shortest step is the best
    of those placements that the search visits, compared with a lower bound (`step_bound`).
    """
    found = _fastest(problem, job, Work(work_s), known)
    if found.spread is None:
        return Optimum(None, inf, found.bound_s, found.bound_s == inf)
    placement = placement_of(problem, found.spread, job)
    seconds = seconds_of(placement)
    proven = found.bound_s >= seconds * (1 - PROVEN_WITHIN)
    return Optimum(placement, seconds, found.bound_s, proven)


def faster_spread(problem: Problem, known: Spread, job: Job, work_s: float) -> Spread | None:
    """A spread that is faster than a known one by more than a thousandth, if the optimum is that much faster.

    None too where the question is too large to be stated (`Options.too_large`). Raises Unsupported without OR-Tools.
    """
    cp_model()
    if Options.too_large(problem):
        return None
    found = _fastest(problem, job, Work(work_s), known).spread
    if found is None or found == known:
        return None
    seconds = [seconds_of(placement_of(problem, spread, job)) for spread in (found, known)]
    return found if seconds[0] < seconds[1] * (1 - PROVEN_WITHIN) else None


@dataclass(frozen=True, slots=True)
class _Found:
    """The fastest spread (None: none fits, or none was found), and seconds that none undercuts."""

    spread: Spread | None
    bound_s: float


def _fastest(problem: Problem, job: Job, work: Work, known: Spread | None) -> _Found:
    options = Options.of(problem)
    if known is None:
        known, answer = GangModel(options).spread(work)
        if known is None:
            return _Found(None, inf if answer.proven else 0.0)
    placement = placement_of(problem, known, job)
    tells_step = placement.predicted.step_s is not None
    if options.gpus < 2 and not tells_step:
        return _Found(known, seconds_of(placement))
    seen = _Seen(problem)
    if not tells_step:
        best = fastest(options, seen.price, seen.price(known), work)
        assert best.known is not None, "the known place was priced"
        return _Found(best.known.spread, best.bound_s)
    steps = StepIncumbent(problem, job)
    steps.take(known)
    if options.gpus > 1:
        fastest(options, seen.price, seen.price(known), work)
    for spread in seen.spreads:
        steps.take(spread)
    return _Found(steps.best, search_steps(options, job, steps, work))


class _Seen:
    """Placements that were priced, each once, in the order of their pricing."""

    def __init__(self, problem: Problem) -> None:
        self._problem, self._pricer = problem, pricer_of(problem.fabric)
        self.spreads: list[Spread] = []

    def price(self, spread: Spread) -> Priced:
        """Return the time and rates of the all-reduce over the placement of a spread."""
        if spread not in self.spreads:
            self.spreads.append(spread)
        placement = placement_of(self._problem, spread)
        ranks = np.array(ranks_of(self._problem.fabric, placement.members), dtype=np.int64)
        nodes, gpus = ranks[None, :, 0], ranks[None, :, 1]
        paths = read_paths(self._pricer.traffic_index, nodes, gpus, each_alone(1))
        return Priced(
            spread=spread,
            seconds=placement.predicted.comm_s,
            islands=int(paths.islands[0]),
            ring_GBps=float(paths.ring_GBps[0]),
            in_switch_GBps=float(paths.in_switch_GBps[0]),
            out_GBps=float(paths.out_GBps[0]),
        )
