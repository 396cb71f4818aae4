"""Checks a policy against the site and the jobs that it will rule, before it is applied.

Where it does not, the daemon does not start: jobs that run go on running, and the message says what to change. Where an
executor finds the nodes, which come and go, it starts with a warning. Commands that only ask what a policy would do on
a cluster are refused in the same words.
"""

import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from gantree.control.requests.unknown_gpu_models import gpu_models_of, no_node_has
from gantree.core.ledger.job_amounts import capacity_of
from gantree.core.ledger.ledger import Ledger
from gantree.formats.policy.locations import NOWHERE, PolicyPlaces
from gantree.model.cluster import Cluster
from gantree.model.errors import BadInput
from gantree.placement.machine.devices import INNER_TIERS
from gantree.planning.cells.domains import CellDomains
from gantree.policy.amounts import MODEL
from gantree.policy.queues import ROOT, QueueTree
from gantree.policy.quota.admission import in_words
from gantree.policy.quota.quota import Quota
from gantree.policy.rules import LOOSE, Amounts, Budget, Policy, QueueRule
from gantree.text.words import counted, did_you_mean
from gantree.topology.fabric.fabric import Fabric

log = logging.getLogger(__name__)


def check_fit(
    policy: Policy,
    cluster: Cluster,
    ledger: Ledger,
    places: PolicyPlaces = NOWHERE,
    *,
    may_grow: bool = False,
) -> None:
    """Raise BadInput for cells and guarantees that the cluster cannot hold, and for classes of jobs that it lacks.

    may_grow: nodes come and go by themselves, so what it cannot hold now is only logged.
    """
    _check_classes(policy, ledger, places)
    if not policy.queues:
        return
    recorded = ledger.fabric
    is_known = recorded is not None and ledger.site.described == cluster
    fabric = recorded if is_known and recorded is not None else Fabric.build(cluster)
    try:
        check_site(policy, fabric, places)
    except BadInput as error:
        if not may_grow:
            raise
        log.warning("more is guaranteed than there is now: %s", error)


class Misfit(NamedTuple):
    """What a cluster cannot hold: of which queue, in which of its fields, and why."""

    queue: str
    keys: tuple[str, ...]
    why: str


def check_site(policy: Policy, fabric: Fabric, places: PolicyPlaces = NOWHERE) -> None:
    """Raise BadInput for cells and guarantees that a cluster cannot hold, a line each in the order of the policy."""
    queues = policy.queues
    wrong = list(_wrong_cells(queues, fabric))
    owed = queues if wrong else _with_cells(queues, fabric)
    wrong += [*_no_such(queues, fabric), *_too_much(owed, fabric)]
    if wrong:
        order = {rule.path: number for number, rule in enumerate(queues)}
        wrong.sort(key=lambda misfit: order[misfit.queue])
        told = (f"{places.of_queue(each.queue, *each.keys)}: {each.why}" for each in wrong)
        raise BadInput("\n".join(told))


def jobs_without_queue(ledger: Ledger) -> dict[str, list[str]]:
    """The jobs that have not ended of each queue that the policy does not have; {} where it names no queues at all."""
    tree, found = ledger.accounts.tree, dict[str, list[str]]()
    for job, spec in () if tree.open else ledger.live_specs():
        node = tree.queue_node(spec.queue)
        if node is None or tree.rule[node] is None:
            found.setdefault(spec.queue, []).append(job)
    return found


def limits_of_nothing(policy: Policy, fabric: Fabric) -> list[str]:
    """Sentences on limits of GPU models that no node has: they limit nothing. Such a node may yet come."""
    here = gpu_models_of(fabric)
    return [
        f"queue {rule.path}: {'.'.join((*field, *_keys(resource)))}: {no_node_has('this model', model, here)}"
        for rule in policy.queues
        for field, amounts in _limits(rule)
        for resource in amounts
        if resource.startswith(MODEL) and (model := resource.removeprefix(MODEL)) not in here
    ]


def weights_of_nothing(policy: Policy, fabric: Fabric) -> list[str]:
    """Sentences on weights in budgets of GPU time for models that no node has. Such a node may yet come.

    Budgets of money are left out: list prices are of all models of the catalogue.
    """
    here = gpu_models_of(fabric)
    return [
        f"queue {rule.path}: budget.{budget.period}: weights.gpus.{model}: {no_node_has('this model', model, here)}"
        for rule in policy.queues
        for budget in rule.budgets
        if not budget.is_money
        for resource in budget.weights
        if resource.startswith(MODEL) and (model := resource.removeprefix(MODEL)) not in here
    ]


def unpriced_models(policy: Policy, fabric: Fabric) -> list[str]:
    """Sentences on GPU models of the cluster without a price in a budget: they cost as much as the dearest."""
    here = gpu_models_of(fabric)
    return [
        f"queue {rule.path}: budget.{budget.period}: {model} has no price and costs as much as the dearest, "
        f"{budget.other_gpus:g} {budget.unit} an hour: write prices.gpus.{model}"
        for rule in policy.queues
        for budget in rule.budgets
        for model in here
        if _is_guessed(budget, model)
    ]


def _is_guessed(budget: Budget, model: str) -> bool:
    prices = [price for name, price in budget.weights.items() if name.startswith(MODEL)]
    is_dearest = bool(prices) and budget.other_gpus == max(prices)
    return budget.is_money and is_dearest and MODEL + model not in budget.weights


def _limits(rule: QueueRule) -> Iterator[tuple[tuple[str, ...], Amounts]]:
    """What a queue may have, lend and borrow, with the fields of the policy file."""
    yield ("limit",), rule.limit
    yield ("lend",), rule.lend
    if rule.lend_idle is not None:
        yield ("lend", "keep"), rule.lend_idle.keep
    yield ("borrow",), rule.borrow
    yield ("user", "limit"), rule.user_limit


# ----- cells


def _wrong_cells(queues: Sequence[QueueRule], fabric: Fabric) -> Iterator[Misfit]:
    """The first cells that cannot be beside those listed before them."""
    owned = [
        QueueRule(rule.path, cells=((tier, count),))
        for rule in queues
        for tier, count in rule.cells
    ]
    fitting = bisect_left(
        range(1, len(owned) + 1), True, key=lambda upto: not _can_be(owned[:upto], fabric)
    )
    if fitting < len(owned):
        upto = owned[: fitting + 1]
        ((tier, _),) = upto[-1].cells
        yield Misfit(upto[-1].path, ("cells", tier), _why_not(upto, fabric))


def _can_be(owned: Sequence[QueueRule], fabric: Fabric) -> bool:
    try:
        CellDomains.of(owned, fabric)
    except BadInput:
        return False
    return True


def _why_not(owned: Sequence[QueueRule], fabric: Fabric) -> str:
    """Why the last of these cells cannot be, where all before it can."""
    name, ((tier, count),) = fabric.cluster.name, owned[-1].cells
    tiers = dict.fromkeys((*fabric.tiers, *INNER_TIERS, LOOSE))
    if tier not in tiers:
        hint = did_you_mean(tier, tiers)
        return f"cluster {name} has no such tier; tiers here: {', '.join(tiers)}. {hint}".rstrip()
    try:
        cell_domains = CellDomains.of(owned, fabric, check=False)
    except BadInput as error:
        return str(error)
    there = sum(int(level.whole.sum()) for level in cell_domains.levels if level.tier == tier)
    cells = counted(count, f"cell of tier {tier} does", f"cells of tier {tier} do")
    return (
        f"{cells} not fit cluster {name} beside the cells listed before (whole domains of that tier in all: {there}); "
        "own fewer cells, or narrower ones"
    )


# ----- guarantees


def _no_such(queues: Sequence[QueueRule], fabric: Fabric) -> Iterator[Misfit]:
    """Guarantees of GPU models that no node has."""
    here = gpu_models_of(fabric)
    for rule in queues:
        for resource, amount in rule.guarantee.items():
            model = resource.removeprefix(MODEL)
            if amount and resource.startswith(MODEL) and model not in here:
                keys = ("guarantee", *_keys(resource))
                yield Misfit(rule.path, keys, no_node_has("this model", model, here))


def _too_much(queues: Sequence[QueueRule], fabric: Fabric) -> Iterator[Misfit]:
    """What is guaranteed altogether beyond what there is, told of the queue with which it is."""
    tree, capacity = QueueTree(queues), capacity_of(fabric)
    quota = Quota(tree, capacity)
    for resource, amount in quota.usage.guaranteed(ROOT).items():
        there = capacity.get(resource, 0.0)
        if amount <= there or (resource.startswith(MODEL) and not there):
            continue
        shares = _shares(queues, tree, quota, resource)
        tier = {rule.path: rule.cells[0][0] for rule in queues if rule.cells and resource == LOOSE}
        fewer = "" if tier.keys().isdisjoint(shares) else "own fewer cells, "
        why = (
            f"{in_words(resource)} guaranteed altogether: {amount:g} ({_listed(shares, tier)}), and cluster "
            f"{fabric.cluster.name} has {there:g}; guarantee less, {fewer}or take a larger cluster"
        )
        queue = _last_straw(shares, there)
        keys = ("cells", tier[queue]) if queue in tier else ("guarantee", *_keys(resource))
        yield Misfit(queue, keys, why)


def _listed(shares: Mapping[str, float], owners: Container[str]) -> str:
    """What each queue is guaranteed; of those that own cells, that it is in cells."""
    return ", ".join(
        f"{queue} {share:g}{' in cells' if queue in owners else ''}"
        for queue, share in shares.items()
    )


def _with_cells(queues: Sequence[QueueRule], fabric: Fabric) -> Sequence[QueueRule]:
    """The queues, each guaranteed the GPUs of its cells, too: a cell has those of the smallest domain it can be."""
    cell_domains = CellDomains.of(queues, fabric, check=False)
    gpus_of_tier = {
        level.tier: int(level.gpus_of_domain[level.whole].min()) for level in cell_domains.levels
    }
    gpus_of_queue = Counter[str]()
    for cell in cell_domains.cells:
        gpus_of_queue[cell.queue] += gpus_of_tier[cell.tier]
    return [
        replace(rule, guarantee={**rule.guarantee, LOOSE: gpus + rule.guarantee.get(LOOSE, 0.0)})
        if (gpus := gpus_of_queue[rule.path])
        else rule
        for rule in queues
    ]


def _shares(
    queues: Sequence[QueueRule], tree: QueueTree, quota: Quota, resource: str
) -> dict[str, float]:
    """What the topmost queues that speak of a resource are guaranteed of it, in the order of the policy."""
    shares: dict[str, float] = {}
    for rule in queues:
        node = tree.queue_node(rule.path)
        above = any(rule.path.startswith(f"{queue}/") for queue in shares)
        if node is not None and not above and _speaks_of(rule.guarantee, resource):
            shares[rule.path] = quota.usage.guaranteed(node)[resource]
    return shares


def _speaks_of(guarantee: Amounts, resource: str) -> bool:
    """What is guaranteed of GPU models is guaranteed of GPUs, too."""
    return any(
        amount and (key == resource or (resource == LOOSE and key.startswith(MODEL)))
        for key, amount in guarantee.items()
    )


def _last_straw(shares: dict[str, float], there: float) -> str:
    """The first queue with which the shares are more than there is; the last, where only roundings are."""
    total = accumulate(shares.values())
    too_many = (queue for queue, upto in zip(shares, total, strict=True) if upto > there)
    return next(too_many, list(shares)[-1])


def _keys(resource: str) -> tuple[str, ...]:
    """The fields of a resource in a policy file, below `guarantee`."""
    if resource == LOOSE:
        return (LOOSE, "any")
    return tuple(resource.split("/", 1))


# ----- classes


def _check_classes(policy: Policy, ledger: Ledger, places: PolicyPlaces) -> None:
    for job, spec in ledger.live_specs():
        try:
            policy.priority_of(spec.priority)
        except BadInput as error:
            way_out = "keep the class in `priorities`, or start with the policy as it was and cancel the job first"
            raise BadInput(
                f"{places.of('priorities')}: {job} has not ended, and its {error} {way_out}"
            ) from None
