"""From counts to a proof: the cheapest set of victims that is shown to suffice.

First the levels of right are settled: no more of them than it takes. Then sets are tried, the cheapest by count first
(`preempt_choice`), until none that is left could be cheaper; where a set turns out not to be enough, everybody in its
domain goes instead. Whatever is enough is then thinned out, the dearest first, until nobody in it can be spared.

Gangs that cannot be counted are thinned out of everybody in a domain, domain by domain, in two orders: the dearest
first, and the dearest for each GPU first. Either keeps what the other loses: many small victims, or one large one.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from gantree.placement.request.topology_request import topology_request_of
from gantree.planning.preemption.choice import counted_sets
from gantree.planning.preemption.counts import Counted, Range
from gantree.planning.preemption.trial import Trial, spared

MOST_TRIED = 32
"""Domains that are tried though their counts were wrong, or cannot be counted."""

MOST_ASKED = 256
"""Victims of whom each one is tried on its own whether it can be spared; more are taken as counted."""


@dataclass(slots=True, eq=False)
class _Question:
    """Victims by number, those with the least right first; their prices and levels, and the nodes that each is on."""

    trial: Trial
    owners: Sequence[str]
    prices: Sequence[int]
    level_of: Sequence[int]

    def names(self, who: Iterable[int]) -> list[str]:
        return [self.owners[number] for number in who]

    def ends(self) -> list[int]:
        """How many victims there are up to the end of each level."""
        of = self.level_of
        return [n + 1 for n in range(len(of)) if n + 1 == len(of) or of[n + 1] != of[n]]

    def price(self, who: Iterable[int]) -> int:
        return sum(self.prices[number] for number in who)


def chosen_owners(
    trial: Trial, owners: Sequence[str], prices: Sequence[int], level_of: Sequence[int]
) -> list[str] | None:
    """Who leaves: () if the gang fits as it is, None if not even all of them are enough. Victims come by level."""
    if trial.enough(()):
        return []
    question = _Question(trial, owners, prices, level_of)
    who = _by_count(question) or _by_search(question)
    return None if who is None else question.names(who)


# ----- by count


def _by_count(question: _Question) -> list[int] | None:
    """The cheapest proven set among those that counts suggest; None where they suggest none that is."""
    trial = question.trial
    trial.only(())
    found = _least_scope(question)
    if found is None:
        return None
    counted, domains, scope = found
    best: list[int] | None = None
    best_price: float = inf
    for tried, (price, who, domain) in enumerate(
        counted_sets(counted, question.prices[:scope], domains)
    ):
        if price >= best_price or tried == MOST_TRIED:
            break
        proven = _proven(question, counted, scope, who, domain)
        if proven is not None and question.price(proven) < best_price:
            best, best_price = proven, question.price(proven)
    return best


def _least_scope(question: _Question) -> tuple[Counted, list[Range], int] | None:
    """The counts with as few levels of victims as could be enough, the domains, and how many victims those are."""
    trial, ends = question.trial, question.ends()
    found: tuple[Counted, list[Range], int] | None = None
    low, high = 0, len(ends) - 1
    while low <= high:
        middle = high if found is None else (low + high) // 2
        owners = question.owners[: ends[middle]]
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
    question: _Question, counted: Counted, scope: int, who: Sequence[int], domain: Range
) -> list[int] | None:
    """A set that is enough and of which nobody can be spared, made of one that should be; None where it is not."""
    trial = question.trial
    enough = list(who)
    if not trial.fits_without(question.names(enough)):
        first, stop = domain
        here = (
            number
            for node, book in counted.books.items()
            if first <= node < stop
            for leaving, _ in book.leaving
            for number in leaving
        )
        enough = list(dict.fromkeys(here))
        if not trial.fits_without(question.names(enough)):
            return None
    return _thinned(question, _admitted(question, scope, enough))


def _admitted(question: _Question, scope: int, who: Sequence[int]) -> list[int]:
    """These, and as many more of the cheapest as the quota asks for."""
    trial = question.trial
    if trial.admits(question.names(who)):
        return list(who)
    there = dict.fromkeys(who)
    others = [number for number in range(scope) if number not in there]
    too_few, enough = 0, len(others)
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if trial.admits(question.names([*who, *others[:middle]])):
            enough = middle
        else:
            too_few = middle
    return [*who, *others[:enough]]


def _thinned(question: _Question, who: Sequence[int]) -> list[int]:
    """Those who must go, the dearest spared first."""
    if len(who) > MOST_ASKED:
        return list(who)
    dearest = sorted(who, key=lambda number: (-question.prices[number], number))
    number_of = {question.owners[number]: number for number in dearest}
    return [number_of[owner] for owner in spared(question.trial, question.names(dearest))]


# ----- by search


def _by_search(question: _Question) -> list[int] | None:
    """Where counts say nothing: thinned out of everybody, domain by domain."""
    trial, ends = question.trial, question.ends()
    scope = next((end for end in ends if trial.enough(question.owners[:end])), None)
    if scope is None:
        return None
    best: list[int] | None = None
    for who in _crowds(question, scope):
        for order in (question.prices, _prices_per_gpu(question)):
            if not trial.enough(question.names(who)):
                break
            dearest = sorted(who, key=lambda number: (-order[number], number))
            number_of = {question.owners[number]: number for number in dearest}
            kept = [number_of[o] for o in spared(trial, question.names(dearest))]
            if best is None or question.price(kept) < question.price(best):
                best = kept
    return best


def _crowds(question: _Question, scope: int) -> Iterator[list[int]]:
    """Everybody in a domain that would have to hold the gang, and everybody; the cheapest crowds first."""
    trial = question.trial
    fabric, job = trial.room.fabric, trial.job
    whole_at = 0 if job.topology.box is not None else topology_request_of(fabric, job).whole_at
    crowds: dict[int, list[int]] = {}
    for number in range(scope):
        nodes = dict.fromkeys(trial.nodes_of(question.owners[number]))
        for domain in dict.fromkeys(int(fabric.domain_of_node[whole_at][node]) for node in nodes):
            crowds.setdefault(domain, []).append(number)
    if whole_at:
        ranked = sorted(crowds.values(), key=question.price)
        yield from ranked[:MOST_TRIED]
    yield list(range(scope))


def _prices_per_gpu(question: _Question) -> list[int]:
    return [
        price // max(1, question.trial.gpus_of(owner))
        for price, owner in zip(question.prices, question.owners, strict=True)
    ]
