"""Claims by node, held against a plain look at all of them; and which claims a gang that ends concerns."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.core.cycle import claim_admission
from gantree.core.ledger.claims_by_node import ClaimsByNode
from gantree.model.jobs import Job
from gantree.model.placements import Domain, MemberPlacement, Placement, Predicted
from gantree.placement.choice import search
from gantree.testing import builders
from gantree.testing.stage import Stage
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples

NODES = ("n0", "n1", "n2", "n3")
nodes = st.lists(st.sampled_from(NODES), min_size=1, max_size=3, unique=True)
steps = st.lists(st.tuples(st.sampled_from("abcdef"), st.none() | nodes), max_size=20)


def place(on: list[str]) -> Placement:
    members = tuple(MemberPlacement("w", rank, node) for rank, node in enumerate(on))
    return Placement(members, Domain("fabric", ""), Predicted(0.0, ()))


@settings(max_examples=examples(100), deadline=None)
@given(steps, nodes)
def test_who_claims_something_on_some_nodes_is_told_the_oldest_claim_first(
    history: list[tuple[str, list[str] | None]], asked: list[str]
) -> None:
    claimants, plain = ClaimsByNode(), dict[str, list[str]]()
    for job, claimed in history:
        if claimed is not None:
            claimants.note(job, place(claimed))
            plain[job] = claimed  # a claim that is changed keeps its age
        elif job in plain:
            claimants.forget(job)
            del plain[job]
    assert list(claimants.on(asked)) == [job for job in plain if set(plain[job]) & set(asked)]


def test_claims_whose_room_cannot_be_free_are_not_searched_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of many claims, each on a GPU of another victim, one victim's end concerns one."""
    gpus, searches = 16, list[str]()
    fits = search.fits

    def counted(rooms: Occupancy, spec: Job) -> bool:
        searches.append(spec.name)
        return fits(rooms, spec)

    stage = Stage(builders.cluster(leaves=1, nodes=2, gpus=gpus // 2))
    stage.submit(*(builders.job(f"low{n}") for n in range(gpus)))
    stage.started(*(f"low{n}" for n in range(gpus)))
    stage.submit(*(builders.job(f"high{n}", priority="production") for n in range(gpus)))
    assert len(stage.scheduler.ledger.claims) == gpus
    stage.recovered_every = 1_000
    monkeypatch.setattr(claim_admission, "fits", counted)
    stage.ended("low0")
    assert len(stage.scheduler.ledger.claims) == gpus - 1
    assert len(searches) < gpus
