"""From counts to a proof: the cheapest set of victims that is shown to suffice.

First the number of levels of right is fixed, as small as possible. Then sets are tried, the cheapest by count first
(`choice`), until no remaining one could be cheaper. If a set does not suffice, all victims in its domain are tried
instead. From a set that suffices, unneeded victims are removed, the most expensive first.

If a gang cannot be counted, unneeded victims are removed from all victims in a domain, domain by domain, in two orders:
by price, and by price for each GPU. The first keeps many small victims, the second one large one.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from gantree.placement.request.topology_request import topology_request_of
from gantree.planning.preemption.choice import counted_sets
from gantree.planning.preemption.counts import Counted, Range
from gantree.planning.preemption.trial import Trial, needed_victims

MOST_TRIED = 32
"""Domains that are tried though their counts were wrong, or cannot be counted."""

MOST_TRIED_ALONE = 256
"""Victims that are tried one by one whether they are needed; larger sets are taken as counted."""


@dataclass(slots=True, eq=False)
class _Problem:
    """The victims by number, those of the lowest right first, with their prices, their levels and the nodes of each."""

    trial: Trial
    owners: Sequence[str]
    prices: Sequence[int]
    level_of: Sequence[int]

    def names(self, victims: Iterable[int]) -> list[str]:
        return [self.owners[number] for number in victims]

    def ends(self) -> list[int]:
        """The number of victims up to the end of each level."""
        of = self.level_of
        return [n + 1 for n in range(len(of)) if n + 1 == len(of) or of[n + 1] != of[n]]

    def price(self, victims: Iterable[int]) -> int:
        return sum(self.prices[number] for number in victims)


def chosen_owners(
    trial: Trial, owners: Sequence[str], prices: Sequence[int], level_of: Sequence[int]
) -> list[str] | None:
    """The owners to stop: () if the gang fits as it is, None if not even all suffice. Victims are given by level."""
    if trial.enough(()):
        return []
    problem = _Problem(trial, owners, prices, level_of)
    victims = _by_count(problem) or _by_search(problem)
    return None if victims is None else problem.names(victims)


# ----- by count


def _by_count(problem: _Problem) -> list[int] | None:
    """The cheapest proven set among those that counts suggest; None where none is proven."""
    trial = problem.trial
    trial.only(())
    found = _least_scope(problem)
    if found is None:
        return None
    counted, domains, scope = found
    best: list[int] | None = None
    best_price: float = inf
    for tried, (price, victims, domain) in enumerate(
        counted_sets(counted, problem.prices[:scope], domains)
    ):
        if price >= best_price or tried == MOST_TRIED:
            break
        proven = _proven(problem, counted, scope, victims, domain)
        if proven is not None and problem.price(proven) < best_price:
            best, best_price = proven, problem.price(proven)
    return best


def _least_scope(problem: _Problem) -> tuple[Counted, list[Range], int] | None:
    """The counts with the fewest levels of victims that may suffice, the domains, and the number of these victims."""
    trial, ends = problem.trial, problem.ends()
    found: tuple[Counted, list[Range], int] | None = None
    low, high = 0, len(ends) - 1
    while low <= high:
        middle = high if found is None else (low + high) // 2
        owners = problem.owners[: ends[middle]]
        counted = Counted.of(trial.room, trial.job, owners)
        if counted is None:
            return None
        domains = counted.domains() if trial.admits(owners) else []
        if domains:
            found, high = (counted, domains, ends[middle]), middle - 1
        elif found is None:
            return None
        else:
            low = middle + 1
    return found


def _proven(
    problem: _Problem, counted: Counted, scope: int, victims: Sequence[int], domain: Range
) -> list[int] | None:
    """A set that suffices, without unneeded victims, made of one that should suffice; None where it does not."""
    trial = problem.trial
    enough = list(victims)
    if not trial.fits_without(problem.names(enough)):
        first, stop = domain
        here = (
            number
            for node, node_victims in counted.victims_of_node.items()
            if first <= node < stop
            for victims, _ in node_victims.groups
            for number in victims
        )
        enough = list(dict.fromkeys(here))
        if not trial.fits_without(problem.names(enough)):
            return None
    return _thinned(problem, _admitted(problem, scope, enough))


def _admitted(problem: _Problem, scope: int, victims: Sequence[int]) -> list[int]:
    """These victims, and as many of the other ones, cheapest first, as the quota requires."""
    trial = problem.trial
    if trial.admits(problem.names(victims)):
        return list(victims)
    there = dict.fromkeys(victims)
    others = [number for number in range(scope) if number not in there]
    too_few, enough = 0, len(others)
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if trial.admits(problem.names([*victims, *others[:middle]])):
            enough = middle
        else:
            too_few = middle
    return [*victims, *others[:enough]]


def _thinned(problem: _Problem, victims: Sequence[int]) -> list[int]:
    """The needed victims; the most expensive are tried first."""
    if len(victims) > MOST_TRIED_ALONE:
        return list(victims)
    dearest = sorted(victims, key=lambda number: (-problem.prices[number], number))
    number_of = {problem.owners[number]: number for number in dearest}
    return [number_of[owner] for owner in needed_victims(problem.trial, problem.names(dearest))]


# ----- by search


def _by_search(problem: _Problem) -> list[int] | None:
    """Without counts: the needed victims among all, domain by domain."""
    trial, ends = problem.trial, problem.ends()
    scope = next((end for end in ends if trial.enough(problem.owners[:end])), None)
    if scope is None:
        return None
    best: list[int] | None = None
    for victims in _candidate_sets(problem, scope):
        for order in (problem.prices, _prices_per_gpu(problem)):
            if not trial.enough(problem.names(victims)):
                break
            dearest = sorted(victims, key=lambda number: (-order[number], number))
            number_of = {problem.owners[number]: number for number in dearest}
            kept = [number_of[o] for o in needed_victims(trial, problem.names(dearest))]
            if best is None or problem.price(kept) < problem.price(best):
                best = kept
    return best


def _candidate_sets(problem: _Problem, scope: int) -> Iterator[list[int]]:
    """The sets to reduce: all victims in each domain that would have to hold the gang, the cheapest first, then all."""
    trial = problem.trial
    fabric, job = trial.room.fabric, trial.job
    whole_at = 0 if job.topology.box is not None else topology_request_of(fabric, job).whole_at
    victims_of_domain: dict[int, list[int]] = {}
    for number in range(scope):
        nodes = dict.fromkeys(trial.nodes_of(problem.owners[number]))
        for domain in dict.fromkeys(int(fabric.domain_of_node[whole_at][node]) for node in nodes):
            victims_of_domain.setdefault(domain, []).append(number)
    if whole_at:
        ranked = sorted(victims_of_domain.values(), key=problem.price)
        yield from ranked[:MOST_TRIED]
    yield list(range(scope))


def _prices_per_gpu(problem: _Problem) -> list[int]:
    return [
        price // max(1, problem.trial.gpus_of(owner))
        for price, owner in zip(problem.prices, problem.owners, strict=True)
    ]
