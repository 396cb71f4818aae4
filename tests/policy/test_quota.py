"""Quotas in counts: what Kueue's cohorts allow, and what is refused, why, and until when."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gantree.formats.policy.reader import read_policy
from gantree.model.verdicts import Gate
from gantree.policy.queues import ROOT, QueueTree
from gantree.policy.quota.admission import Admission
from gantree.policy.quota.quota import Quota
from gantree.policy.rules import Amounts, QueueRule


def gpus(count: float) -> Amounts:
    return {"gpus": count}


def quota(*rules: QueueRule, capacity: float = 100.0, share_users: bool = False) -> Quota:
    return Quota(QueueTree(rules, share_users), {"gpus": capacity})


def take(accounts: Quota, queue: str, owner: str, count: float, rank: int = 0) -> None:
    accounts.take(accounts.tree.leaf(queue), owner, gpus(count), rank)


def state(accounts: Quota, queue: str, count: float) -> str:
    return accounts.room(accounts.tree.leaf(queue), gpus(count)).state


@dataclass(frozen=True)
class Case:
    """A case of TestAvailable in kubernetes-sigs/kueue, pkg/cache/resource_node_test.go (commit as of mid 2025)."""

    rules: tuple[QueueRule, ...]
    capacity: float
    used: dict[str, float]
    available: dict[str, float]
    available_if_idle: dict[str, float]


def q(
    path: str, guarantee: float, borrow: float | None = None, lend: float | None = None
) -> QueueRule:
    """A queue with Kueue's nominal quota, borrowing limit and lending limit."""
    return QueueRule(
        path,
        guarantee=gpus(guarantee),
        borrow={} if borrow is None else gpus(borrow),
        lend={} if lend is None else gpus(lend),
    )


KUEUE = {
    # A cohort's own quota is a parent's guarantee above those of its children; that of the top one is of the capacity.
    "queues with a cohort": Case(
        (q("cq1", 10), q("cq2", 10, lend=9)),
        30,
        {"cq1": 1, "cq2": 0.5},
        {"cq1": 28, "cq2": 28.5},
        {"cq1": 29, "cq2": 30},
    ),
    "a queue borrows from its cohort": Case(
        (q("cq1", 10),), 20, {"cq1": 11}, {"cq1": 9}, {"cq1": 20}
    ),
    "what is used too much spills over": Case(
        (q("cq1", 10), q("cq2", 10, borrow=0, lend=0)),
        30,
        {"cq1": 31},
        {"cq1": 0, "cq2": 0},
        {"cq1": 20, "cq2": 10},
    ),
    "lending and borrowing limits": Case(
        (q("cq1", 10), q("cq2", 10, borrow=2), q("cq3", 10, lend=5)),
        40,
        {"cq1": 20, "cq2": 10, "cq3": 6},
        {"cq1": 4, "cq2": 2, "cq3": 4},
        {"cq1": 35, "cq2": 12, "cq3": 40},
    ),
    "a hierarchy": Case(
        (q("left", 20), q("left/cq1", 10), q("right", 20), q("right/cq2", 10, lend=0)),
        40,
        {"left/cq1": 10, "right/cq2": 5},
        {"left/cq1": 20, "right/cq2": 25},
        {"left/cq1": 30, "right/cq2": 40},
    ),
    "a hierarchy with borrowing limits": Case(
        (
            q("left", 30, borrow=5),
            q("left/cq1", 10),
            q("left/cq2", 10, borrow=5),
            q("right", 20),
            q("right/cq", 10),
        ),
        50,
        {},
        {"left/cq1": 35, "left/cq2": 15, "right/cq": 50},
        {"left/cq1": 35, "left/cq2": 15, "right/cq": 50},
    ),
    "a hierarchy with lending limits": Case(
        (
            q("left", 20, lend=5),
            q("left/cq1", 10, lend=5),
            q("left/cq2", 10),
            q("right", 0),
            q("right/cq", 0),
            q("root-cq", 0),
        ),
        20,
        {},
        {"left/cq1": 20, "left/cq2": 15, "right/cq": 5, "root-cq": 5},
        {"left/cq1": 20, "left/cq2": 15, "right/cq": 5, "root-cq": 5},
    ),
}


@pytest.mark.parametrize("case", KUEUE.values(), ids=KUEUE.keys())
def test_what_is_available_is_what_kueue_says(case: Case) -> None:
    accounts = quota(*case.rules, capacity=case.capacity)
    for used, expected in (({}, case.available_if_idle), (case.used, case.available)):
        for queue, count in used.items():
            take(accounts, queue, f"of {queue}", count)
        found = {
            queue: accounts.usage.available(accounts.tree.leaf(queue))["gpus"] for queue in expected
        }
        assert found == expected


def test_within_the_guarantee_a_job_is_owed_above_it_borrows_and_beyond_all_it_waits() -> None:
    accounts = quota(q("a", 60), q("b", 30))
    assert state(accounts, "a", 60) == "owed"
    assert state(accounts, "a", 61) == "borrowed"
    take(accounts, "b", "b1", 8)
    assert state(accounts, "a", 92) == "borrowed"
    refused = accounts.room(accounts.tree.leaf("a"), gpus(93))
    assert (refused.state, refused.gate, refused.short_by) == ("refused", Gate.QUOTA, 1)
    assert not refused.never and not refused.reclaim
    assert refused.words == "queue a uses 0 GPUs and can have 92 more now, 93 are asked for"


@pytest.mark.parametrize(
    ("rules", "is_unruled"),
    [
        ((), True),
        ((QueueRule("a", weight=3.0), QueueRule("b")), True),
        ((QueueRule("a"), q("b", 10)), False),
        ((QueueRule("a"), QueueRule("b", limit=gpus(10))), False),
        ((QueueRule("a", most_running=2), QueueRule("b")), False),
        ((QueueRule("a", most_running_per_user=2), QueueRule("b")), False),
        ((QueueRule("a"), QueueRule("b", most_running=2)), True),
    ],
)
def test_where_no_rule_counts_anything_every_job_is_owed_what_it_asks_for(
    rules: tuple[QueueRule, ...], is_unruled: bool
) -> None:
    accounts = quota(*rules, capacity=8.0)
    take(accounts, "a", "first", 8.0)
    take(accounts, "a", "second", 8.0)
    node = accounts.tree.leaf("a")
    assert accounts.is_unruled(node) == is_unruled
    if is_unruled:
        assert accounts.room(node, gpus(100.0), may_borrow=False).state == "owed"


def test_more_than_the_cluster_lends_is_never_admitted() -> None:
    accounts = quota(q("a", 60), q("b", 30, lend=10))
    refused = accounts.room(accounts.tree.leaf("a"), gpus(81))
    assert refused.never
    assert refused.words == "queue a may use 80 GPUs at most, 81 are asked for"


def test_what_others_borrowed_is_owed_all_the_same() -> None:
    accounts = quota(q("a", 60), q("b", 40))
    take(accounts, "b", "b1", 40, rank=1)
    take(accounts, "b", "b2", 30, rank=2)
    assert state(accounts, "a", 60) == "owed"
    a = accounts.tree.leaf("a")
    assert list(accounts.borrowers(a)) == ["b2"]
    assert accounts.usage.available(a)["gpus"] == 30 and accounts.usage.lent(a)["gpus"] == 30
    assert accounts.usage.borrowed(accounts.tree.leaf("b"))["gpus"] == 30


def test_by_rank_the_first_of_a_queue_are_owed_and_a_smaller_one_may_fit_beside_them() -> None:
    accounts = quota(q("a", 10), q("b", 90))
    for owner, count, rank in (("first", 8, 1), ("large", 4, 2), ("small", 2, 3)):
        take(accounts, "a", owner, count, rank)
    assert [accounts.owed(owner) for owner in ("first", "large", "small")] == [True, False, True]
    accounts.rerank("large", 0)
    assert [accounts.owed(owner) for owner in ("first", "large", "small")] == [False, True, True]


def test_children_share_what_their_parent_is_guaranteed_and_they_are_not() -> None:
    accounts = quota(q("r", 64), QueueRule("r/nlp"), q("r/vision", 16), q("s", 36))
    assert state(accounts, "r/nlp", 48) == "owed"
    assert state(accounts, "r/nlp", 49) == "borrowed"
    assert state(accounts, "r/vision", 64) == "owed"
    take(accounts, "r/nlp", "n1", 48)
    assert state(accounts, "r/vision", 16) == "owed"
    assert state(accounts, "r/vision", 17) == "borrowed"


def test_a_job_that_is_never_preempted_stays_within_the_guarantee() -> None:
    accounts = quota(q("a", 10), q("b", 20))
    a = accounts.tree.leaf("a")
    assert accounts.room(a, gpus(10), may_borrow=False).state == "owed"
    take(accounts, "a", "a1", 4)
    refused = accounts.room(a, gpus(8), may_borrow=False)
    assert refused.gate is Gate.QUOTA and refused.may_not_borrow and not refused.never
    assert refused.words == (
        "queue a would borrow 2 of 8 GPUs, and a job that is never preempted must stay within the guarantee"
    )
    assert accounts.room(a, gpus(11), may_borrow=False).never


def test_what_nobody_is_guaranteed_any_of_is_nobodys_to_take_back() -> None:
    accounts = quota(QueueRule("a", limit=gpus(50)), QueueRule("b"))
    assert accounts.room(accounts.tree.leaf("b"), gpus(500), may_borrow=False).state == "owed"
    assert state(accounts, "a", 51) == "refused"


def test_what_a_queue_keeps_makes_up_for_what_is_borrowed_of_nodes_that_are_lost() -> None:
    rules = [
        QueueRule("a", guarantee=gpus(4), lend=gpus(0)),
        QueueRule("a/x", guarantee=gpus(4)),
        QueueRule("a/y"),
        QueueRule("b", guarantee=gpus(4)),
        QueueRule("c"),
    ]
    accounts = quota(*rules, capacity=8)
    take(accounts, "c", "borrowed when there was more", 2)
    take(accounts, "b", "has its own", 4)
    assert accounts.usage.available(accounts.tree.leaf("a/y"))["gpus"] == 2
    assert state(accounts, "a/y", 2) == "borrowed"
    assert state(accounts, "a/y", 3) == "refused"
    assert state(accounts, "a/x", 4) == "owed"


def test_cohorts_lend_nothing_to_other_cohorts() -> None:
    rules = [
        QueueRule(name, cohort=cohort, guarantee=gpus(20))
        for name, cohort in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b"))
    ]
    accounts = quota(*rules, capacity=90)
    assert accounts.usage.available(accounts.tree.leaf("a1"))["gpus"] == 40 + 10
    take(accounts, "a1", "big", 50)
    assert accounts.usage.available(accounts.tree.leaf("b1"))["gpus"] == 40
    assert list(accounts.borrowers(accounts.tree.leaf("a2"))) == ["big"]
    assert list(accounts.borrowers(accounts.tree.leaf("b1"))) == []


def test_a_cluster_that_lost_nodes_takes_back_from_other_cohorts_too() -> None:
    accounts = quota(QueueRule("a", cohort="x", guarantee=gpus(32)), QueueRule("b"), capacity=64)
    take(accounts, "b", "b1", 32)
    a = accounts.tree.leaf("a")
    assert list(accounts.borrowers(a)) == []
    accounts.capacity = gpus(48)
    assert list(accounts.borrowers(a)) == ["b1"]


def test_limits_bound_a_queue_and_all_below_it() -> None:
    accounts = quota(
        QueueRule("r", limit=gpus(64)), QueueRule("r/nlp", limit=gpus(40)), QueueRule("r/vision")
    )
    take(accounts, "r/nlp", "n1", 30)
    refused = accounts.room(accounts.tree.leaf("r/nlp"), gpus(11))
    assert (refused.gate, refused.queue, refused.short_by) == (Gate.LIMIT, "r/nlp", 1)
    assert refused.words == "queue r/nlp uses 30 of its limit of 40 GPUs"
    refused = accounts.room(accounts.tree.leaf("r/vision"), gpus(35))
    assert (refused.queue, refused.used, refused.most) == ("r", 30, 64)
    never = accounts.room(accounts.tree.leaf("r/vision"), gpus(65))
    assert never.never and never.words == "queue r may use 64 GPUs at most, 65 are asked for"


def test_a_guarantee_below_a_limit_that_a_sibling_filled_can_be_taken_back() -> None:
    accounts = quota(
        QueueRule("r", limit=gpus(60)), q("r/nlp", 20), q("r/vision", 20), capacity=100
    )
    take(accounts, "r/vision", "v1", 20, rank=1)
    take(accounts, "r/vision", "v2", 40, rank=2)
    nlp = accounts.tree.leaf("r/nlp")
    refused = accounts.room(nlp, gpus(10))
    assert refused.gate is Gate.LIMIT and refused.reclaim
    assert list(accounts.borrowers(nlp)) == ["v2"]
    assert accounts.room_without(nlp, gpus(10), ["v2"]).state == "owed"
    assert accounts.room_without(nlp, gpus(41), ["v2"]).state != "owed"
    assert accounts.room(nlp, gpus(10)) == refused


def test_what_a_lender_gives_back_lets_borrowers_ask_again() -> None:
    accounts = quota(q("a", 10), q("b", 0), capacity=10)
    b = accounts.tree.leaf("b")
    take(accounts, "a", "j", 10)
    version = accounts.version_of(b)
    assert state(accounts, "b", 1) == "refused"
    assert accounts.give_back("j") == ROOT
    assert state(accounts, "b", 1) == "borrowed" and accounts.version_of(b) > version


def test_what_is_given_back_below_a_limit_lets_only_those_below_it_ask_again() -> None:
    accounts = quota(
        QueueRule("r", limit=gpus(10)), q("r/a", 10, lend=0), QueueRule("r/b"), QueueRule("s")
    )
    b, s = accounts.tree.leaf("r/b"), accounts.tree.leaf("s")
    take(accounts, "r/a", "j", 10)
    versions = accounts.version_of(b), accounts.version_of(s)
    assert state(accounts, "r/b", 1) == "refused"
    assert accounts.give_back("j") == accounts.tree.queue_node("r")
    assert accounts.version_of(b) > versions[0] and accounts.version_of(s) == versions[1]


def test_users_of_a_queue_have_limits_of_their_own() -> None:
    rule = QueueRule("a", user_limit=gpus(8), most_running_per_user=2)
    accounts = quota(rule)
    ann, bob = accounts.tree.leaf("a", "ann"), accounts.tree.leaf("a", "bob")
    accounts.take(ann, "a1", gpus(6), 0)
    assert accounts.room(ann, gpus(3)).words == "ann in a uses 6 of its limit of 8 GPUs"
    assert not accounts.room(bob, gpus(8)).refused
    accounts.take(ann, "a2", {}, 0)
    refused = accounts.room(ann, {})
    assert refused.words == "ann in a uses 2 of its limit of 2 running jobs"
    assert not accounts.room(bob, {}).refused


def test_so_many_jobs_run_and_so_many_wait() -> None:
    accounts = quota(
        QueueRule("r", most_running=1, most_waiting=2), QueueRule("r/a"), QueueRule("s")
    )
    leaf = accounts.tree.leaf("r/a")
    assert not accounts.room(leaf, {}).refused
    accounts.take(leaf, "j", {}, 0)
    assert accounts.room(leaf, {}).gate is Gate.LIMIT and accounts.counts.running(leaf) == 1
    assert not accounts.room(accounts.tree.leaf("s"), {}).refused
    accounts.enqueue(leaf)
    assert accounts.may_wait(leaf).words == ""
    accounts.enqueue(leaf)
    assert accounts.may_wait(leaf).words == "queue r uses 2 of its limit of 2 waiting jobs"
    accounts.dequeue(leaf)
    assert accounts.may_wait(leaf).words == "" and accounts.counts.waiting(leaf) == 1
    assert accounts.give_back("j") == accounts.tree.queue_node("r")
    assert not accounts.room(leaf, {}).refused


def test_gpus_of_a_model_that_are_guaranteed_are_guaranteed_gpus() -> None:
    rules = (QueueRule("a", guarantee={"gpus/H100": 8}), QueueRule("b", guarantee=gpus(4)))
    accounts = Quota(QueueTree(rules), {"gpus": 16, "gpus/H100": 8, "gpus/T4": 8})
    a, b = accounts.tree.leaf("a"), accounts.tree.leaf("b")
    assert accounts.room(a, {"gpus": 8, "gpus/H100": 8}).state == "owed"
    assert accounts.room(b, {"gpus": 4, "gpus/T4": 4}).state == "owed"
    assert accounts.room(b, {"gpus": 4, "gpus/H100": 4}).state == "borrowed"


def test_quotas_tell_a_t4_from_an_a100_as_asked_for_in_kai_1087_and_kueue_8902() -> None:
    rules = (
        QueueRule("a", guarantee={"gpus/A100-80GB": 8}, limit={"gpus/T4-16GB": 2}),
        QueueRule("b", guarantee={"gpus/A100-80GB": 8}),
    )
    capacity = {"gpus": 116.0, "gpus/A100-80GB": 16.0, "gpus/T4-16GB": 100.0}
    accounts = Quota(QueueTree(rules), capacity)
    a, b = accounts.tree.leaf("a"), accounts.tree.leaf("b")
    accounts.take(b, "many T4s", {"gpus": 90, "gpus/T4-16GB": 90}, 0)
    assert accounts.room(b, {"gpus": 8, "gpus/A100-80GB": 8}).state == "owed"
    assert accounts.room(a, {"gpus": 8, "gpus/A100-80GB": 8}).state == "owed"
    assert accounts.room(a, {"gpus": 9, "gpus/A100-80GB": 9}).state == "borrowed"
    assert accounts.room(a, {"gpus": 3, "gpus/T4-16GB": 3}).gate is Gate.LIMIT


def test_without_rules_nothing_is_refused_and_nobody_borrows() -> None:
    accounts = quota()
    leaf = accounts.tree.leaf("any/queue")
    assert accounts.room(leaf, gpus(1e6)).state == "owed"
    accounts.take(leaf, "j", gpus(1e6), 0)
    assert accounts.owed("j") and list(accounts.borrowers(leaf)) == []


def test_one_job_cannot_be_counted_twice_or_given_back_twice() -> None:
    accounts = quota(q("a", 10))
    take(accounts, "a", "j", 1)
    with pytest.raises(AssertionError, match="j is counted already"):
        take(accounts, "a", "j", 1)
    accounts.give_back("j")
    with pytest.raises(AssertionError, match="j is not counted"):
        accounts.give_back("j")
    assert accounts.usage.used(ROOT) == {"gpus": 0}


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"used": 1.0, "gate": Gate.QUOTA}, "uses 1 GPU and can have 0 more now, 1 is asked for"),
        ({"most": 1.0, "gate": Gate.LIMIT}, "uses 0 of its limit of 1 GPU"),
        ({"asked": 3.0, "never": True}, "may use 2 GPUs at most, 3 are asked for"),
        ({"resource": "running jobs", "most": 1.0, "gate": Gate.LIMIT}, "uses 0 of its limit of 1 running job"),
    ],
)  # fmt: skip
def test_one_is_singular_in_a_refusal(told: dict[str, Any], words: str) -> None:
    least: dict[str, Any] = {"resource": "gpus", "asked": 1.0, "short_by": 1.0}
    assert Admission("refused", name="queue a", **(least | told)).words == f"queue a {words}"


def test_the_example_in_the_page_about_queues_goes_as_told() -> None:
    page = (Path(__file__).parents[2] / "docs" / "queues.md").read_text()
    example = page.partition("## A worked example")[2]
    written = example.partition("```yaml\n")[2].partition("```")[0]
    model = "gpus/H100-80GB"
    tree = QueueTree(read_policy(written, "docs/queues.md").queues)
    accounts = Quota(tree, {"gpus": 128, model: 128})
    told = re.findall(r"^\| `([a-z/]+)` (\d+)[a-z ]* \| (\w+)(?:, (\w+))? \| (.*) \|$", page, re.M)
    assert len(told) == 7
    for rank, (queue, count, expected, gate, why) in enumerate(told):
        leaf = tree.leaf(queue)
        answer = accounts.room(leaf, {"gpus": float(count), model: float(count)})
        assert answer.state == expected
        if answer.refused:
            assert (answer.gate, answer.words) == (Gate(gate), why)
        else:
            accounts.take(
                leaf, f"{queue} {count}", {"gpus": float(count), model: float(count)}, rank
            )
    nlp = tree.leaf("research/nlp")
    assert list(accounts.borrowers(nlp)) == ["interns 8", "product 40"]


def test_the_limit_of_a_queue_is_no_reason_to_take_anything_back() -> None:
    accounts = quota(QueueRule("a", guarantee=gpus(20), limit=gpus(8)), q("b", 10))
    take(accounts, "a", "j", 6)
    refused = accounts.room(accounts.tree.leaf("a"), gpus(4))
    assert refused.gate is Gate.LIMIT and not refused.reclaim


def test_users_of_one_queue_take_nothing_back_from_each_other() -> None:
    accounts = quota(q("a", 10), q("b", 10), capacity=20, share_users=True)
    ann, bob, cid = (accounts.tree.leaf(*who) for who in (("a", "ann"), ("a", "bob"), ("b", "cid")))
    accounts.take(bob, "of bob", gpus(12), 0)
    accounts.take(cid, "of cid", gpus(12), 0)
    accounts.capacity = gpus(12)
    assert list(accounts.borrowers(ann)) == ["of cid"]


def test_who_is_pushed_out_of_a_guarantee_by_one_of_better_rank_is_told_of() -> None:
    accounts = quota(q("a", 8), q("b", 8), capacity=24)
    take(accounts, "a", "late", 8, rank=2)
    before = accounts.pushed_out()
    take(accounts, "b", "beside", 8)
    take(accounts, "a", "last", 4, rank=3)
    assert accounts.pushed_out() == before  # the last borrows itself, and took nobody's guarantee
    take(accounts, "a", "first", 4, rank=1)
    assert not accounts.owed("late")
    assert accounts.pushed_out() > before
    assert accounts.pushed_out() == accounts.pushed_out()
