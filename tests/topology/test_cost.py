"""What places cost: the order that any honest price must have, and that keeping and batching prices changes none."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Cluster, DomainFacts, Link, Machine, NicFacts, Node
from gantree.model.jobs import COLLECTIVES, Job, Transformer
from gantree.model.placements import MemberPlacement
from gantree.testing.builders import job
from gantree.topology.cost.cost import GIB, Pricer, predict, pricer_of, ranks_of
from gantree.topology.fabric.calibration import Calibration
from gantree.topology.fabric.conditions import Conditions
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.catalog import machine
from support.examples import examples

ALL = tuple(range(8))
TIERS = ("spine", "leaf", "node")
Ranks = list[tuple[int, int]]


def site(model: str = "dgx-h100", nodes: int = 8, **changed: object) -> Cluster:
    """Nodes, two a leaf, two leaves a spine; wider tiers are slower and have thin up-links."""
    names = tuple(Node(f"n{n}", model, (f"s{n // 4}", f"l{n // 2}")) for n in range(nodes))
    links = {"spine": Link(20.0, 9.0, 400.0), "leaf": Link(40.0, 6.0, 600.0)}
    cluster = Cluster("test", TIERS, {model: machine(model)}, names, links)
    return replace(cluster, **changed)  # type: ignore[arg-type] # callers name fields of Cluster


FABRIC = Fabric.build(site())
PRICER = Pricer(FABRIC)


def on(*nodes: str, gpus: tuple[int, ...] = ALL) -> list[MemberPlacement]:
    return [MemberPlacement("w", rank, node, gpus) for rank, node in enumerate(nodes)]


def whole(*nodes: int) -> Ranks:
    return [(node, gpu) for node in nodes for gpu in ALL]


def seconds(ranks: Ranks, size: float = GIB, collective: str = "all_reduce") -> float:
    return PRICER.price(collective, size, ranks).seconds


# ----- a gang's place


def test_one_gpu_has_nothing_to_exchange() -> None:
    assert predict(FABRIC, on("n0", gpus=(3,))).comm_s == 0
    assert predict(FABRIC, on("n0", gpus=())).comm_s == 0


def test_crossings_count_the_hops_of_the_closed_ring() -> None:
    crossings = dict(predict(FABRIC, on("n0", "n1", "n2", "n4")).crossings)
    assert crossings == {"spine": 2, "leaf": 3, "node": 4}
    assert set(dict(predict(FABRIC, on("n0", "n0")).crossings).values()) == {0}


def test_a_wider_spread_costs_more() -> None:
    spreads = (["n0", "n1"], ["n0", "n2"], ["n0", "n4"])
    prices = [predict(FABRIC, on(*nodes)).comm_s for nodes in spreads]
    assert prices == sorted(prices)
    assert len(set(prices)) == 3


def test_ranks_are_the_gpus_of_members_in_order() -> None:
    members = on("n1", "n0", gpus=(2, 0))
    assert ranks_of(FABRIC, members) == [(1, 2), (1, 0), (0, 2), (0, 0)]


def test_a_step_is_predicted_where_the_job_tells_its_model() -> None:
    plain = job("j", members=2, gpus=8)
    told = replace(plain, trains=Transformer(7e9, 32, 4096, 4096, 64))
    assert predict(FABRIC, on("n0", "n1"), plain).step_s is None
    step_s = predict(FABRIC, on("n0", "n1"), told).step_s
    assert step_s is not None
    assert step_s > 1


def test_a_gang_that_its_parallelism_no_longer_fits_has_no_step() -> None:
    shrunk: Job = replace(
        job("j", members=3, gpus=8),
        trains=Transformer(7e9, 32, 4096, 4096, 64),
        parallelism=(("tensor", 8), ("data", 4)),
    )
    assert predict(FABRIC, on("n0", "n1", "n2"), shrunk).step_s is None


# ----- orders that hold for any place

places = st.permutations([(n, g) for n in range(8) for g in range(8)]).map(lambda all_: all_[:12])
collectives = st.sampled_from(COLLECTIVES)
sizes = st.sampled_from([8, 1 << 16, 1 << 20, 1 << 26, GIB, 16 * GIB])


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(places, min_size=1, max_size=5), collectives, sizes)
def test_many_at_once_cost_what_each_costs_alone(
    groups: list[Ranks], collective: str, size: float
) -> None:
    table = np.array(groups)
    many = PRICER.price_many(collective, size, table[:, :, 0], table[:, :, 1])
    for number, group in enumerate(groups):
        alone = Pricer(FABRIC).price(collective, size, group)
        assert many.one(number) == alone


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(places, min_size=2, max_size=4), st.lists(places, min_size=1, max_size=2), sizes)
def test_company_never_makes_a_group_faster(
    groups: list[Ranks], company: list[Ranks], size: float
) -> None:
    table = np.array([*groups, *company])
    for collective in ("all_reduce", "all_to_all", "send_recv"):
        alone = PRICER.price_many(collective, size, table[:, :, 0], table[:, :, 1]).seconds
        beside = PRICER.price_together(collective, size, table[:, :, 0], table[:, :, 1]).seconds
        assert (beside >= alone * (1 - 1e-9)).all()


def worse_sites() -> list[Cluster]:
    """Sites that differ from the plain one in one thing, each for the worse."""
    links, base = site().links, site()
    worse = [
        replace(base, links={**links, tier: replace(link, **change)})
        for tier, link in links.items()
        for change in (
            {"bandwidth_GBps": link.bandwidth_GBps / 3},
            {"latency_us": link.latency_us * 4},
            {"uplink_GBps": (link.uplink_GBps or 0) / 5},
        )
    ]
    worse += [
        replace(base, domains=(DomainFacts(tier, name, uplink, health, load),))
        for tier, name in (("spine", "s0"), ("leaf", "s0/l0"), ("node", "n0"))
        for uplink, health, load in ((None, 0.4, 0.0), (None, 1.0, 0.8), (30.0, 1.0, 0.0))
    ]
    worse += [replace(base, nics=(NicFacts("n0", "mlx5_0", health),)) for health in (0.5, 0.0)]
    slow = machine("dgx-h100")
    nics = tuple(replace(nic, bandwidth_GBps=12.0) for nic in slow.nics)
    worse.append(replace(base, machines={"dgx-h100": replace(slow, nics=nics)}))
    return worse


WORSE = [Pricer(Fabric.build(cluster)) for cluster in worse_sites()]


@settings(max_examples=examples(60), deadline=None)
@given(places, collectives, sizes, st.sampled_from(WORSE))
def test_nothing_gets_cheaper_when_a_link_gets_worse(
    ranks: Ranks, collective: str, size: float, worse: Pricer
) -> None:
    assert worse.price(collective, size, ranks).seconds >= seconds(ranks, size, collective) * (
        1 - 1e-9
    )


@pytest.mark.parametrize("number", range(len(WORSE)))
def test_each_of_these_links_matters_to_some_place(number: int) -> None:
    everywhere, apart = whole(0, 1, 2, 3, 4, 5), whole(0, 4)
    assert any(
        WORSE[number].price(collective, size, ranks).seconds > seconds(ranks, size, collective)
        for ranks in (everywhere, apart, whole(0, 1), [(0, 0), (4, 0)])
        for collective in ("all_reduce", "all_to_all", "send_recv")
        for size in (8, GIB)
    )


@settings(max_examples=examples(40), deadline=None)
@given(
    st.integers(1, 3),
    st.data(),
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"]),
)
def test_spreading_nodes_over_more_domains_never_makes_large_messages_cheaper(
    pairs: int, data: st.DataObject, collective: str
) -> None:
    """Of all-to-alls only out of one leaf: halves send each other less than a large part and a small one do."""
    packed = list(range(2 if collective == "all_to_all" else 2 * pairs))
    spread = data.draw(st.permutations(range(8)))[: len(packed)]
    spread.sort()
    assert seconds(whole(*spread), GIB, collective) >= seconds(whole(*packed), GIB, collective) * (
        1 - 1e-9
    )


@settings(max_examples=examples(40), deadline=None)
@given(st.permutations(range(8)), sizes)
def test_no_order_of_nodes_beats_that_of_the_topology(order: Sequence[int], size: float) -> None:
    assert seconds(whole(*order), size) >= seconds(whole(*range(8)), size) * (1 - 1e-9)


def test_a_shuffled_ring_costs_more() -> None:
    assert seconds(whole(0, 4, 1, 5, 2, 6, 3, 7)) > 1.5 * seconds(whole(*range(8)))


@settings(max_examples=examples(40), deadline=None)
@given(st.permutations(range(4)), st.permutations(range(4)), collectives, sizes)
def test_exchanging_nodes_of_one_leaf_changes_nothing(
    one: list[int], other: list[int], collective: str, size: float
) -> None:
    leaf = Fabric.build(Cluster("s", ("leaf", "node"), site().machines, tuple(
        Node(f"n{n}", "dgx-h100", (f"l{n // 4}",)) for n in range(8))))  # fmt: skip
    pricer = pricer_of(leaf)
    plain, exchanged = whole(*range(8)), whole(*one, *(4 + n for n in other))
    prices = [pricer.price(collective, size, ranks).seconds for ranks in (plain, exchanged)]
    assert prices[0] == pytest.approx(prices[1])


# ----- what is kept


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(places, min_size=2, max_size=6), collectives)
def test_places_of_one_signature_have_one_price(groups: list[Ranks], collective: str) -> None:
    worn = Fabric.build(site(domains=(DomainFacts("leaf", "s0/l1", health=0.5),)))
    kept = Pricer(worn)
    for ranks in groups:
        assert kept.price(collective, GIB, ranks) == Pricer(worn).price(collective, GIB, ranks)


def test_a_place_that_looks_alike_is_not_priced_again() -> None:
    pricer = Pricer(FABRIC)
    alike = [whole(0, 2), whole(1, 3), whole(4, 6), whole(7, 5)]
    prices = {id(pricer.price("all_reduce", GIB, ranks)) for ranks in alike}
    assert len(prices) == 1


def test_sends_over_the_same_gpus_in_another_order_are_another_price() -> None:
    v100 = Pricer(Fabric.build(site("dgx-1-v100")))
    linked = v100.price("send_recv", GIB, [(0, gpu) for gpu in (0, 1, 2, 3)])
    crosswise = v100.price("send_recv", GIB, [(0, gpu) for gpu in (0, 1, 2, 3, 4, 5)])
    over_host = v100.price("send_recv", GIB, [(0, gpu) for gpu in (0, 5, 1, 4, 2, 3)])
    assert linked.limit == "NV1"
    assert crosswise.limit == over_host.limit == "SYS"
    assert v100.price("send_recv", GIB, [(0, g) for g in (0, 1, 2, 6, 5, 4)]).limit == "NV1"
    assert v100.price("send_recv", GIB, [(0, g) for g in (0, 6, 1, 5, 2, 4)]).limit == "SYS"


def test_what_bounds_a_price_does_not_depend_on_what_was_asked_before() -> None:
    """Of the GPUs of an NVLink domain one alone on its node has no link inside it to name."""
    models = {name: machine(name) for name in ("dgx-2", "hgx-h100")}
    nodes = tuple(Node(f"n{n}", name, ("r0",)) for n, name in enumerate(models))
    fabric = Fabric.build(Cluster("s", ("nvlink", "node"), models, nodes))
    asked, other = [(0, 15), (1, 0), (1, 1)], [(1, 0), (0, 1), (0, 2)]
    used = Pricer(fabric)
    words = {used.price(collective, GIB, other).limit for collective in COLLECTIVES}
    for collective in COLLECTIVES:
        price = used.price(collective, GIB, asked)
        assert price == Pricer(fabric).price(collective, GIB, asked)
        words.add(price.limit)
    assert words == {"NV6"}


def test_links_that_nobody_told_are_not_nothing() -> None:
    untold = Pricer(Fabric.build(site(machines={"dgx-h100": Machine("dgx-h100", 8, "H100-80GB")})))
    for collective in COLLECTIVES:
        price = untold.price(collective, GIB, whole(0))
        assert price.limit == "unknown link"
        assert price.seconds > seconds(whole(0), GIB, collective)


def test_wear_and_wear_elsewhere_are_different_signatures() -> None:
    worn = Pricer(Fabric.build(site(domains=(DomainFacts("leaf", "s0/l0", health=0.1),))))
    near, far = (worn.price("all_reduce", GIB, ranks) for ranks in (whole(0, 2), whole(4, 6)))
    assert near.seconds > far.seconds


# ----- what is known of now and here


def test_conditions_of_now_take_the_place_of_the_files() -> None:
    now = Conditions(FABRIC)
    now.set_domain(*FABRIC.find("leaf", "s0/l0"), load=0.9)
    busy = Pricer(FABRIC, conditions=now)
    assert busy.price("all_reduce", GIB, whole(0, 2)).limit == "leaf"
    assert busy.price("all_reduce", GIB, whole(0, 2)).seconds > seconds(whole(0, 2))
    assert busy.price("all_reduce", GIB, whole(4, 6)).seconds == seconds(whole(4, 6))


def test_measured_links_take_the_place_of_the_sites_and_of_the_constants() -> None:
    measured = Calibration(
        "nccl", "n0", "2026-11-21", {"node": Link(10.0, 30.0), "NV18": Link(200.0, 1.0)}
    )
    pricer = Pricer(FABRIC, measured)
    inside = pricer.price("all_reduce", 64 * GIB, whole(0), "ring")
    assert inside.busbw_GBps == pytest.approx(200, rel=0.01)
    outside = pricer.price("all_reduce", 64 * GIB, whole(0, 1), "ring")
    assert outside.limit == "node"
    assert outside.busbw_GBps == pytest.approx(80, rel=0.01)
    assert pricer.price("all_reduce", 8, whole(0, 1)).seconds > seconds(whole(0, 1), 8)


def test_broken_links_have_a_price_that_is_a_number() -> None:
    broken = Pricer(Fabric.build(site(domains=(DomainFacts("leaf", "s0/l0", health=0.0),))))
    price = broken.price("all_reduce", GIB, whole(0, 2))
    assert 10 * seconds(whole(0, 2)) < price.seconds < 1e6
