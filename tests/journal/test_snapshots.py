"""Snapshots: a ledger that was written down and read again decides the same as the one that went on, and as a fold."""

import json
from base64 import b64decode, b64encode
from dataclasses import replace
from pathlib import Path
from zlib import compress, decompress

import pytest
from pydantic_core import from_json, to_json

from gantree.core.ledger.invariants import check
from gantree.core.scheduler import Scheduler, settled
from gantree.core.snapshot.ledger_snapshot import snapshot_of
from gantree.core.snapshot.restore import restored
from gantree.journal.encoding import snapshots
from gantree.journal.encoding.columns import pack, unpack
from gantree.journal.encoding.snapshots import SnapshotCodec, books_of
from gantree.model.errors import JournalError
from gantree.model.events import ClusterObserved, EndedJobsDue, TimePassed
from gantree.model.facts import PolicyAdopted
from gantree.model.jobs import Job, Role, Shape
from gantree.model.phases import Phase
from gantree.policy.rules import Policy, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.random_lives import POLICIES, Lives
from support.same_ledger import differences

VERSION_2 = Path(__file__).parents[1] / "data" / "snapshots" / "version-2.json"


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_restored_equals_what_was_kept_and_decides_the_same_from_then_on(
    policy: str,
) -> None:
    lives = Lives(0, POLICIES[policy])
    for number in range(55):
        if number in (20, 40):
            twin = lives.make_twin()
            assert differences(twin.ledger, lives.scheduler.ledger) == []
            check(twin.ledger)
            lives.twins += [(f"snapshot at {number}", twin), (f"fold at {number}", lives.folded())]
        lives.step()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("as it comes", "quotas"),
        ("quotas", "as it comes"),
        ("quotas", "cells"),
        ("cells", "in turn"),
        ("in turn", "shortest"),
        ("turns", "by order without a half-life"),
        ("moves", "turns"),
    ],
)
def test_under_another_policy_it_equals_the_fold_under_that_policy(before: str, after: str) -> None:
    """Where all run times are told and nothing decays; what differs else is said in `restored`."""
    policies = {
        **POLICIES,
        "by order without a half-life": replace(POLICIES["by order"], half_life_s=None),
        "cells": replace(POLICIES["cells"], half_life_s=None),
    }
    lives = Lives(7, policies[before], guesses=False)
    for _ in range(45):
        lives.step()
    twin, fold = lives.make_twin(policies[after]), lives.folded(policies[after])
    assert differences(twin.ledger, fold.ledger, any_order=True) == []
    lives.scheduler, lives.twins, lives.policy = fold, [("restored", twin)], policies[after]
    for _ in range(25):
        lives.step()


def lived(seed: int = 3, steps: int = 40) -> Lives:
    lives = Lives(seed, POLICIES["quotas"])
    for _ in range(steps):
        lives.step()
    return lives


def text_of(scheduler: Scheduler) -> str:
    return SnapshotCodec().encode(snapshot_of(scheduler))


def test_jobs_that_have_ended_are_packed_once_and_never_told_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshots, "JOBS_OF_A_SECTION", 2)
    lives, codec = lived(seed=11, steps=60), SnapshotCodec()
    ended = lives.scheduler.ledger.ended
    assert len(ended) > 2 and not lives.scheduler.ledger.forgotten
    first = json.loads(codec.encode(snapshot_of(lives.scheduler)))
    assert codec.ended_known == len(ended) // 2 * 2
    again = snapshot_of(lives.scheduler, codec.ended_known)
    assert again.ended["job"] == [state.job for state in ended[codec.ended_known :]]
    assert json.loads(codec.encode(again))["ended"] == first["ended"]
    gone = len(ended) - 2
    lives.tell(EndedJobsDue, keep=2, ended_before=lives.now + 1.0)
    ledger = lives.scheduler.ledger
    assert (ledger.forgotten, len(ledger.ended)) == (gone, 2)
    whole = snapshot_of(lives.scheduler, codec.begin(ledger.forgotten))
    assert whole.ended["job"] == [state.job for state in ledger.ended], "all are told anew"


def test_a_snapshot_of_a_newer_gantree_is_refused_and_so_is_a_column_that_is_not_known() -> None:
    plain = json.loads(text_of(lived().scheduler))
    newer = json.dumps({**plain, "version": plain["version"] + 1})
    for read in (SnapshotCodec().decode, books_of):
        with pytest.raises(JournalError, match="newer gantree; upgrade this one"):
            read(newer)
    live = json.loads(decompress(b64decode(plain["live"])))
    live["columns"]["mood"] = ["fine"] * live["count"]
    packed = b64encode(compress(json.dumps(live).encode())).decode()
    with pytest.raises(JournalError, match="tells mood of a JobState: it was written by a newer"):
        SnapshotCodec().decode(json.dumps({**plain, "live": packed}))


@pytest.mark.parametrize("cut", [0.1, 0.5, 0.9])
def test_a_damaged_snapshot_is_told_from_a_whole_one(cut: float) -> None:
    text = text_of(lived().scheduler)
    place = int(len(text) * cut)
    with pytest.raises(JournalError, match="damaged"):
        SnapshotCodec().decode(text[:place] + "!" + text[place + 1 :])
    with pytest.raises(JournalError, match="damaged"):
        SnapshotCodec().decode(text[:place])


def test_a_snapshot_of_an_older_version_is_brought_up_to_today(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if version 0 had called a column otherwise."""
    lives = lived()
    plain = json.loads(text_of(lives.scheduler))

    def renamed(sections: dict[str, bytes]) -> dict[str, bytes]:
        return {**sections, "live": sections["live"].replace(b'"failed_times"', b'"failures"')}

    old = decompress(b64decode(plain["live"])).replace(b'"failures"', b'"failed_times"')
    packed = b64encode(compress(old)).decode()
    monkeypatch.setitem(snapshots.UPCASTERS, 0, renamed)
    codec = SnapshotCodec()
    snapshot = codec.decode(json.dumps({**plain, "version": 0, "live": packed}))
    assert snapshot.live == snapshot_of(lives.scheduler).live
    assert codec.sections == [], "what was packed by an older version is packed anew"


def test_what_version_1_counted_of_preempted_jobs_is_passed_over() -> None:
    lives = lived()
    plain = json.loads(text_of(lives.scheduler))

    def as_version_1(section: str) -> str:
        packed = json.loads(decompress(b64decode(section)))
        packed["columns"]["cut_short"] = [3] * packed["count"]
        packed["columns"]["cut_short_for"] = [["a", "b", "a"]] * packed["count"]
        return b64encode(compress(json.dumps(packed).encode())).decode()

    old = {"version": 1, "live": as_version_1(plain["live"])}
    old["ended"] = [as_version_1(each) for each in plain["ended"]]
    snapshot = SnapshotCodec().decode(json.dumps({**plain, **old}))
    today = snapshot_of(lives.scheduler)
    assert (snapshot.live, snapshot.ended) == (today.live, today.ended)


def test_gangs_of_a_snapshot_of_version_2_are_measured_from_then_on() -> None:
    """It has an account of use, which is passed over, and no spans of running (`core.ledger.measured_attempt`)."""
    snapshot = SnapshotCodec().decode(VERSION_2.read_text())
    scheduler = restored(snapshot, POLICIES["shares"])
    now = scheduler.now
    running = [s for s in scheduler.ledger.holding.values() if s.phase is Phase.RUNNING]
    assert len(running) == 3
    for state in running:
        assert state.running_at is not None
        attempt = state.metered.measured_attempt
        assert attempt.runs_since == now - state.ran_s(now)
        assert attempt.untold(0.0, now, now) == ()
        assert attempt.untold(0.0, now + 15.0, now + 15.0) == ((now, now + 15.0),)


def test_columns_give_back_what_was_packed_and_leave_out_what_is_the_default() -> None:
    role = Role("w", 2, Shape(gpus=8), run=("a", "b"), env=(("K", "v"),))
    jobs = [Job("a", (role,)), Job("b", (role, replace(role, name="x")), time_limit_s=float("inf"))]
    packed = from_json(to_json(pack(Job, jobs), inf_nan_mode="constants"))
    assert unpack(Job, packed) == jobs
    assert list(packed["columns"]) == ["name", "roles", "time_limit_s"]
    assert packed["columns"]["roles"]["of"]["count"] == 2
    with pytest.raises(JournalError, match="name of Job: 1 values, not 2"):
        unpack(Job, {**packed, "columns": {**packed["columns"], "name": ["a"]}})
    with pytest.raises(JournalError, match="name of Job: it has values of type int"):
        unpack(Job, {**packed, "columns": {**packed["columns"], "name": ["a", 1]}})
    with pytest.raises(JournalError, match="name of Job: it is missing"):
        unpack(Job, {"count": 1, "columns": {}})


def test_a_ledger_that_saw_no_cluster_yet_is_kept_too() -> None:
    scheduler = Scheduler(Policy())
    codec = SnapshotCodec()
    kept = codec.decode(codec.encode(snapshot_of(scheduler)))
    assert (kept.books.occupancy, kept.books.described) == (None, None)


def again(stage: Stage) -> Scheduler:
    codec = SnapshotCodec()
    text = codec.encode(snapshot_of(stage.scheduler))
    twin = restored(codec.decode(text), stage.policy)
    assert differences(twin.ledger, stage.scheduler.ledger) == []
    return twin


def test_turns_on_a_shared_gpu_go_on_where_they_were() -> None:
    stage = Stage(cluster(leaves=1, nodes=1, gpus=1), POLICIES["turns"])
    shape = Shape(gpu_share=0.5, isolation="time-slicing")
    stage.submit(
        *(Job(name, (Role("w", 1, shape, run=("true",)),), time_limit_s=90) for name in "ab")
    )
    stage.started("a", "b")
    for _ in range(3):
        stage.wait(15.0)
    assert stage.state("a").slices.turns and stage.state("a").slices.suspended_s
    twin = again(stage)
    assert settled(twin, [], stage.now).wake_at == stage.scheduler.wake_at()
    decision = stage.wait(15.0)
    event = TimePassed(id="twin", observed_at=stage.now)
    assert twin.handle([event]).facts == decision.facts


def test_a_gang_counts_for_what_it_held_when_its_gpus_were_called_otherwise() -> None:
    """The site calls the GPUs of a node by another name while a gang runs there; quotas go on with what was counted."""
    before = cluster(leaves=1, nodes=1, gpus=4)
    machines = {name: replace(one, gpu="A100-80GB") for name, one in before.machines.items()}
    rule = QueueRule("q", guarantee={"gpus/H100-80GB": 4})
    stage = Stage(before, Policy(queues=(rule,), half_life_s=100.0))
    stage.submit(replace(job("a", gpus=4), queue="q"))
    stage.started("a")
    stage.tell(ClusterObserved, cluster=replace(before, machines=machines))
    assert snapshot_of(stage.scheduler).books.counted == {"a": {"gpus": 4, "gpus/H100-80GB": 4}}
    twin = again(stage)
    accounts = twin.ledger.accounts
    assert accounts.quota.usage.used(accounts.tree.leaf("q"))["gpus/H100-80GB"] == 4


def test_versions_of_the_policy_stay_on_record() -> None:
    scheduler = Scheduler(Policy())
    version = PolicyAdopted(at=1.0, number=1, text="preset: fair", source="p.yaml", by="ann")
    scheduler.recover([version])
    text = text_of(scheduler)
    assert books_of(text).policies == (version,)
    assert restored(SnapshotCodec().decode(text), Policy()).ledger.policies == [version]
