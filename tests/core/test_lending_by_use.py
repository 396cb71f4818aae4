"""Queues lend what of their guarantee they have not used for a time, and get it back when they ask for it."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gantree.api.views.lending_view import lending_in_words
from gantree.api.views.queue_view import queues_json
from gantree.core.explain.explain import why
from gantree.core.snapshot.ledger_snapshot import snapshot_of
from gantree.core.snapshot.restore import restored
from gantree.model.events import GangIdlenessObserved, TimePassed
from gantree.model.facts import CheckpointRequested, Fact, GangPreempted, GuaranteeKept
from gantree.model.jobs import Checkpoint, Job
from gantree.model.phases import Phase
from gantree.policy.rules import LendIdle, Policy, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.same_ledger import differences

HOUR_S = 3600.0
LENDS = LendIdle(HOUR_S)


def stage(*lenders: QueueRule, **rules: float) -> Stage:
    """Two nodes of 8 GPUs, all of them guaranteed to queues that lend by use; queue b has none."""
    policy = Policy(queues=(*lenders, QueueRule("b")), **rules)  # type: ignore[arg-type]  # floats
    return Stage(cluster(spines=1, leaves=1, nodes=2), policy)


def queued(name: str, gpus: int, queue: str = "b", **more: Checkpoint | str | None) -> Job:
    return replace(job(name, 1, gpus), queue=queue, **more)  # type: ignore[arg-type]  # fields of a job


def kept(facts: Sequence[Fact]) -> list[dict[str, float]]:
    return [dict(fact.keeps) for fact in facts if isinstance(fact, GuaranteeKept)]


A = QueueRule("a", guarantee={"gpus": 16}, lend_idle=LENDS)


def test_a_guarantee_is_lent_once_it_has_not_been_used_for_an_hour() -> None:
    there = stage(A)
    there.submit(queued("guest", 8))
    assert there.phase("guest") is Phase.PENDING
    assert there.scheduler.wake_at() == HOUR_S
    there.wait(HOUR_S - 1.0)
    assert there.phase("guest") is Phase.PENDING
    there.wait(1.0)
    assert there.phase("guest") is Phase.STARTING
    assert kept(there.facts) == [{"gpus": 16.0}, {"gpus": 0.0}]


def test_what_waits_for_it_is_refused_for_now_and_not_for_ever() -> None:
    there = stage(replace(A, lend_idle=LendIdle(HOUR_S, {"gpus": 4})))
    room = there.scheduler.ledger.accounts.quota.room
    b = there.scheduler.ledger.accounts.tree.leaf("b")
    assert [room(b, {"gpus": gpus}).never for gpus in (8.0, 12.0, 13.0)] == [False, False, True]


@pytest.mark.parametrize(
    ("rule", "used", "expected"),
    [
        (A, 0, 16),  # nothing was used
        (A, 5, 11),
        (replace(A, lend={"gpus": 6}), 0, 16),
        (replace(A, lend={"gpus": 14}), 5, 14),
        (replace(A, lend_idle=LendIdle(HOUR_S, {"gpus": 4})), 0, 12),
        (replace(A, lend_idle=LendIdle(HOUR_S, {"gpus": 4})), 5, 11),
    ],
)
def test_it_keeps_the_most_that_it_used_in_the_hour_and_what_it_never_lends(
    rule: QueueRule, used: int, expected: int
) -> None:
    there = stage(rule)
    if used:
        there.wait(100.0)
        there.submit(queued("own", used, "a"))
        there.started("own")
        there.wait(100.0)
        there.ended("own")
    there.wait(HOUR_S + 100.0 - there.now)
    quota = there.scheduler.ledger.accounts.quota
    b = there.scheduler.ledger.accounts.tree.leaf("b")
    assert quota.usage.available(b)["gpus"] == expected


def test_use_is_kept_although_it_ended_before_anything_was_decided() -> None:
    """A gang that starts and ends while nothing waits: its GPUs are kept for an hour all the same."""
    there = stage(A)
    there.wait(HOUR_S)
    there.submit(queued("own", 8, "a"))
    there.started("own")
    there.wait(600.0)
    there.ended("own")
    there.submit(queued("g1", 8), queued("g2", 8))
    assert [there.phase(name) for name in ("g1", "g2")] == [Phase.STARTING, Phase.PENDING]
    there.wait(HOUR_S - 1.0)
    assert there.phase("g2") is Phase.PENDING
    there.wait(60.0)
    assert there.phase("g2") is Phase.STARTING


def test_a_queue_below_lends_to_its_sibling_under_the_same_rule() -> None:
    above = QueueRule("r", guarantee={"gpus": 16}, lend={"gpus": 0})
    there = stage(above, QueueRule("r/a", guarantee={"gpus": 8}, lend_idle=LENDS), QueueRule("r/c"))
    there.submit(queued("x", 8, "r/c"), queued("y", 8, "r/c"), queued("z", 8))
    assert [there.phase(name) for name in "xyz"] == [Phase.STARTING, Phase.PENDING, Phase.PENDING]
    there.wait(HOUR_S)
    assert [there.phase(name) for name in "xyz"] == [Phase.STARTING, Phase.STARTING, Phase.PENDING]


@pytest.mark.parametrize(
    ("return_within_s", "asks_s", "given_s"),
    [(None, 600.0, 600.0), (60.0, 600.0, 50.0), (60.0, 20.0, 20.0), (10.0, 600.0, 0.0)],
)
def test_a_guarantee_comes_back_in_full_within_the_time_that_its_queue_has_for_it(
    return_within_s: float | None, asks_s: float, given_s: float
) -> None:
    there = stage(replace(A, return_within_s=return_within_s), grace_s=10.0)
    saves = Checkpoint(grace_s=asks_s)
    there.submit(*(queued(name, 8, checkpoint=saves) for name in ("g1", "g2")))
    there.wait(HOUR_S)
    there.started("g1", "g2")
    there.wait(100.0)
    decision = there.submit(queued("o1", 8, "a"), queued("o2", 8, "a"))
    asked = [fact for fact in decision.facts if isinstance(fact, CheckpointRequested)]
    assert [fact.deadline_at - there.now for fact in asked] == [given_s, given_s]
    causes = {fact.cause for fact in decision.facts if isinstance(fact, GangPreempted)}
    assert causes == {"reclaim"}
    for name in ("g1", "g2"):
        there.saved(name, 5)
        there.ended(name)
    assert [there.phase(name) for name in ("o1", "o2")] == [Phase.STARTING, Phase.STARTING]
    assert kept(there.facts)[-1] == {"gpus": 16.0}
    assert there.phase("g1") is Phase.PENDING
    assert there.scheduler.ledger.accounts.quota.usage.available(there.state("g1").queue) == {
        "gpus": 0.0
    }


def test_gangs_that_are_preempted_by_priority_have_their_own_time_to_save() -> None:
    there = stage(replace(A, guarantee={"gpus": 8}, return_within_s=60.0), grace_s=10.0)
    there.submit(queued("own", 8, "a"), queued("guest", 8, checkpoint=Checkpoint(grace_s=600.0)))
    there.started("own", "guest")
    decision = there.submit(queued("urgent", 8, "a", priority="serving"))
    (preempted,) = (fact for fact in decision.facts if isinstance(fact, GangPreempted))
    asked = [fact for fact in decision.facts if isinstance(fact, CheckpointRequested)]
    assert (preempted.job, preempted.cause) == ("guest", "priority")
    assert [fact.deadline_at - there.now for fact in asked] == [600.0]


def test_what_an_idle_gang_held_is_lent_as_soon_as_it_is_gone() -> None:
    there = stage(A)
    there.submit(queued("notebook", 8, "a"))
    there.started("notebook")
    there.submit(queued("g1", 8), queued("g2", 8))
    there.wait(600.0)
    there.tell(GangIdlenessObserved, job="notebook", attempt=1, since=300.0)
    there.wait(HOUR_S + 60.0)
    assert [there.phase(name) for name in ("g1", "g2")] == [Phase.STARTING, Phase.PENDING]
    there.ended("notebook")
    assert there.phase("g2") is Phase.STARTING


def test_why_and_queues_say_what_is_lent_since_it_was_not_used_and_when_more_is() -> None:
    there = stage(replace(A, lend_idle=LendIdle(HOUR_S, {"gpus": 4}), return_within_s=60.0))
    there.submit(queued("guest", 8))
    there.wait(600.0)
    ledger = there.scheduler.ledger
    assert why(ledger, "guest", there.now).sentence == (
        "Waiting: queue b uses 0 GPUs and can have 0 more now, 8 are asked for."
        " Queue a lends more in 50 min unless it uses it."
    )
    there.wait(HOUR_S)
    assert why(ledger, "guest", there.now).sentence.endswith(
        " It borrows: queue a lends 12 GPUs, unused for 1 h, and takes them back within 1 min when its jobs need them."
    )
    (row,) = [each for each in queues_json(ledger, there.now) if each["name"] == "a"]
    assert row["lending"] == {
        "idle_after_s": HOUR_S,
        "keeps": {"gpus": 4.0},
        "lends_unused": {"gpus": 12.0},
        "lends_more_at": None,
        "return_within_s": 60.0,
    }
    assert lending_in_words(row["lending"]) == (
        "lends what it has not used for 1 h: 12 GPUs; back within 1 min"
    )


def test_why_names_other_queues_that_lend_more_and_not_the_own_one() -> None:
    there = stage(
        replace(A, guarantee={"gpus": 8}), QueueRule("c", guarantee={"gpus": 8}, lend_idle=LENDS)
    )
    there.submit(replace(job("wide", 2, 8), queue="a"))
    sentence = why(there.scheduler.ledger, "wide", there.now).sentence
    assert sentence.endswith(" Queue c lends more in 1 h unless it uses it.")


def test_a_gang_that_borrows_from_elsewhere_is_not_on_what_a_closed_subtree_lends() -> None:
    above = QueueRule("r", guarantee={"gpus": 8}, lend={"gpus": 0})
    there = stage(above, QueueRule("r/a", guarantee={"gpus": 8}, lend_idle=LENDS), QueueRule("r/c"))
    there.wait(HOUR_S)
    there.submit(queued("sibling", 4, "r/c"), queued("guest", 8))
    ledger = there.scheduler.ledger
    assert "queue r/a lends" in why(ledger, "sibling", there.now).sentence
    assert "lends" not in why(ledger, "guest", there.now).sentence


def test_a_snapshot_goes_on_as_the_fold_does_and_begins_anew_under_another_rule() -> None:
    there = stage(A)
    there.submit(queued("own", 5, "a"))
    there.started("own")
    there.wait(600.0)
    there.ended("own")
    there.submit(queued("notebook", 2, "a"))
    there.started("notebook")
    there.wait(120.0)
    there.tell(GangIdlenessObserved, job="notebook", attempt=1, since=there.now)
    snapshot = snapshot_of(there.scheduler)
    same = restored(snapshot, there.policy)
    assert not differences(there.scheduler.ledger, same.ledger)
    again = [TimePassed(id="again", observed_at=there.now)]
    assert same.handle(again).wake_at == there.scheduler.handle(again).wake_at == HOUR_S
    other = restored(
        snapshot,
        replace(there.policy, queues=(replace(A, lend_idle=LendIdle(60.0)), QueueRule("b"))),
    )
    assert other.ledger.accounts.lending.kept == {}
    other = restored(snapshot, replace(there.policy, queues=(QueueRule("a"), QueueRule("b"))))
    assert not other.ledger.accounts.lending


BOTH = replace(A, guarantee={"gpus": 16, "cpus": 64})


@pytest.mark.parametrize(("before", "after"), [(A, BOTH), (BOTH, A)])
def test_the_window_begins_anew_where_other_resources_are_guaranteed(
    before: QueueRule, after: QueueRule
) -> None:
    there = stage(before)
    there.wait(HOUR_S / 2)
    rules = replace(there.policy, queues=(after, QueueRule("b")))
    there.scheduler, there.policy = restored(snapshot_of(there.scheduler), rules), rules
    there.submit(queued("own", 2, "a"))
    there.wait(HOUR_S / 2)
    assert kept(there.facts)[-1] == after.guarantee
    there.wait(HOUR_S / 2)
    assert kept(there.facts)[-1] == dict.fromkeys(after.guarantee, 0.0) | {"gpus": 2.0}
