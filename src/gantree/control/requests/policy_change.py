"""The effect of another policy: changed rules, and the decisions of a discarded scheduler that has it.

Guarantees and queues are compared before anything is decided, starts and stops are what the first decision says.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from gantree.control.requests.policy_fit import (
    jobs_without_queue,
    limits_of_nothing,
    unpriced_models,
    weights_of_nothing,
)
from gantree.core.ledger.ledger import Ledger
from gantree.core.scheduler import Scheduler, settled
from gantree.formats.policy.gpu_weights import list_prices
from gantree.model.events import Event
from gantree.model.facts import (
    CheckpointRequested,
    GangMoving,
    GangPlaced,
    GangPreempted,
    GangResumed,
    GangSuspended,
    PriorityChanged,
    StopDecided,
)
from gantree.model.phases import StopCause
from gantree.policy.amounts import MODEL
from gantree.policy.budgets import figure
from gantree.policy.rules import Budget, Policy, QueueRule


@dataclass(frozen=True, slots=True)
class RuleChange:
    """One rule by its path ("queues.research.weight"), with what it says before and after; None: nothing."""

    rule: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Stop:
    """A job that would be stopped, for whom ("" for its own sake), and why.

    cause: "priority", "order", "reclaim", "moved" or "budget".
    """

    job: str
    by: str
    cause: str


@dataclass(frozen=True, slots=True)
class Renumbered:
    """A job whose class means another number."""

    job: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """What a policy would change now.

    starts, resumes and suspends (turns on a shared GPU) are job ids; without_queue are jobs whose queue it lacks, by
    queue; warnings are sentences on rules that do nothing on this cluster.
    """

    rules: tuple[RuleChange, ...]
    starts: tuple[str, ...]
    stops: tuple[Stop, ...]
    loses_guarantee: tuple[str, ...]
    gains_guarantee: tuple[str, ...]
    priorities: tuple[Renumbered, ...]
    without_queue: Mapping[str, tuple[str, ...]]
    warnings: tuple[str, ...] = ()
    resumes: tuple[str, ...] = ()
    suspends: tuple[str, ...] = ()


def change_of(ledger: Ledger, trial: Scheduler, event: Event) -> PolicyChange:
    """What is decided at once where a scheduler of the same facts, under another policy, hears of it."""
    twin = trial.ledger
    held = [job for job in ledger.holding if job in twin.holding]
    owed = [job for job in held if ledger.accounts.guarantees.holds_within(ledger.jobs[job])]
    owed_then = [job for job in held if twin.accounts.guarantees.holds_within(twin.jobs[job])]
    without_queue = {queue: tuple(jobs) for queue, jobs in jobs_without_queue(twin).items()}
    numbers = {job: state.priority for job, state in ledger.jobs.items()}
    facts = settled(trial, [event], event.observed_at).facts
    return PolicyChange(
        rules=tuple(rule_changes(ledger.policy, trial.policy)),
        starts=tuple(fact.job for fact in facts if isinstance(fact, GangPlaced)),
        stops=tuple(_stops(facts)),
        loses_guarantee=tuple(job for job in owed if job not in owed_then),
        gains_guarantee=tuple(job for job in owed_then if job not in owed),
        priorities=tuple(
            Renumbered(fact.job, numbers[fact.job], fact.priority)
            for fact in facts
            if isinstance(fact, PriorityChanged)
        ),
        without_queue=without_queue,
        warnings=tuple(idle_rules(twin)),
        resumes=tuple(fact.job for fact in facts if isinstance(fact, GangResumed)),
        suspends=tuple(fact.job for fact in facts if isinstance(fact, GangSuspended)),
    )


def idle_rules(ledger: Ledger) -> list[str]:
    """Sentences on rules of the policy in force that do nothing on this cluster, or something else than meant."""
    policy, fabric = ledger.policy, ledger.fabric
    if fabric is None:
        return []
    found = (limits_of_nothing, weights_of_nothing, unpriced_models)
    return [sentence for each in found for sentence in each(policy, fabric)]


def _stops(facts: tuple[Any, ...]) -> Iterator[Stop]:
    for fact in facts:
        if isinstance(fact, GangPreempted):
            yield Stop(fact.job, fact.by, fact.cause)
        elif isinstance(fact, GangMoving):
            yield Stop(fact.job, fact.by, str(fact.cause))
        elif isinstance(fact, CheckpointRequested | StopDecided) and fact.cause is StopCause.BUDGET:
            yield Stop(fact.job, "", str(fact.cause))


def rule_changes(before: Policy, after: Policy) -> Iterator[RuleChange]:
    """The rules in which two policies differ, in the order of the first, then those that only the second has."""
    was, will_be = dict(_rules("", before)), dict(_rules("", after))
    for rule in dict.fromkeys((*was, *will_be)):
        if was.get(rule) != will_be.get(rule):
            yield RuleChange(rule, was.get(rule), will_be.get(rule))


def _rules(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of rules with their paths; queues by name, not by number."""
    if is_dataclass(value):
        for each in fields(value):
            if not (isinstance(value, QueueRule) and each.name == "path"):
                yield from _rules(_below(path, each.name), getattr(value, each.name))
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _rules(_below(path, str(key)), each)
    elif isinstance(value, tuple) and value and all(isinstance(each, QueueRule) for each in value):
        for rule in value:
            yield from _rules(_below(path, rule.path), rule)
    elif isinstance(value, tuple) and value and all(isinstance(each, Budget) for each in value):
        for budget in value:
            yield f"{path.removesuffix('s')}.{budget.period}", _budget_in_words(budget)
    elif value != () or path.count(".") == 0:
        yield path, value


def _budget_in_words(budget: Budget) -> str:
    """A budget in one line, with what each resource costs."""
    alerts = ", ".join(f"{100 * level:g}%" for level in budget.alerts) or "none"
    listed = list_prices()
    own = {
        name: weight
        for name, weight in budget.weights.items()
        if weight != listed.get(name.removeprefix(MODEL))
    }
    words = [f"{name} {weight:g}" for name, weight in own.items()]
    words += ["list prices"] if len(own) < len(budget.weights) else []
    of = f"{figure(budget.amount)} {budget.unit}, alerts {alerts}, at_limit {budget.at_limit}"
    return ", ".join((of, f"other GPUs {budget.other_gpus:g}", *words))


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
