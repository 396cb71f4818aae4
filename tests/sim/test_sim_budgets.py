"""A trace under a policy with budgets: each day's work ends at the budget, and all of it is done in the end."""

from collections import defaultdict

from gantree.formats.traces import TraceJob
from gantree.model.budget_facts import BudgetNoted
from gantree.policy.rules import Budget, Policy, QueueRule
from gantree.sim.cluster import Overheads
from gantree.sim.run import Simulation
from gantree.testing.builders import cluster

DAY_S, HOUR_S = 86_400.0, 3600.0


def test_work_that_saves_goes_on_each_day_until_the_budget_of_the_day_is_used() -> None:
    daily = Budget("day", 40.0, "GPU-hours", HOUR_S, {}, 1.0, alerts=(0.5,), at_limit="stop")
    rules = Policy(queues=(QueueRule("research", budgets=(daily,)), QueueRule("other")))
    trace = [
        TraceJob("long", 0.0, 12 * HOUR_S, 1, 8, queue="research", checkpoint_s=600.0),
        TraceJob("free", 0.0, 12 * HOUR_S, 1, 8, queue="other"),
    ]
    run = Simulation(cluster(leaves=1, nodes=2, gpus=8), trace, rules, Overheads())
    used_on_day: dict[float, float] = defaultdict(float)
    noted: list[tuple[float, bool]] = []
    while run.step():
        ledger = run.scheduler.ledger
        (key,) = ledger.accounts.budgets.of_key
        use = ledger.accounts.budgets.use(key, run.scheduler.now)
        used_on_day[use.started_at / DAY_S] = use.used
        fact = ledger.accounts.budgets.noted.get(key)
        if isinstance(fact, BudgetNoted) and noted[-1:] != [(fact.at, fact.closed)]:
            noted.append((fact.at, fact.closed))
    ended = {state.job: state.ended_at for state in run.scheduler.ledger.jobs.values()}
    assert [round(used) for _, used in sorted(used_on_day.items())] == [40, 40, 16]
    assert min(ended.values(), key=lambda at: at or 0.0) == 12 * HOUR_S
    assert [closed for _, closed in noted] == [False, True, False, False, True, False]
