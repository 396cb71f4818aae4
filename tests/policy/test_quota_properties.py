"""Quotas after any history, against a plain recount; and what they promise."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.policy.amounts import ticks
from gantree.policy.queues import ROOT, QueueTree
from gantree.policy.quota.quota import Quota
from gantree.policy.rules import Amounts, LendIdle, QueueRule
from support.examples import examples

RESOURCES = ("gpus", "cpus")
PATHS = ("a", "a/c", "a/d", "a/d/e", "b", "b/f")
LEAVES = ("a/c", "a/d/e", "b/f")

some = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 12).map(float), max_size=2)
rare: st.SearchStrategy[dict[str, float]] = st.one_of(st.just({}), some)


@st.composite
def trees(draw: st.DrawFn) -> tuple[QueueRule, ...]:
    return tuple(
        QueueRule(
            path,
            cohort=draw(st.sampled_from([None, None, "x"])),
            guarantee=draw(some),
            limit=draw(st.one_of(st.just({}), some)) if draw(st.booleans()) else {},
            lend=draw(rare),
            borrow=draw(rare),
            lend_idle=draw(st.one_of(st.none(), st.builds(LendIdle, st.just(60.0), some))),
            most_running=draw(st.sampled_from([None, None, 3])),
        )
        for path in PATHS
    )


amounts = st.dictionaries(
    st.sampled_from(RESOURCES), st.integers(1, 8).map(float), min_size=1, max_size=2
)
jobs = st.tuples(st.sampled_from(LEAVES), amounts, st.integers(0, 3))
capacities = st.fixed_dictionaries({each: st.integers(0, 60).map(float) for each in RESOURCES})


@dataclass
class Twin:
    """The rules of `policy.quota.resource_quota`, recursively, from what runs: no account is kept."""

    quota: Quota
    running: dict[str, tuple[int, Amounts, int]] = field(default_factory=dict)
    keeps: dict[tuple[int, str], float] = field(default_factory=dict)

    def used(self, node: int, resource: str, without: frozenset[str] = frozenset()) -> float:
        return sum(
            has.get(resource, 0.0)
            for owner, (leaf, has, _) in self.running.items()
            if node in self.quota.tree.path(leaf) and owner not in without
        )

    def _rule(self, node: int, what: str, resource: str) -> float | None:
        rule = self.quota.tree.rule[node]
        return None if rule is None else getattr(rule, what).get(resource)

    def guarantee(self, node: int, resource: str) -> float:
        children = sum(self.guarantee(each, resource) for each in self.quota.tree.children[node])
        told = self._rule(node, "guarantee", resource) or 0.0
        if node == ROOT:
            told = self.quota.capacity.get(resource, 0.0)
        return max(told, children)

    def own(self, node: int, resource: str) -> float:
        children = self.quota.tree.children[node]
        return self.guarantee(node, resource) - sum(
            self.guarantee(each, resource) for each in children
        )

    def pool(self, node: int, resource: str) -> float:
        lent = sum(
            self.pool(each, resource) - self.kept(each, resource)
            for each in self.quota.tree.children[node]
        )
        return self.own(node, resource) + lent

    def kept(self, node: int, resource: str) -> float:
        rule = self.quota.tree.rule[node]
        lend = 0.0 if self.quota.tree.is_cohort(node) else self._rule(node, "lend", resource)
        if lend is None and rule is not None and rule.lend_idle is not None:
            lend = 0.0
        kept = 0.0 if lend is None else max(0.0, self.pool(node, resource) - lend)
        return min(kept, self.keeps.get((node, resource), kept))

    def drawn(self, node: int, resource: str) -> float:
        children = self.quota.tree.children[node]
        below = sum(self.used(each, resource) for each in children)
        return (
            self.used(node, resource)
            - below
            + sum(
                max(0.0, self.drawn(each, resource) - self.kept(each, resource))
                for each in children
            )
        )

    def available(self, node: int, resource: str) -> float:
        if node == ROOT:
            return self.pool(node, resource) - self.drawn(node, resource)
        above = self.available(self.quota.tree.parent[node], resource)
        kept, drawn = self.kept(node, resource), self.drawn(node, resource)
        borrow = self._rule(node, "borrow", resource)
        if borrow is not None:
            stored = self.pool(node, resource) - kept
            above = min(above, stored - max(0.0, drawn - kept) + borrow)
        return max(0.0, kept - drawn) + above

    def over(self, node: int, resource: str, without: frozenset[str]) -> float:
        """What is used under a node above all that is guaranteed there."""
        children = self.quota.tree.children[node]
        below = sum(self.used(each, resource, without) for each in children)
        excess = self.used(node, resource, without) - below
        excess += sum(self.over(each, resource, without) for each in children)
        return max(0.0, excess - self.own(node, resource))

    def _is_rationed(self, resource: str) -> bool:
        rules = [rule for rule in self.quota.tree.rule if rule is not None]
        return any(
            resource in told for rule in rules for told in (rule.guarantee, rule.lend, rule.borrow)
        )

    def borrowing(self) -> set[str]:
        """First fit by rank, from nothing."""
        found: set[str] = set()
        for top in self.quota.tree.children[ROOT]:
            mine = sorted(
                (rank, owner)
                for owner, (leaf, _, rank) in self.running.items()
                if top in self.quota.tree.path(leaf)
            )
            gone = {owner for _, owner in mine}
            for _, owner in mine:
                has = self.running[owner][1]
                before = {each: self.over(top, each, frozenset(gone)) for each in has}
                after = {each: self.over(top, each, frozenset(gone - {owner})) for each in has}
                if any(after[each] > before[each] for each in has if self._is_rationed(each)):
                    found.add(owner)
                else:
                    gone.discard(owner)
        return found


keeps: st.SearchStrategy[dict[str, Any]] = st.builds(dict, path=st.sampled_from(PATHS), most=some)
"""A queue keeps no more than this from now on."""
history = st.lists(st.one_of(jobs, st.integers(0, 20), keeps), max_size=14)


def on_empty(twin: Twin) -> Twin:
    """The same quota with nothing in use, long after."""
    rules = enumerate(twin.quota.tree.rule)
    lent = [(node, rule.lend_idle.keep) for node, rule in rules if rule and rule.lend_idle]
    return Twin(
        twin.quota, {}, {(n, each): keep.get(each, 0.0) for n, keep in lent for each in RESOURCES}
    )


def lived(rules: tuple[QueueRule, ...], capacity: Amounts, steps: list[object]) -> Twin:
    """A quota after jobs came, changed and went, whether or not there was room; its twin knows who is left."""
    twin = Twin(Quota(QueueTree(rules), capacity))
    for number, step in enumerate(steps):
        if isinstance(step, tuple):
            queue, has, rank = step
            leaf = twin.quota.tree.leaf(queue)
            twin.quota.take(leaf, f"j{number}", has, rank)
            twin.running[f"j{number}"] = (leaf, has, rank)
        elif isinstance(step, dict):
            node = twin.quota.tree.leaf(step["path"])
            twin.quota.keep(node, {each: ticks(has) for each, has in step["most"].items()})
            twin.keeps |= {(node, each): has for each, has in step["most"].items()}
        elif twin.running:
            assert isinstance(step, int)
            owner = list(twin.running)[step % len(twin.running)]
            leaf, has, rank = twin.running[owner]
            if step % 3:
                twin.quota.give_back(owner)
                del twin.running[owner]
            else:
                less = {each: max(0.0, amount + step % 4 - 1) for each, amount in has.items()}
                twin.quota.give_back(owner)
                twin.quota.take(leaf, owner, less, rank)
                twin.running[owner] = (leaf, less, rank)
        for owner in twin.running:
            twin.quota.owed(owner)  # what is remembered of it must not outlive the next step
        for queue in LEAVES:
            twin.quota.is_guaranteed(twin.quota.tree.leaf(queue), {})  # nor of these
    return twin


def nodes(twin: Twin) -> Iterator[int]:
    return iter(range(len(twin.quota.tree)))


@settings(max_examples=examples(35), deadline=None)
@given(trees(), capacities, history)
def test_accounts_are_those_of_a_recount(
    rules: tuple[QueueRule, ...], capacity: Amounts, steps: list[object]
) -> None:
    twin = lived(rules, capacity, steps)
    for node in nodes(twin):
        for resource, used in twin.quota.usage.used(node).items():
            assert used == twin.used(node, resource)
            assert twin.quota.usage.guaranteed(node)[resource] == twin.guarantee(node, resource)
            if twin._is_rationed(resource):
                available = max(0.0, twin.available(node, resource))
                assert twin.quota.usage.available(node)[resource] == available
                borrowed = twin.quota.usage.borrowed(node)[resource]
                assert borrowed == twin.over(node, resource, frozenset())
    borrowing = twin.borrowing()
    assert {owner for owner in twin.running if not twin.quota.owed(owner)} == borrowing
    for leaf in map(twin.quota.tree.leaf, LEAVES):
        others = list(twin.quota.borrowers(leaf))
        assert len(others) == len(set(others)) and borrowing.issuperset(others)
        assert all(twin.running[owner][0] != leaf for owner in others)


guaranteed = st.integers(4, 8).map(lambda gpus: {"gpus": float(gpus)})
lenders = st.tuples(
    *(
        st.builds(
            QueueRule,
            st.just(path),
            guarantee=guaranteed,
            lend_idle=st.builds(LendIdle, st.just(60.0), st.sampled_from([{}, {"gpus": 2.0}])),
        )
        for path in ("a", "a/c", "a/d", "b")
    )
)
small_jobs = st.tuples(
    st.sampled_from(["a/c", "a/d", "b"]),
    st.integers(1, 4).map(lambda gpus: {"gpus": float(gpus)}),
    st.integers(0, 3),
)
lends: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict, path=st.sampled_from(["a", "a/c", "a/d", "b"]), most=guaranteed | st.just({"gpus": 1.0})
)


@settings(max_examples=examples(150), deadline=None)
@given(
    lenders, st.lists(small_jobs | lends | st.integers(1, 9), min_size=4, max_size=16), small_jobs
)
def test_queues_that_lend_by_use_have_the_accounts_of_a_recount(
    rules: tuple[QueueRule, ...], steps: list[object], asks: tuple[str, Amounts, int]
) -> None:
    twin = lived(rules, {"gpus": 40.0}, steps)
    for node in nodes(twin):
        available = max(0.0, twin.available(node, "gpus"))
        assert twin.quota.usage.available(node)["gpus"] == available
    leaf = twin.quota.tree.leaf(asks[0])
    found = twin.quota.room(leaf, asks[1])
    assert found.state == plain_room(twin, leaf, asks[1])
    assert found.never == (plain_room(on_empty(twin), leaf, asks[1]) == "refused")


@settings(max_examples=examples(35), deadline=None)
@given(trees(), capacities, history, jobs)
def test_room_is_what_the_recount_says(
    rules: tuple[QueueRule, ...],
    capacity: Amounts,
    steps: list[object],
    asks: tuple[str, Amounts, int],
) -> None:
    twin = lived(rules, capacity, steps)
    queue, has, _ = asks
    leaf = twin.quota.tree.leaf(queue)
    found = twin.quota.room(leaf, has)
    assert (found.state, twin.quota.room(leaf, has, may_borrow=False).state == "owed") == (
        (state := plain_room(twin, leaf, has)),
        state == "owed",
    )
    assert found.never == (plain_room(on_empty(twin), leaf, has) == "refused")
    assert twin.quota.is_guaranteed(leaf, has) == plain_guaranteed(twin, leaf, has)
    if found.refused:
        assert found.words and found.gate is not None and found.short_by > 0


def plain_guaranteed(twin: Twin, leaf: int, has: Amounts) -> bool:
    """Whether no more would be borrowed if one more job had these."""
    top, rationed = (
        twin.quota.tree.path(leaf)[-2],
        [each for each in has if twin._is_rationed(each)],
    )
    roomy = Twin(twin.quota, {**twin.running, "asks": (leaf, has, 0)}, twin.keeps)
    return all(
        roomy.over(top, each, frozenset()) <= twin.over(top, each, frozenset()) for each in rationed
    )


def plain_room(twin: Twin, leaf: int, has: Amounts) -> str:
    """The rules of `policy.quota.quota` in words of the twin."""
    tree = twin.quota.tree
    path = tree.path(leaf)
    for node in path:
        most = tree.most_running(node)
        if (
            most is not None
            and sum(node in tree.path(at) for at, _, _ in twin.running.values()) >= most
        ):
            return "refused"
        for resource, amount in has.items():
            limit = twin._rule(node, "limit", resource)
            if limit is not None and twin.used(node, resource) + amount > limit:
                return "refused"
    rationed = [each for each in has if twin._is_rationed(each)]
    available = {each: twin.available(leaf, each) for each in rationed}
    roomy = Twin(twin.quota, {**twin.running, "asks": (leaf, has, 0)}, twin.keeps)
    if not plain_guaranteed(twin, leaf, has):
        return "borrowed" if all(available[each] >= has[each] for each in rationed) else "refused"
    for each in rationed:
        for node in path[:-1]:
            borrow = twin._rule(node, "borrow", each)
            grows = roomy.drawn(node, each) > twin.drawn(node, each)
            if (
                borrow is not None
                and grows
                and roomy.drawn(node, each) > twin.pool(node, each) + borrow
            ):
                return "refused"
    return "owed"


@settings(max_examples=examples(35), deadline=None)
@given(trees(), capacities, history, jobs, st.sets(st.integers(0, 13)))
def test_room_without_some_is_room_where_they_never_were_and_changes_nothing(
    rules: tuple[QueueRule, ...],
    capacity: Amounts,
    steps: list[object],
    asks: tuple[str, Amounts, int],
    gone: set[int],
) -> None:
    twin = lived(rules, capacity, steps)
    leaf = twin.quota.tree.leaf(asks[0])
    without = [owner for number, owner in enumerate(twin.running) if number in gone]
    other = Quota(twin.quota.tree, capacity)
    for (node, resource), most in twin.keeps.items():
        other.keep(node, {resource: ticks(most)})
    for owner, (node, has, rank) in twin.running.items():
        if owner not in without:
            other.take(node, owner, has, rank)
    before = twin.quota.room(leaf, asks[1])
    assert twin.quota.room_without(leaf, asks[1], without) == other.room(leaf, asks[1])
    assert twin.quota.room(leaf, asks[1]) == before
    for node in nodes(twin):
        assert twin.quota.usage.used(node) == {
            resource: twin.used(node, resource) for resource in twin.quota.usage.used(node)
        }


@settings(max_examples=examples(35), deadline=None)
@given(trees(), capacities, history, st.integers(0, 20))
def test_who_is_refused_need_not_ask_again_before_the_version_of_its_node_grows(
    rules: tuple[QueueRule, ...], capacity: Amounts, steps: list[object], leaver: int
) -> None:
    twin = lived(rules, capacity, steps)
    quota = twin.quota
    asks = [
        (quota.tree.leaf(queue), {resource: amount}, may_borrow)
        for queue in LEAVES
        for resource in RESOURCES
        for amount in (1.0, 2.0, 4.0)
        for may_borrow in (True, False)
    ]
    refused = [ask for ask in asks if quota.room(*ask).refused]
    versions = [quota.version_of(leaf) for leaf, _, _ in refused]
    if twin.running:
        quota.give_back(list(twin.running)[leaver % len(twin.running)])
    for ask, version in zip(refused, versions, strict=True):
        assert quota.room(*ask).refused or quota.version_of(ask[0]) > version


@settings(max_examples=examples(35), deadline=None)
@given(trees(), st.lists(jobs, max_size=16), jobs, st.integers(0, 30))
def test_a_guarantee_comes_back_when_those_go_who_borrow_it(
    rules: tuple[QueueRule, ...],
    arrivals: list[tuple[str, Amounts, int]],
    asks: tuple[str, Amounts, int],
    unguaranteed: int,
) -> None:
    """No guarantee is broken: what room calls owed can be had, at the cost of jobs that borrow and of no others."""
    tree = QueueTree(rules)
    promised = Quota(tree, {}).usage.guaranteed(ROOT)
    quota = Quota(tree, {each: has + unguaranteed for each, has in promised.items()})
    for number, (queue, has, rank) in enumerate((*arrivals, asks)):
        leaf = tree.leaf(queue)
        answer = quota.room(leaf, has)
        if answer.refused and not answer.reclaim:
            continue
        taken_back = []
        for owner in list(quota.borrowers(leaf)):
            if quota.room(leaf, has).state == answer.state and _idle(quota, leaf, has):
                break
            if answer.state == "borrowed":
                break
            assert not quota.owed(owner)
            taken_back.append(owner)
            quota.give_back(owner)
        if answer.reclaim and quota.room(leaf, has).refused:
            continue  # another limit stands in the way, or its own queue's
        assert _idle(quota, leaf, has), (answer, taken_back)
        quota.take(leaf, f"j{number}", has, rank)


def _idle(quota: Quota, leaf: int, has: Amounts) -> bool:
    available = quota.usage.available(leaf)
    rationed = [
        each
        for rule in quota.tree.rule
        if rule is not None
        for told in (rule.guarantee, rule.lend, rule.borrow)
        for each in told
    ]
    return all(available[each] >= has[each] for each in has if each in rationed)
