"""The interface to OR-Tools' CP-SAT: imported on demand, one worker, a fixed seed, deterministic limits.

OR-Tools is an extra (`pip install gantree[optimum]`): nothing else in the project needs it, and it is imported here
only when the first model is made. A limit is CP-SAT's *deterministic time*: work that it counts itself and that is
about a second of one core each. The same question with the same limit gives the same answer on every machine, and no
clock is read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from gantree.model.errors import Unsupported

SEED = 1
LEAST_WORK = 1e-4
"""Deterministic seconds under which CP-SAT is not even asked."""


@dataclass(slots=True)
class Work:
    """Deterministic seconds that are left for all solves of one question together."""

    left_s: float

    @property
    def done(self) -> bool:
        """Whether nothing is left."""
        return self.left_s < LEAST_WORK


@dataclass(frozen=True, slots=True)
class Answer:
    """What one solve came to: values of the variables asked for (None: no solution), and what no solution undercuts.

    proven: the values are the best, or there are none. bound is 0 where nothing was to be minimised.
    """

    values: tuple[int, ...] | None
    bound: float
    proven: bool


def cp_model() -> Any:
    """The module of CP-SAT. Raises Unsupported where OR-Tools is not installed."""
    try:
        return import_module("ortools.sat.python.cp_model")
    except ModuleNotFoundError:
        raise Unsupported(
            "the optimum needs OR-Tools, which is not installed here; install it with "
            "`pip install gantree[optimum]`, or leave exact_s at 0 to place without it"
        ) from None


def solved(model: Any, wanted: Sequence[Any], work: Work) -> Answer:
    """Solve a model within what is left of the work, and read these variables."""
    if work.done:
        return Answer(None, 0.0, False)
    module = cp_model()
    solver = module.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = 1
    parameters.random_seed = SEED
    parameters.max_deterministic_time = work.left_s
    status = solver.solve(model)
    work.left_s -= max(LEAST_WORK, float(solver.response_proto.deterministic_time))
    assert status != module.MODEL_INVALID, model.validate()
    bound = float(solver.best_objective_bound)
    if status == module.INFEASIBLE:
        return Answer(None, bound, True)
    if status == module.UNKNOWN:
        return Answer(None, bound, False)
    values = tuple(int(solver.value(variable)) for variable in wanted)
    return Answer(values, bound, status == module.OPTIMAL)
