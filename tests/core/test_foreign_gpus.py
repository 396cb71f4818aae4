"""Room of others, whom gantree did not start: it is never given out, and they ask nobody."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.core.explain.explain import why
from gantree.core.ledger.invariants import check
from gantree.core.snapshot.ledger_snapshot import snapshot_of
from gantree.core.snapshot.restore import restored
from gantree.model.cluster import Node
from gantree.model.events import ClusterObserved, HoldRequested, OthersHold, ReleaseRequested
from gantree.model.node_rules import NODES_LABEL, TOLERATES_LABEL, Taint
from gantree.model.phases import Phase
from gantree.model.placements import MemberPlacement, holder_beside
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.examples import examples


def held(node: str, *gpus: int) -> tuple[MemberPlacement, ...]:
    return (MemberPlacement(role="others", rank=0, node=node, gpus=gpus),)


def hold(stage: Stage, holder: str, members: tuple[MemberPlacement, ...]) -> None:
    stage.tell(OthersHold, holder=holder, members=members)


def counted(stage: Stage, holder: str) -> int:
    owners = stage.scheduler.ledger.rooms().owners
    return sum(len(member.gpus) for member in owners.get(f"site:{holder}", ()))


def test_what_others_hold_is_not_given_out_until_they_go() -> None:
    stage = Stage(cluster(leaves=1, nodes=1))
    hold(stage, "theirs", held("n0", 0, 1, 2, 3, 4, 5))
    stage.submit(job("small", gpus=2), job("large", gpus=4))
    assert stage.phases() == {"small": "starting", "large": "pending"}
    hold(stage, "theirs", ())
    assert stage.phase("large") is Phase.STARTING


def test_others_who_come_where_a_gang_is_have_what_is_left_and_all_of_it_later() -> None:
    stage = Stage(cluster(leaves=1, nodes=1))
    stage.submit(job("mine", gpus=6))
    stage.started("mine")
    hold(stage, "theirs", held("n0", 0, 1, 2, 3))
    assert counted(stage, "theirs") == 2
    stage.ended("mine")
    hold(stage, "more", held("n0", 7))
    stage.submit(job("next", gpus=5))
    assert counted(stage, "theirs") == 4
    assert stage.phase("next") is Phase.PENDING


def test_others_are_carried_over_to_a_site_that_is_observed_anew() -> None:
    stage = Stage(cluster(leaves=1, nodes=2))
    hold(stage, "theirs", held("n1", *range(8)))
    stage.tell(ClusterObserved, cluster=cluster(leaves=1, nodes=3))
    assert counted(stage, "theirs") == 8


@pytest.mark.parametrize(("holder", "leaves"), [(holder_beside("low"), True), ("theirs", False)])
def test_what_is_held_beside_a_gang_comes_free_with_it(holder: str, leaves: bool) -> None:
    stage = Stage(cluster(leaves=1, nodes=1))
    stage.submit(job("low", gpus=4, priority="research"))
    stage.started("low")
    hold(stage, holder, held("n0", 4, 5, 6, 7))
    stage.submit(job("high", gpus=8, priority="production"))
    assert (stage.phase("low") is Phase.STOPPING) is leaves
    if leaves:
        hold(stage, holder, ())
        stage.ended("low")
        assert stage.phase("high") is Phase.STARTING


def test_room_that_is_held_for_a_claim_yields_to_others() -> None:
    stage = Stage(cluster(leaves=1, nodes=1))
    stage.submit(job("low", gpus=8, priority="research"))
    stage.started("low")
    stage.submit(job("high", gpus=8, priority="production"))
    assert stage.phase("low") is Phase.STOPPING
    hold(stage, "theirs", held("n0", 0, 1))
    stage.ended("low", 143)
    assert stage.phase("high") is Phase.PENDING
    hold(stage, "theirs", ())
    assert stage.phase("high") is Phase.STARTING


def test_a_gang_that_leaves_may_be_held_and_says_what_it_waits_for() -> None:
    stage = Stage(cluster(leaves=1, nodes=1))
    stage.submit(job("gang", gpus=8, restarts=3, backoff_s=0.0))
    stage.started("gang")
    stage.tell(HoldRequested, job="gang", reason="its pods are not there")
    assert not stage.state("gang").held  # it runs, and nobody told it to stop
    stage.rank_failed("gang")
    stage.tell(HoldRequested, job="gang", reason="its pods are not there")
    stage.ended("gang", 1)
    assert stage.phase("gang") is Phase.PENDING
    told = why(stage.scheduler.ledger, "gang", stage.scheduler.now)
    assert told.sentence == "Waiting: its pods are not there. Last failure: rank 0 ended with 1."
    stage.tell(ReleaseRequested, job="gang")
    assert stage.phase("gang") is Phase.STARTING


def test_a_tainted_node_takes_only_who_tolerates_it_and_a_rule_chooses_nodes() -> None:
    site = cluster(leaves=1, nodes=2)

    def labelled(node: Node, taints: tuple[Taint, ...]) -> Node:
        return replace(node, labels=(("zone", node.name),), taints=taints)

    nodes = (labelled(site.nodes[0], (Taint("dedicated", "ml"),)), labelled(site.nodes[1], ()))
    stage = Stage(replace(site, nodes=nodes))

    def asking(name: str, *labels: tuple[str, str]) -> Any:
        spec = job(name, gpus=1)
        roles = tuple(replace(r, shape=replace(r.shape, labels=labels)) for r in spec.roles)
        return replace(spec, roles=roles)

    stage.submit(
        asking("plain"),
        asking("tolerant", (TOLERATES_LABEL, "dedicated=ml"), (NODES_LABEL, "zone in (n0)")),
        asking("lost", (NODES_LABEL, "zone in (n0)")),
    )
    assert stage.nodes("plain") == ["n1"]
    assert stage.nodes("tolerant") == ["n0"]
    assert stage.phase("lost") is Phase.PENDING


acts = st.one_of(
    st.tuples(
        st.just("hold"),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["n0", "n1", "gone"]),
        st.sets(st.integers(0, 7)),
    ),
    st.tuples(st.just("submit"), st.integers(1, 8), st.sampled_from(["research", "production"])),
    st.tuples(st.just("end"), st.integers(0, 5)),
    st.tuples(st.just("observe"), st.integers(1, 3)),
)


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(acts, min_size=3, max_size=25))
def test_whatever_others_do_no_gpu_is_held_twice_and_a_snapshot_has_all_of_it(
    life: list[Any],
) -> None:
    most = 2
    stage = Stage(cluster(leaves=1, nodes=most))
    for number, act in enumerate(life):
        match act:
            case ("hold", holder, node, gpus):
                hold(stage, holder, held(node, *sorted(gpus)) if gpus else ())
            case ("submit", gpus, priority):
                stage.submit(job(f"j{number}", gpus=gpus, priority=priority))
            case ("end", place):
                holding = list(stage.scheduler.ledger.holding)
                if place < len(holding):
                    stage.ended(holding[place])
            case ("observe", nodes):
                most = max(most, nodes)  # what runs is never left without its node
                stage.tell(ClusterObserved, cluster=cluster(leaves=1, nodes=most))
        ledger = stage.scheduler.ledger
        check(ledger)
        for holder, members in ledger.site.others.items():
            assert counted(stage, holder) <= sum(len(member.gpus) for member in members)
    again = restored(snapshot_of(stage.scheduler), stage.scheduler.policy).ledger
    assert again.site.others == stage.scheduler.ledger.site.others
    assert again.rooms().owners == stage.scheduler.ledger.rooms().owners
