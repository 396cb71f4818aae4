"""The rule of rolling updates: its bounds hold, it agrees with a plain twin, and every update comes to an end."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.services import Update
from gantree.services.rollout import ReplicaStatus, RolloutPlan, plan
from support.examples import examples, seeds

OLD, NEW = False, True


def replicas(text: str) -> list[ReplicaStatus]:
    """Replicas 1, 2, ...: o/n old or new and not ready, O/N ready, -: without a place, d: draining ("O N n- od")."""
    found = []
    for number, word in enumerate(text.split(), 1):
        is_ready = word[0].isupper()
        found.append(ReplicaStatus(number, word[0] in "nN", is_ready, "d" in word, "-" not in word))
    return found


@pytest.mark.parametrize(
    ("there", "wanted", "surge", "unavailable", "add", "end"),
    [
        ("", 3, 1, 0, 3, ()),
        ("N N n", 3, 1, 0, 0, ()),
        ("N N n", 2, 1, 0, 0, (3,)),  # the one that is not ready
        ("N N n n-", 2, 1, 0, 0, (4, 3)),  # first the one without a place
        ("N N N", 1, 1, 0, 0, (3, 2)),  # the highest numbers
        ("N N Nd", 3, 1, 0, 1, ()),  # one that drains does not count
        ("O O O", 3, 1, 0, 1, ()),
        ("O O O n", 3, 1, 0, 0, ()),  # until it is ready
        ("O O O N", 3, 1, 0, 1, (3,)),
        ("O O Od N n", 3, 1, 0, 0, ()),
        ("O N N N", 3, 1, 0, 0, (1,)),
        ("O O O", 3, 0, 1, 1, (3,)),
        ("O O O", 3, 0, 0, 1, (3,)),  # which allows nothing, and is read as one unavailable
        ("O O O", 3, 3, 3, 3, (3, 2, 1)),
        ("o- o- o-", 3, 1, 0, 3, (3, 2, 1)),  # without a place: replaced at once
        ("o o", 2, 1, 0, 1, ()),  # they may yet become ready
        ("O o", 2, 1, 0, 1, ()),
        ("O o N", 2, 1, 0, 1, (2,)),
        ("O O N", 0, 1, 0, 0, (2, 1, 3)),
        ("o o n n", 2, 1, 0, 0, (2,)),  # scaled down during an update of which nothing is ready
        ("O O O O", 2, 1, 0, 1, (4, 3)),  # scaled down during an update
    ],
)
def test_steps(
    there: str, wanted: int, surge: int, unavailable: int, add: int, end: tuple[int, ...]
) -> None:
    found = plan(replicas(there), wanted, Update(surge, unavailable))
    assert (found.add, set(found.end)) == (add, set(end))


def carried_out(there: Sequence[ReplicaStatus], step: RolloutPlan) -> list[ReplicaStatus]:
    """The replicas after a step; one that was ready drains."""
    number = max((each.number for each in there), default=0)
    left = [
        replace(each, is_draining=each.is_draining or each.number in step.end)
        for each in there
        if each.is_ready or each.number not in step.end
    ]
    new = [ReplicaStatus(number + n + 1, is_placed=False) for n in range(step.add)]
    return left + new


def alive(there: Sequence[ReplicaStatus]) -> list[ReplicaStatus]:
    return [each for each in there if not each.is_draining]


def ready(there: Sequence[ReplicaStatus]) -> int:
    return sum(each.is_ready for each in alive(there))


def twin(there: Sequence[ReplicaStatus], wanted: int, update: Update) -> RolloutPlan:
    """One replica at a time, by the first sentence that applies."""
    left, ended = alive(there), []
    least = wanted - (update.unavailable if update.surge or update.unavailable else 1)
    least = max(0, least)

    def worst(
        *, current: bool, unready_only: bool = False, unplaced_only: bool = False
    ) -> list[ReplicaStatus]:
        some = [each for each in left if each.is_current_revision == current]
        if unready_only or unplaced_only:
            some = [each for each in some if not each.is_ready]
        if unplaced_only:
            some = [each for each in some if not each.is_placed]
        return sorted(some, key=lambda e: (e.is_placed, e.is_ready, -e.number))

    def next_to_end() -> ReplicaStatus | None:
        current = worst(current=NEW)
        if len(current) > wanted:
            return current[0]
        if unplaced := worst(current=OLD, unplaced_only=True):
            return unplaced[0]
        coming = len(worst(current=NEW, unready_only=True))
        unready = worst(current=OLD, unready_only=True)
        if unready and len(left) - 1 - coming >= least:
            return unready[0]
        old = [each for each in worst(current=OLD) if each.is_ready]
        if old and ready(left) - 1 >= least:
            return old[0]
        if len(left) > wanted + update.surge:
            return (unready + worst(current=NEW, unready_only=True))[0]
        return None

    while (one := next_to_end()) is not None:
        left.remove(one)
        ended.append(one.number)
    add = 0
    while len(worst(current=NEW)) + add < wanted and len(left) + add < wanted + update.surge:
        add += 1
    return RolloutPlan(add, tuple(ended))


statuses = st.builds(
    ReplicaStatus, st.just(0), st.booleans(), st.booleans(), st.booleans(), st.booleans()
).map(lambda each: replace(each, is_placed=each.is_placed or each.is_ready))
crowds = st.lists(statuses, max_size=9).map(
    lambda some: [replace(each, number=number) for number, each in enumerate(some)]
)
updates = st.builds(Update, st.integers(0, 3), st.integers(0, 3))


@given(crowds, st.integers(0, 6), updates)
@settings(max_examples=max(300, examples(2000)), deadline=None)  # 0.2 ms each
def test_a_plan_keeps_its_bounds_equals_the_twin_and_is_complete(
    there: list[ReplicaStatus], wanted: int, update: Update
) -> None:
    found = plan(there, wanted, update)
    expected = twin(there, wanted, update)
    assert (found.add, set(found.end)) == (expected.add, set(expected.end))
    assert len(found.end) == len(set(found.end))
    after = carried_out(there, found)
    assert len(alive(after)) <= wanted + update.surge
    unavailable = update.unavailable if update.surge or update.unavailable else 1
    assert ready(after) >= min(ready(there), wanted - unavailable)
    assert plan(after, wanted, update) == RolloutPlan()


def lived(there: list[ReplicaStatus], random: Random) -> list[ReplicaStatus]:
    """Some time later: replicas are placed, become ready, and those that drained are gone."""
    later = []
    for each in there:
        if each.is_draining and random.random() < 0.5:
            continue
        placed = each.is_placed or random.random() < 0.7
        is_ready = each.is_ready or (placed and random.random() < 0.7)
        later.append(replace(each, is_placed=placed, is_ready=is_ready))
    return later


@pytest.mark.parametrize("seed", seeds(100))
def test_where_everything_becomes_ready_only_the_wanted_of_the_current_revision_remain(
    seed: int,
) -> None:
    random = Random(seed)
    update = Update(random.randrange(3), random.randrange(3))
    there = [
        ReplicaStatus(number, random.random() < 0.4, random.random() < 0.5)
        for number in range(random.randrange(9))
    ]
    wanted, steps = random.randrange(7), 0
    while (
        there != [ReplicaStatus(e.number, NEW, is_ready=True) for e in there]
        or len(there) != wanted
    ):
        fewest = min(ready(there), wanted - (update.unavailable or not update.surge))
        there = carried_out(there, plan(there, wanted, update))
        assert ready(there) >= fewest
        there = lived(there, random)
        steps += 1
        assert steps < 200, there
    assert plan(there, wanted, update) == RolloutPlan()
