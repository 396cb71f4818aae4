"""Fair shares: against summing up small steps of time, and in a small cluster that is always full."""

from collections.abc import Iterator
from heapq import heappop, heappush
from math import exp2, inf
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.policy.queues import ROOT, QueueTree
from gantree.policy.rules import Amounts, QueueRule
from gantree.policy.share import Shares
from support.examples import examples

DAY_S = 86400.0


def shares(
    *rules: QueueRule,
    capacity: Amounts | None = None,
    weights: Amounts | None = None,
    half_life_s: float | None = None,
    share_users: bool = False,
) -> Shares:
    tree = QueueTree(rules, share_users)
    return Shares(tree, capacity or {"gpus": 100.0}, weights or {}, half_life_s)


def test_the_share_is_the_dominant_one_over_the_weight() -> None:
    found = shares(QueueRule("a", weight=2), capacity={"gpus": 100, "cpus": 1000})
    a = found.tree.leaf("a")
    found.take(a, "j", {"gpus": 10, "cpus": 300}, 0)
    assert found.share(a, 0) == pytest.approx(0.3 / 2)
    assert found.share(ROOT, 0) == inf and found.used_part(ROOT, 0) == pytest.approx(0.3)
    found.give_back("j", 5)
    assert found.share(a, 5) == 0


def test_what_the_cluster_does_not_count_is_nobodys_share() -> None:
    found = shares(QueueRule("a"), capacity={"gpus": 100})
    a = found.tree.leaf("a")
    found.take(a, "j", {"gpus": 10, "nics": 99, "devices/fpga": 1}, 0)
    assert found.share(a, 0) == pytest.approx(0.1)


def test_a_t4_is_not_an_a100_as_asked_for_in_kueue_8902_and_kai_1087() -> None:
    capacity = {"gpus": 200, "gpus/A100-80GB": 100, "gpus/T4-16GB": 100}
    found = shares(
        QueueRule("a"),
        QueueRule("t"),
        capacity=capacity,
        weights={"A100-80GB": 1.0, "T4-16GB": 0.1},
    )
    a, t = found.tree.leaf("a"), found.tree.leaf("t")
    found.take(a, "j1", {"gpus": 10, "gpus/A100-80GB": 10}, 0)
    found.take(t, "j2", {"gpus": 50, "gpus/T4-16GB": 50}, 0)
    assert found.share(a, 0) == pytest.approx(10 / 110)
    assert found.share(t, 0) == pytest.approx(5 / 110)


def test_a_weight_of_nothing_goes_after_all_others() -> None:
    found = shares(QueueRule("a", weight=0), QueueRule("b", weight=0.001))
    a, b = found.tree.leaf("a"), found.tree.leaf("b")
    found.take(b, "j", {"gpus": 100}, 0)
    assert found.share(b, 0) < found.share(a, 0) == inf


def test_a_queue_above_counts_all_below_it() -> None:
    found = shares(QueueRule("r"), QueueRule("r/a"), QueueRule("r/b"), QueueRule("s"))
    found.take(found.tree.leaf("r/a"), "j1", {"gpus": 10}, 0)
    found.take(found.tree.leaf("r/b"), "j2", {"gpus": 20}, 0)
    assert found.share(found.tree.leaf("r"), 0) == pytest.approx(0.3)
    assert found.share(found.tree.leaf("s"), 0) == 0


def test_users_compete_only_where_they_share_their_queue() -> None:
    rule = QueueRule("a", user_limit={"gpus": 50})
    for share_users, expected in ((True, 0.2), (False, 0.0)):
        found = shares(rule, share_users=share_users)
        ann = found.tree.leaf("a", "ann")
        found.take(ann, "j", {"gpus": 20}, 0)
        assert found.share(ann, 0) == pytest.approx(expected)
        assert found.share(found.tree.parent[ann], 0) == pytest.approx(0.2)


def test_who_always_held_the_same_has_that_share_and_half_of_it_a_half_life_after() -> None:
    found = shares(QueueRule("a"), half_life_s=100)
    a = found.tree.leaf("a")
    found.take(a, "j", {"gpus": 40}, 0)
    assert found.share(a, 0) == pytest.approx(0.2)  # half the say is that of the present
    assert found.share(a, 100) == pytest.approx((0.2 + 0.4) / 2)
    assert found.share(a, 1e5) == pytest.approx(0.4)
    found.give_back("j", 1e5)
    assert found.share(a, 1e5) == pytest.approx(0.2)
    assert found.share(a, 1e5 + 100) == pytest.approx(0.1)


def test_the_same_jobs_in_any_order_hold_the_same() -> None:
    found = shares(QueueRule("a"))
    a = found.tree.leaf("a")
    for number in range(7):
        found.take(a, f"j{number}", {"gpus": 1 / 7}, 0)
    assert found.share(a, 0) == 0.01
    for number in (3, 1, 6, 0, 2, 5, 4):
        found.give_back(f"j{number}", 0)
    assert found.share(a, 0) == 0.0


def test_a_job_cannot_be_counted_twice_and_time_does_not_go_back() -> None:
    found = shares(QueueRule("a"), half_life_s=100)
    a = found.tree.leaf("a")
    found.take(a, "j", {"gpus": 1}, 10)
    with pytest.raises(AssertionError, match="j is counted already"):
        found.take(a, "j", {"gpus": 1}, 10)
    with pytest.raises(AssertionError, match="time went back"):
        found.share(a, 9)


spells = st.lists(
    st.tuples(st.sampled_from(["r/a", "r/b", "s"]), st.integers(0, 40), st.integers(1, 60)),
    max_size=8,
)


@settings(max_examples=examples(40), deadline=None)
@given(spells, st.integers(5, 200), st.integers(0, 200))
def test_decayed_use_is_the_integral_of_what_was_held(
    spells: list[tuple[str, int, int]], half_life_s: int, now_s: int
) -> None:
    """Seconds are summed one by one, each for the middle of it: jobs begin and end at whole seconds."""
    found = shares(
        QueueRule("r"), QueueRule("r/a"), QueueRule("r/b"), QueueRule("s"), half_life_s=half_life_s
    )
    for at_s, sign, owner, queue in _changes(spells, now_s):
        if sign > 0:
            found.take(found.tree.leaf(queue), owner, {"gpus": 3}, at_s)
        else:
            found.give_back(owner, at_s)
    decay = exp2(-1 / half_life_s)
    for queue in ("r", "r/a", "s"):
        inside = [spell for spell in spells if spell[0].startswith(queue)]
        used = 0.0
        for second in range(now_s):
            used = used * decay + (1 - decay) * _held(inside, second)
        expected = (used + _held(inside, now_s)) / 2 / 100
        assert found.share(found.tree.leaf(queue), now_s) == pytest.approx(expected)


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), min_size=1, max_size=60),
    st.sampled_from([0.0, 0.5, 2.0]),
)
def test_corrected_use_is_the_integral_of_weighted_seconds(
    seconds: list[tuple[int, int]], weight: float
) -> None:
    """Of 3 GPUs so many idled in each second, which is known so many seconds later."""
    found = shares(QueueRule("a"), weights={"T4": 0.1}, half_life_s=50)
    a, end = found.tree.leaf("a"), len(seconds)
    found.take(a, "j", {"gpus": 3, "gpus/T4": 3}, 0)
    known = sorted((min(at + late, end), at, idle) for at, (idle, late) in enumerate(seconds, 1))
    for now, at, idle in known:
        found.correct(a, {"T4": 1}, (weight - 1) * idle, at - 0.5, now)
    decay, used = exp2(-1 / 50), 0.0
    for idle, _ in seconds:
        used = used * decay + (1 - decay) * (3 + (weight - 1) * idle) * 0.1
    assert found.share(a, end) == pytest.approx(max(0.0, used + 0.3) / 2 / 100, rel=1e-3, abs=1e-9)


def test_without_a_half_life_there_is_no_past_to_correct() -> None:
    found = shares(QueueRule("a"))
    a = found.tree.leaf("a")
    found.take(a, "j", {"gpus": 40}, 0)
    found.correct(a, {"": 40}, -10, 5, 10)
    assert found.share(a, 10) == 0.4


def _changes(spells: list[tuple[str, int, int]], now_s: int) -> Iterator[tuple[int, int, str, str]]:
    changes = []
    for number, (queue, begin_s, length_s) in enumerate(spells):
        changes.append((begin_s, 1, f"j{number}", queue))
        changes.append((begin_s + length_s, -1, f"j{number}", queue))
    return iter(sorted(change for change in changes if change[0] <= now_s))


def _held(spells: list[tuple[str, int, int]], second: int) -> float:
    return 3.0 * sum(begin <= second < begin + length for _, begin, length in spells)


def used_in_a_day(
    found: Shares, leaves: list[int], random: Random, sizes: tuple[int, ...], longest_s: float
) -> dict[int, float]:
    """GPU-seconds of each leaf in a day of 256 GPUs with work waiting in every queue: the fairest goes next."""
    free, now_s, started = 256, 0.0, 0
    used = dict.fromkeys(leaves, 0.0)
    ends: list[tuple[float, int, str, int]] = []
    sizes_of = {leaf: random.choice(sizes) for leaf in leaves}
    while now_s < DAY_S:
        leaf = _fairest(found, now_s)
        size = random.choice((1, sizes_of[leaf]))
        while free < size:
            now_s, done, owner, _ = heappop(ends)
            found.give_back(owner, now_s)
            free += done
        length_s = random.uniform(60, longest_s)
        found.take(leaf, f"j{started}", {"gpus": size}, now_s)
        heappush(ends, (now_s + length_s, size, f"j{started}", leaf))
        used[leaf] += size * max(0.0, min(length_s, DAY_S - now_s))
        free, started = free - size, started + 1
    return used


def _fairest(found: Shares, now_s: float) -> int:
    """From the root down, the child with the smallest share."""
    node = ROOT
    while found.tree.children[node]:
        node = min(found.tree.children[node], key=lambda child: found.share(child, now_s))
    return node


@pytest.mark.parametrize("half_life_s", [None, 3600.0, 7 * DAY_S])
@pytest.mark.parametrize("seed", range(3))
def test_over_a_day_of_backlog_shares_come_within_2_percent_of_weights(
    seed: int, half_life_s: float | None
) -> None:
    random = Random(seed)
    rules = [QueueRule(path, random.uniform(1, 4)) for path in ("a", "b", "b/x", "b/y", "c")]
    found = shares(*rules, capacity={"gpus": 256}, half_life_s=half_life_s)
    tree = found.tree
    leaves = [tree.leaf(path) for path in ("a", "b/x", "b/y", "c")]
    used = used_in_a_day(found, leaves, random, (1, 2, 4, 8), 3600)
    for leaf in leaves:
        due = 1.0
        for node in tree.path(leaf)[:-1]:
            siblings = tree.children[tree.parent[node]]
            due *= tree.weight[node] / sum(tree.weight[each] for each in siblings)
        assert used[leaf] / sum(used.values()) == pytest.approx(due, abs=0.02)


def use(found: Shares, *jobs: tuple[str, str, float, float]) -> None:
    """Jobs of (queue, user) that hold 10 GPUs from a moment to another; inf: they go on."""
    times = sorted((at, n, kind) for n, each in enumerate(jobs) for kind, at in enumerate(each[2:]))
    for at, number, kind in times:
        queue, user, *_ = jobs[number]
        if kind == 0:
            found.take(found.tree.leaf(queue, user), f"j{number}", {"gpus": 10.0}, at)
        elif at < inf:
            found.give_back(f"j{number}", at)


JOBS = (("a", "ann", 0.0, 50.0), ("a", "bob", 20.0, inf), ("b", "ann", 10.0, 90.0))


@pytest.mark.parametrize("share_users", [False, True])
def test_use_goes_on_under_other_rules_as_if_they_had_always_ruled(share_users: bool) -> None:
    """But for the users of queues that were not told apart, and other half-lives and weights."""
    before = shares(QueueRule("a"), QueueRule("b", cohort="x"), half_life_s=40, share_users=True)
    rules = QueueRule("b", weight=3), QueueRule("a", cohort="y")
    always = shares(*rules, half_life_s=40, share_users=share_users)
    for found in (before, always):
        use(found, *JOBS)
    after = shares(*rules, half_life_s=40, share_users=share_users)
    after.take(after.tree.leaf("a", "bob"), "j1", {"gpus": 10.0}, 100)
    after.inherit_usage(before.kept(), 40, 100)
    for queue, user in (("a", "ann"), ("a", "bob"), ("b", "ann")):
        for found in (always, after):
            found.tree.leaf(queue, user)
        for now in (100, 150):
            ours = after.used_part(after.tree.leaf(queue, user), now)
            theirs = always.used_part(always.tree.leaf(queue, user), now)
            assert ours == pytest.approx(theirs), (queue, user, now)
    assert after.used_part(ROOT, 120) == pytest.approx(always.used_part(ROOT, 120))


def test_another_half_life_rules_from_now_on_and_none_kept_nothing() -> None:
    before = shares(QueueRule("a"), half_life_s=40)
    use(before, ("a", "", 0.0, 40.0))
    after = shares(QueueRule("a"), half_life_s=20)
    after.inherit_usage(before.kept(), 40, 80)
    a = after.tree.leaf("a")
    assert after.used_part(a, 80) == pytest.approx(0.1 * 0.5 * 0.5 / 2)
    assert after.used_part(a, 100) == pytest.approx(0.1 * 0.5 * 0.5 / 4)
    fresh = shares(QueueRule("a"), half_life_s=20)
    fresh.inherit_usage(before.kept(), None, 80)
    assert fresh.used_part(fresh.tree.leaf("a"), 80) == 0


def test_at_a_fork_of_the_tree_the_shares_of_the_last_change_decide() -> None:
    found = shares(
        QueueRule("a"), QueueRule("a/x"), QueueRule("a/y"), QueueRule("b", weight=2),
        half_life_s=DAY_S, share_users=True,
    )  # fmt: skip
    tree = found.tree
    x, y, b = (tree.leaf(queue, "ann") for queue in ("a/x", "a/y", "b"))
    bob = tree.leaf("b", "bob")
    assert found.at_fork(x, b) == found.at_fork(x, x) == (0.0, 0.0)
    found.take(x, "one", {"gpus": 40.0}, 0.0)
    found.take(b, "two", {"gpus": 40.0}, 0.0)
    assert found.at_fork(x, y) == (0.2, 0.0) and found.at_fork(x, b) == (0.2, 0.1)
    assert found.at_fork(b, bob) == (0.2, 0.0) and found.precedes(bob, b)
    assert found.share(x, DAY_S) == pytest.approx(0.3)
    assert found.at_fork(x, b) == (0.2, 0.1), "nothing has started or ended since"
    found.give_back("one", DAY_S)
    assert found.at_fork(x, b) == pytest.approx((0.1, 0.15))
