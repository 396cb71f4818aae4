"""The queue tree as plain JSON values: guarantees, usage, borrowed and lent amounts. No HTTP here."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from math import isfinite
from typing import Any

from gantree.api.views.accounting.budget_view import budgets_json
from gantree.api.views.lending_view import lending_json
from gantree.core.cycle.cell_plans import lost_cells
from gantree.core.ledger.accounts.accounts import Accounts
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.policy.cells import Cell, cells_of
from gantree.policy.queues import ROOT
from gantree.policy.rules import QueueRule

Json = dict[str, Any]
NO_RULE = QueueRule("")


def queues_json(ledger: Ledger, now: float) -> list[Json]:
    """The whole cluster, then all queues, cohorts and users, each below what it is in.

    Of queues that the policy has no more, those that jobs still have.
    """
    holding = ledger.holding.values()
    used = _held_under(ledger, holding)
    above_guarantee = _held_under(
        ledger, (state for state in holding if not ledger.accounts.guarantees.holds_within(state))
    )
    lost = frozenset(lost_cells(ledger))
    return [
        _row(ledger, node, used.get(node, {}), above_guarantee.get(node, {}), lost, now)
        for node in _shown(ledger)
    ]


def _shown(ledger: Ledger) -> Iterator[int]:
    """The nodes of the tree without queues that the policy has no more and no live job has."""
    accounts, every = ledger.accounts, list(_in_tree(ledger.accounts))
    if all(_is_in_policy(accounts, node) for node in every):
        return iter(every)
    live = (state for state in ledger.jobs.values() if state.ended_at is None)
    queues = chain(
        (state.queue for state in live), (each.queue for each in ledger.unsplit.values())
    )
    had = {node for queue in queues for node in accounts.tree.path(queue)}
    return (node for node in every if node in had or _is_in_policy(accounts, node))


def _in_tree(accounts: Accounts, node: int = ROOT) -> Iterator[int]:
    yield node
    for child in accounts.tree.children[node]:
        yield from _in_tree(accounts, child)


def _held_under(ledger: Ledger, states: Iterable[JobState]) -> dict[int, dict[str, float]]:
    """What some of the gangs that hold a place hold, by node of the tree."""
    held_under: dict[int, dict[str, float]] = {}
    for state in states:
        assert state.placement is not None
        held = ledger.accounts.amounts.held(state.placement)
        for node in ledger.accounts.tree.path(state.queue):
            under = held_under.setdefault(node, {})
            for resource, amount in held.items():
                under[resource] = under.get(resource, 0.0) + amount
    return held_under


def _row(
    ledger: Ledger,
    node: int,
    used: Mapping[str, float],
    above_guarantee: Mapping[str, float],
    lost: frozenset[Cell],
    now: float,
) -> Json:
    accounts = ledger.accounts
    tree, quota, shares = accounts.tree, accounts.quota, accounts.shares
    rule = tree.rule[node] or NO_RULE
    share = shares.share(node, now) if node != ROOT else None
    return {
        "name": tree.name[node],
        "kind": _kind(accounts, node),
        "depth": len(tree.path(node)) - 1,
        "queue": tree.queue[node] or None,
        "user": tree.user[node],
        "cohort": rule.cohort,
        "weight": tree.weight[node],
        "share": share if share is not None and isfinite(share) else None,
        "used_part": shares.used_part(node, now),
        "guarantee": _above_zero(quota.usage.guaranteed(node)) if node != ROOT else {},
        "used": _above_zero(used),
        "borrowed": _above_zero(_borrowed(accounts, node, above_guarantee)),
        "lent": _above_zero(quota.usage.lent(node)) if node != ROOT else {},
        "limit": dict(_limit(accounts, node)),
        "running": quota.counts.running(node),
        "waiting": quota.counts.waiting(node),
        "cells": _cells(ledger, rule, lost),
        "lending": lending_json(accounts, node, now),
        "budgets": budgets_json(accounts.budgets, rule.path, now),
        **({} if _is_in_policy(accounts, node) else {"in_policy": False}),
    }


def _is_in_policy(accounts: Accounts, node: int) -> bool:
    """False for a queue that the policy had when jobs of it came, and has no more; and for its users."""
    tree = accounts.tree
    if tree.open or not tree.queue[node]:
        return True
    of_queue = node if tree.user[node] is None else tree.parent[node]
    return tree.rule[of_queue] is not None


def _kind(accounts: Accounts, node: int) -> str:
    if node == ROOT:
        return "cluster"
    if accounts.tree.is_cohort(node):
        return "cohort"
    return "queue" if accounts.tree.user[node] is None else "user"


def _limit(accounts: Accounts, node: int) -> Mapping[str, float]:
    """What may be used at most: by the whole cluster what it has, by a user what each may."""
    if node == ROOT:
        return accounts.quota.capacity
    rule = accounts.tree.limiting_rule(node)
    if rule is None:
        return {}
    return rule.limit if accounts.tree.user[node] is None else rule.user_limit


def _borrowed(
    accounts: Accounts, node: int, above_guarantee: Mapping[str, float]
) -> Mapping[str, float]:
    """What is used above the guarantees of a node and of all that it is in, by jobs that are not owed it.

    A guarantee above covers the first ranks under it, wherever these are; who is at home in cells is owed them.
    """
    over = [accounts.quota.usage.borrowed(each) for each in accounts.tree.path(node)[:-1]]
    if not over:
        return {}
    return {
        resource: min(above_guarantee.get(resource, 0.0), *(each[resource] for each in over))
        for resource in over[0]
    }


def _above_zero(amounts: Mapping[str, float]) -> Json:
    return {resource: amount for resource, amount in amounts.items() if amount > 0}


def _cells(ledger: Ledger, rule: QueueRule, lost: frozenset[Cell]) -> list[Json]:
    """The cells that a queue owns, where each is bound now (null: nowhere), and whether it could not be anywhere."""
    return [
        {
            "tier": cell.tier,
            "number": cell.number,
            "domain": ledger.bound.get((cell.queue, cell.tier, cell.number)),
            "lost": cell in lost,
        }
        for cell in cells_of([rule])
    ]
