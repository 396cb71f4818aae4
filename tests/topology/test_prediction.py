"""What a gang's place is predicted to cost: that answers which are kept are those that would be worked out anew."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Cluster, DomainFacts, Link, NicFacts, Node
from gantree.model.jobs import AxisTraffic, Job, Traffic, Transformer
from gantree.model.placements import MemberPlacement, MigPart, SharePart
from gantree.testing.builders import job
from gantree.topology.cost.cost import Pricer, predict, pricer_of
from gantree.topology.cost.prediction import predict_anew
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.catalog import machine
from gantree.topology.traffic import signature
from gantree.topology.traffic.signature import Kept, Shapes
from support.examples import examples

MODELS = {name: machine(name) for name in ("dgx-h100", "dgx-1-v100", "cpu-only")}


def worn_site() -> Fabric:
    """Two spines of two leaves of three nodes, the last of each leaf another machine, and some of it worn or busy."""
    nodes = tuple(
        Node(f"n{n}", ("dgx-1-v100" if n < 6 else "cpu-only") if n % 3 == 2 else "dgx-h100",
             (f"s{n // 6}", f"l{n // 3}"))
        for n in range(12)
    )  # fmt: skip
    cluster = Cluster(
        "worn", ("spine", "leaf", "node"), MODELS, nodes,
        {"spine": Link(20.0, 9.0, 400.0), "leaf": Link(40.0, 6.0)},
        domains=(DomainFacts("leaf", "s0/l1", health=0.5), DomainFacts("node", "n6", load=0.3)),
        nics=(NicFacts("n1", "mlx5_0", health=0.25),),
    )  # fmt: skip
    return Fabric.build(cluster)


USED = worn_site()
PLAIN = job("j", 2, 8)
JOBS = (
    None,
    PLAIN,
    replace(PLAIN, trains=Transformer(7e9, 32, 4096, 512, 96, peak_TFLOPS=100.0)),
    replace(PLAIN, trains=Transformer(7e9, 32, 4096, 512, 96, peak_TFLOPS=100.0),
            parallelism=(("tensor", 2), ("pipeline", 2))),
    replace(PLAIN, traffic=Traffic((AxisTraffic("data", 1e9, 2), AxisTraffic("tensor", 1e8)), 1.0),
            parallelism=(("tensor", 2),), overlap=(("data", 0.5),)),
)  # fmt: skip


@st.composite
def gangs(draw: Callable[..., int]) -> tuple[MemberPlacement, ...]:
    """Members of 0 to 4 GPUs each, or of a share of one, several of them on a node at times; no GPU twice."""
    each = draw(st.sampled_from([0, 1, 2, 4]))
    shared = each == 1 and draw(st.booleans())
    members: list[MemberPlacement] = []
    free = {n: list(range(int(USED.gpus_of_node[n]))) for n in range(12)}
    for rank in range(draw(st.integers(1, 6))):
        node = draw(st.sampled_from([n for n, gpus in free.items() if len(gpus) >= each]))
        at = draw(st.integers(0, len(free[node]) - each))
        gpus = tuple(free[node][at : at + each])
        free[node] = [gpu for gpu in free[node] if gpu not in gpus]
        member = MemberPlacement("w", rank, f"n{node}", () if shared else gpus)
        part = SharePart(gpus[0], 0.5, 20.0, "mps") if shared else None
        members.append(replace(member, share=part))
    return tuple(members)


@settings(max_examples=examples(75), deadline=None)
@given(gangs(), st.sampled_from(JOBS))
def test_what_is_kept_is_what_would_be_worked_out(
    members: tuple[MemberPlacement, ...], asked: Job | None
) -> None:
    assert predict(USED, members, asked) == predict_anew(worn_site(), members, asked)


@settings(max_examples=examples(30), deadline=None)
@given(gangs())
def test_crossings_are_counted_hop_by_hop(members: tuple[MemberPlacement, ...]) -> None:
    nodes = [USED.index_of_node[member.node] for member in members]
    for tier, count in predict(USED, members).crossings:
        domains = USED.domain_of_node[USED.tiers.index(tier)][nodes].tolist()
        following = [*domains[1:], domains[0]]
        assert count == sum(a != b for a, b in zip(domains, following, strict=True))


def on(*nodes: str, gpus: tuple[int, ...] = tuple(range(8))) -> tuple[MemberPlacement, ...]:
    return tuple(MemberPlacement("w", rank, node, gpus) for rank, node in enumerate(nodes))


def test_places_that_look_alike_are_one_answer() -> None:
    told = JOBS[2]
    assert predict(USED, on("n9", "n10"), told) is predict(USED, on("n10", "n9"), told)
    assert predict(USED, on("n9", "n10")) is predict(USED, on("n9", "n10"), PLAIN)
    assert predict(USED, on("n9", "n10"), told) is not predict(USED, on("n9", "n10"))
    worn, whole = (predict(USED, on(*nodes, gpus=(0,))) for nodes in (("n0", "n1"), ("n9", "n10")))
    assert worn.comm_s > 3 * whole.comm_s  # the NIC of the GPU on n1


def test_answers_are_forgotten_before_they_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signature, "MOST_KEPT", 100)
    kept: Kept[int] = Kept()
    for number in range(1000):
        kept.keep(number, number, nodes=4)
        assert kept.answers[number] == number
        assert len(kept.answers) <= 22


# ----- keys


def test_a_shape_forgets_names_and_where_nothing_leaves() -> None:
    shape = pricer_of(USED).shapes.shape
    assert shape([9, 10]) == shape([10, 9]) != shape([9, 7])
    assert shape([9]) == shape([10]) != shape([1])  # n1 has a worn NIC
    assert shape([9, 9, 10]) != shape([9, 10, 10])
    assert shape([0, 3]) != shape([3, 0])  # only one of the leaves is worn


def test_any_gpus_over_nvswitches_are_as_good_as_others() -> None:
    classes = Shapes(pricer_of(USED).traffic_index).classes
    assert len(set(classes([9, 9, 10], [0b11, 0b1010, 0b11000000]))) == 1
    assert len(set(classes([9, 9], [0b11, 0b111]))) == 2
    on_v100 = classes([2, 2, 2], [0b11, 0b100001, 0b1001])
    assert len(set(on_v100)) == 3  # one NVLink, none, and two


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2)), min_size=2, max_size=6))
def test_ranks_that_share_a_gpu_are_not_taken_for_ranks_that_do_not(
    ranks: list[tuple[int, int]],
) -> None:
    table = np.array(ranks)[None]
    pricer = pricer_of(USED)
    for collective in ("all_reduce", "all_to_all", "send_recv"):
        anew = Pricer(USED).price_many(collective, 1e8, table[:, :, 0], table[:, :, 1])
        assert pricer.price(collective, 1e8, ranks) == anew.one(0)


def _instances(*places: tuple[str, int, int]) -> tuple[MemberPlacement, ...]:
    return tuple(
        MemberPlacement("w", rank, node, mig=(MigPart(gpu, "1g.10gb", start),))
        for rank, (node, gpu, start) in enumerate(places)
    )


def test_members_with_parts_of_gpus_are_priced_as_ranks_on_these_gpus() -> None:
    whole = tuple(MemberPlacement("w", rank, f"n{rank}", (0,)) for rank in range(2))
    parts = _instances(("n0", 0, 0), ("n1", 0, 0))
    assert predict(USED, parts).comm_s == predict(USED, whole).comm_s > 0
    on_one_gpu = _instances(("n0", 0, 0), ("n0", 0, 1))
    assert 0 < predict(USED, on_one_gpu).comm_s < predict(USED, parts).comm_s


def test_how_fast_a_part_of_a_gpu_trains_is_not_told() -> None:
    trains = replace(job("j", 2, 1), traffic=Traffic((AxisTraffic("data", 1e9),), 1.0))
    whole = tuple(MemberPlacement("w", rank, f"n{rank}", (0,)) for rank in range(2))
    for _ in range(2):  # from memory too
        assert predict(USED, whole, trains).step_s is not None
        assert predict(USED, _instances(("n0", 0, 0), ("n1", 0, 0)), trains).step_s is None
