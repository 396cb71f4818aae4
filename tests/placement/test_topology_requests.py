"""What a gang may ask of the topology: spread, apart, preferred and nested slices, for several roles at once.

The search is held against its plain twin, which tries every way to put the members on the nodes.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import Allocation, Cluster, Link, Node
from gantree.model.errors import BadInput, Unsupported
from gantree.model.jobs import Apart, Job, Role, Shape, Slices, Spread, TopologySpec
from gantree.model.placements import MemberPlacement, Placement
from gantree.model.verdicts import Refused
from gantree.placement.choice.search import fits, place
from gantree.placement.request.anti_affinity import excluded_nodes, job_of, without_excluded_domains
from gantree.placement.request.preferred_topology import MOST_COMBINED, requests_by_strictness
from gantree.placement.request.relaxations import relaxed
from gantree.placement.request.topology_request import topology_request_of
from gantree.testing import builders
from gantree.testing.pictures import drawn, picture_of
from gantree.testing.placement_checker import problems_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples

# ----- the plain twin

TIERS = ("row", "rack", "node")
OTHERS = ("chat-0", "chat-1", "train")
Counts = tuple[tuple[int, ...], ...]
"""counts[node][role]."""


@dataclass(frozen=True)
class Question:
    """A small cluster, in part held by others, and a gang of one role or two."""

    occupancy: Occupancy
    job: Job


def asked(seed: int) -> Question:
    """A question whose answer is often yes, and often only by going apart."""
    rng = Random(seed)
    rows = rng.randint(1, 2)
    nodes = tuple(
        Node(f"n{number}", "m", (f"row{rng.randrange(rows)}", f"rack{rng.randrange(2)}"))
        for number in range(rng.randint(2, 5))
    )
    held = tuple(
        Allocation(rng.choice(OTHERS), node.name, tuple(range(taken)))
        for node in nodes
        if (taken := rng.choice([0, 0, 1, 2, 3]))
    )
    site = Cluster("c", TIERS, {"m": builders.machine(4)}, nodes, allocations=held)
    return Question(Occupancy(Fabric.build(site)), gang(rng))


def gang(rng: Random) -> Job:
    """One role or two, of up to four members, and requests of every kind."""
    roles = tuple(
        Role(
            name,
            rng.choice([1, 2, 2, 3, 4]),
            Shape(gpus=rng.choice([0, 1, 1, 2])),
            topology=request(rng, 0.3),
        )
        for name in ("a", "b")[: rng.randint(1, 2)]
    )
    return Job("j", roles, topology=request(rng, 0.6))


def request(rng: Random, often: float) -> TopologySpec:
    """A topology that asks for each thing with a share of often."""
    slices = [
        Slices(rng.choice([1, 2, 2, 4]), rng.choice(TIERS), preferred=rng.random() < 0.5)
        for _ in range(rng.randint(1, 3))
    ]
    at_most = rng.choice([None, 1, 1, 2])
    return TopologySpec(
        required=rng.choice(TIERS) if rng.random() < often / 3 else None,
        preferred=rng.choice(TIERS) if rng.random() < often / 3 else None,
        slices=tuple(slices) if rng.random() < often else (),
        spread=Spread(rng.choice(TIERS), at_most) if rng.random() < often else None,
        apart=(Apart(rng.choice(TIERS), ("chat-*",)),) if rng.random() < often / 2 else (),
    )


def every_way(occupancy: Occupancy, job: Job) -> Iterator[Counts]:
    """Every way to put all members on nodes with room for them that keeps what must hold."""
    nodes = range(len(occupancy.fabric.nodes))
    out = {node for node in nodes if near_others(occupancy, job, node)}

    def rest(node: int, left: tuple[int, ...]) -> Iterator[Counts]:
        if node == len(nodes):
            if not any(left):
                yield ()
            return
        most = [0 if node in out else members for members in left]
        for here in product(*(range(count + 1) for count in most)):
            gpus = sum(role.shape.gpus * n for role, n in zip(job.roles, here, strict=True))
            if gpus <= occupancy.free_gpus_of_node[node]:
                after = tuple(a - b for a, b in zip(left, here, strict=True))
                for others in rest(node + 1, after):
                    yield (here, *others)

    for counts in rest(0, tuple(role.members for role in job.roles)):
        if all(keeps(occupancy, job, counts)):
            yield counts


def near_others(occupancy: Occupancy, job: Job, node: int) -> bool:
    requests = [
        *job.topology.apart,
        *(apart for role in job.roles for apart in role.topology.apart),
    ]
    return any(
        domain(occupancy, occupancy.fabric.index_of_node[member.node], apart.tier)
        == domain(occupancy, node, apart.tier)
        for apart in requests
        for owner, members in occupancy.owners.items()
        if owner.startswith("site:chat-")
        for member in members
    )


def domain(occupancy: Occupancy, node: int, tier: str) -> tuple[str, ...]:
    there = occupancy.fabric.nodes[node]
    return (*there.at, there.name)[: TIERS.index(tier) + 1]


def in_domains(
    occupancy: Occupancy, counts: Counts, role: int, tier: str
) -> Counter[tuple[str, ...]]:
    """Members of a role in each domain that has some."""
    held = Counter[tuple[str, ...]]()
    for node, here in enumerate(counts):
        if here[role]:
            held[domain(occupancy, node, tier)] += here[role]
    return held


def keeps(occupancy: Occupancy, job: Job, counts: Counts) -> Iterator[bool]:
    """Whether each request that must hold does."""
    if job.topology.required:
        used = [node for node, here in enumerate(counts) if any(here)]
        yield len({domain(occupancy, node, job.topology.required) for node in used}) <= 1
    for number, role in enumerate(job.roles):
        if role.topology.required:
            yield len(in_domains(occupancy, counts, number, role.topology.required)) <= 1
        for topology in (job.topology, role.topology):
            for run in topology.slices:
                if not run.preferred:
                    yield whole(in_domains(occupancy, counts, number, run.required), run.members)
            if topology.spread and topology.spread.at_most:
                held = in_domains(occupancy, counts, number, topology.spread.tier)
                yield max(held.values(), default=0) <= topology.spread.at_most


def whole(held: Counter[tuple[str, ...]], size: int) -> bool:
    return all(count % size == 0 for count in held.values())


def counts_of(occupancy: Occupancy, job: Job, placement: Placement) -> Counts:
    number = {role.name: place for place, role in enumerate(job.roles)}
    counts = [[0] * len(job.roles) for _ in occupancy.fabric.nodes]
    for member in placement.members:
        counts[occupancy.fabric.index_of_node[member.node]][number[member.role]] += 1
    return tuple(map(tuple, counts))


def domains_used(occupancy: Occupancy, counts: Counts) -> tuple[int, ...]:
    used = [node for node, here in enumerate(counts) if any(here)]
    return tuple(len({domain(occupancy, node, tier) for node in used}) for tier in TIERS)


def without_preferences(job: Job) -> Job:
    """The job with what must hold alone, spread no more than it must be."""
    return replace(
        job,
        topology=_must(job.topology),
        roles=tuple(replace(role, topology=_must(role.topology)) for role in job.roles),
    )


def _must(topology: TopologySpec) -> TopologySpec:
    even = topology.spread is not None and topology.spread.at_most is None
    return replace(
        topology,
        preferred=None,
        slices=tuple(run for run in topology.slices if not run.preferred),
        spread=None if even else topology.spread,
    )


@settings(max_examples=examples(75), deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_gang_is_placed_wherever_some_way_keeps_its_wish_and_in_as_few_domains_as_any(
    seed: int,
) -> None:
    question = asked(seed)
    occupancy, job = question.occupancy, without_preferences(question.job)
    ways = list(every_way(occupancy, job))
    answer = place(occupancy, job)
    assert fits(occupancy, job) == isinstance(answer, Placement) == bool(ways)
    if isinstance(answer, Placement):
        assert problems_of(occupancy, job, answer) == []
        used = domains_used(occupancy, counts_of(occupancy, job, answer))
        assert used == min(domains_used(occupancy, counts) for counts in ways)
        occupancy.take("j", answer.members)
    occupancy.check()


@settings(max_examples=examples(50), deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_what_is_only_preferred_never_keeps_a_gang_from_its_place(seed: int) -> None:
    question = asked(seed)
    occupancy, job = question.occupancy, question.job
    answer = place(occupancy, job)
    assert fits(occupancy, job) == isinstance(answer, Placement)
    assert isinstance(answer, Placement) == any(every_way(occupancy, without_preferences(job)))
    if isinstance(answer, Placement):
        assert problems_of(occupancy, job, answer) == []
        occupancy.take("j", answer.members)
    occupancy.check()


@settings(max_examples=examples(50), deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(TIERS))
def test_members_spread_evenly_are_as_few_in_one_domain_as_any_way_has_them(
    seed: int, tier: str
) -> None:
    question = asked(seed)
    occupancy, job = question.occupancy, without_preferences(question.job)
    job = replace(job, roles=job.roles[:1], topology=replace(job.topology, spread=Spread(tier)))
    job = replace(job, roles=(replace(job.roles[0], topology=TopologySpec()),))
    ways = list(every_way(occupancy, job))
    answer = place(occupancy, job)
    assert isinstance(answer, Placement) == bool(ways)
    if isinstance(answer, Placement):
        most = [max(in_domains(occupancy, counts, 0, tier).values()) for counts in ways]
        held = in_domains(occupancy, counts_of(occupancy, job, answer), 0, tier)
        assert max(held.values()) == min(most)


def preferred_layers(job: Job) -> list[Slices]:
    """Preferred slices of the job, those that are kept longest first."""
    return sorted(
        (run for run in job.topology.slices if run.preferred), key=lambda run: run.members
    )


def kept(occupancy: Occupancy, job: Job, counts: Counts, run: Slices) -> bool:
    return all(
        whole(in_domains(occupancy, counts, number, run.required), run.members)
        for number in range(len(job.roles))
    )


@settings(max_examples=examples(50), deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_of_the_preferred_slices_the_inner_ones_are_kept_first_and_as_many_as_can_be(
    seed: int,
) -> None:
    question = asked(seed)
    job = without_preferences(question.job)
    slices = (*job.topology.slices, *(run for run in question.job.topology.slices if run.preferred))
    job = replace(job, topology=replace(job.topology, slices=slices))
    occupancy, layers = question.occupancy, preferred_layers(job)
    ways = list(every_way(occupancy, job))
    answer = place(occupancy, job)
    assert isinstance(answer, Placement) == bool(ways)
    if isinstance(answer, Placement):
        best = max(tuple(kept(occupancy, job, way, run) for run in layers) for way in ways)
        counts = counts_of(occupancy, job, answer)
        assert tuple(kept(occupancy, job, counts, run) for run in layers) == best


@settings(max_examples=examples(50), deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_everything_that_a_refusal_offers_fits_when_applied(seed: int) -> None:
    question = asked(seed)
    occupancy, job = question.occupancy, question.job
    answer = place(occupancy, job)
    if isinstance(answer, Refused):
        assert answer.never == (not fits(occupancy.emptied(), job))
        for relaxation in answer.would_fit_if:
            looser = relaxed(job, relaxation.patch)
            found = place(occupancy, looser)
            assert isinstance(found, Placement), relaxation
            assert problems_of(occupancy, looser, found) == []


# ----- pictures

W = Shape(gpus=1)


def workers(members: int, gpus: int = 1, **topology: object) -> Job:
    request = TopologySpec(**topology)  # type: ignore[arg-type]  # fields by name, as the table has them
    return Job("x", (Role("w", members, Shape(gpus=gpus)),), topology=request)


TABLE = {
    "at most one replica in a leaf": (
        workers(2, spread=Spread("leaf", 1)),
        """s0/l0: n0 .... n1 ....
           s0/l1: n2 .... n3 ....""",
        """s0/l0: n0 x... n1 ....
           s0/l1: n2 x... n3 ....""",
    ),
    "at most two of a gang on a node, in as few leaves as can be": (
        workers(4, spread=Spread("node", 2)),
        """s0/l0: n0 .... n1 ....
           s0/l1: n2 .... n3 ....""",
        """s0/l0: n0 xx.. n1 xx..
           s0/l1: n2 .... n3 ....""",
    ),
    "as evenly as there is room": (
        workers(5, spread=Spread("leaf")),
        """s0/l0: n0 ....
           s0/l1: n1 ....
           s0/l2: n2 aaa.""",
        """s0/l0: n0 xx..
           s0/l1: n1 xx..
           s0/l2: n2 aaax""",
    ),
    "not in one leaf with chat": (
        workers(1, apart=(Apart("leaf", ("c*",)),)),
        """s0/l0: n0 c... n1 ....
           s0/l1: n2 a... n3 ....""",
        """s0/l0: n0 c... n1 ....
           s0/l1: n2 ax.. n3 ....""",
    ),
    "not on one node with chat, nor in one leaf with train": (
        workers(1, apart=(Apart("node", ("c",)), Apart("leaf", ("t", "u")))),
        """s0/l0: n0 caa. n1 ....
           s0/l1: n2 taaa n3 aaa.""",
        """s0/l0: n0 caa. n1 x...
           s0/l1: n2 taaa n3 aaa.""",
    ),
    "preferred pairs share a node where they can": (
        workers(4, slices=(Slices(2, "node", preferred=True),)),
        """s0/l0: n0 aaa. n1 aa.. n2 aa..""",
        """s0/l0: n0 aaa. n1 aaxx n2 aaxx""",
    ),
    "where pairs cannot share nodes they are let go": (
        workers(4, slices=(Slices(2, "node", preferred=True),)),
        """s0/l0: n0 aaa. n1 aaa. n2 aa..""",
        """s0/l0: n0 aaax n1 aaax n2 aaxx""",
    ),
    "of two layers the outer one goes first": (
        workers(8, slices=(Slices(8, "leaf", preferred=True), Slices(2, "node", preferred=True))),
        """s0/l0: n0 aaa. n1 .... n2 aaa. n3 aa..
           s0/l1: n4 .... n5 aaaa""",
        """s0/l0: n0 aaa. n1 xxxx n2 aaa. n3 aa..
           s0/l1: n4 xxxx n5 aaaa""",
    ),
    "the inner one goes where only the outer one can be had": (
        workers(4, slices=(Slices(4, "leaf", preferred=True), Slices(2, "node", preferred=True))),
        """s0/l0: n0 aaa. n1 aaa.
           s0/l1: n2 aaa. n3 aaa. n4 aaa. n5 aaa.""",
        """s0/l0: n0 aaa. n1 aaa.
           s0/l1: n2 aaax n3 aaax n4 aaax n5 aaax""",
    ),
    "tensor pairs on a node, pipelines of four in a leaf, the job in a spine": (
        workers(8, required="spine", slices=(Slices(4, "leaf"), Slices(2, "node"))),
        """s0/l0: n0 aa.. n1 aa..
           s1/l1: n2 aa.. n3 aaa. n4 aa..
           s1/l2: n5 aa.. n6 aa..""",
        """s0/l0: n0 aa.. n1 aa..
           s1/l1: n2 aaxx n3 aaa. n4 aaxx
           s1/l2: n5 aaxx n6 aaxx""",
    ),
}  # fmt: skip


def rows(picture: str) -> list[str]:
    return [line.strip() for line in picture.strip().splitlines()]


@pytest.mark.parametrize("name", TABLE)
def test_gangs_with_wishes_go_where_the_table_says(name: str) -> None:
    wanted, before, after = TABLE[name]
    occupancy = drawn(before)
    answer = place(occupancy, wanted)
    assert isinstance(answer, Placement)
    assert problems_of(occupancy, wanted, answer) == []
    occupancy.take("x", answer.members)
    assert rows(picture_of(occupancy)) == rows(after)
    occupancy.check()


def test_a_training_job_with_all_kinds_of_roles_is_placed_together() -> None:
    nodes = tuple(Node(f"n{i}", "gpu" if i % 3 else "nic", ("s0", f"l{i // 3}")) for i in range(9))
    machines = {
        "gpu": replace(builders.machine(4, 2, "gpu", cpus=16.0)),
        "nic": replace(builders.machine(0, 4, "nic", cpus=64.0)),
    }
    site = Cluster("c", ("spine", "leaf", "node"), machines, nodes, {"leaf": Link(50, 6)})
    occupancy = Occupancy(Fabric.build(site))
    wanted = Job(
        "x",
        (
            Role("worker", 4, Shape(gpus=2, cpus=4, nics=1)),
            Role(
                "server", 2, Shape(cpus=16, nics=2), topology=TopologySpec(spread=Spread("node", 1))
            ),
            Role("evaluator", 1, Shape(gpus=1, cpus=2)),
            Role("launcher", 1, Shape(cpus=1)),
        ),
        topology=TopologySpec(required="spine", spread=Spread("node", 2)),
    )
    answer = place(occupancy, wanted)
    assert isinstance(answer, Placement)
    assert problems_of(occupancy, wanted, answer) == []
    assert Counter(member.role for member in answer.members) == {
        "worker": 4, "server": 2, "evaluator": 1, "launcher": 1,
    }  # fmt: skip
    servers = [member.node for member in answer.members if member.role == "server"]
    assert len({*servers}) == 2
    occupancy.take("x", answer.members)
    occupancy.check()


def test_parameter_servers_go_to_the_nodes_with_most_nics() -> None:
    machines = {
        "worker": builders.machine(4, 1, "worker"),
        "thin": builders.machine(0, 1, "thin"),
        "rich": builders.machine(0, 4, "rich"),
    }
    nodes = tuple(Node(f"{name}{i}", name, ("l0",)) for i in range(2) for name in machines)
    occupancy = Occupancy(Fabric.build(Cluster("c", ("leaf", "node"), machines, nodes)))
    server = Role("server", 2, Shape(nics=1), topology=TopologySpec(spread=Spread("node", 1)))
    wanted = Job("x", (Role("worker", 2, Shape(gpus=4, nics=1)), server))
    answer = place(occupancy, wanted)
    assert isinstance(answer, Placement)
    assert problems_of(occupancy, wanted, answer) == []
    servers = [member.node for member in answer.members if member.role == "server"]
    assert servers == ["rich0", "rich1"]


def test_a_tier_nvlink_of_the_site_binds_above_the_node_and_the_machines_own_inside() -> None:
    nodes = tuple(Node(f"n{i}", "m", (f"nv{i // 2}",)) for i in range(4))
    site = Cluster("c", ("nvlink", "node"), {"m": builders.machine(4)}, nodes)
    eight = Job("x", (Role("w", 8, W),), topology=TopologySpec(required="nvlink"))
    answer = place(Occupancy(Fabric.build(site)), eight)
    assert isinstance(answer, Placement)
    assert {member.node for member in answer.members} == {"n0", "n1"}
    assert isinstance(place(drawn("l0: n0 .... n1 ...."), eight), Refused)


# ----- apart


def test_owners_are_known_by_the_name_of_their_job() -> None:
    named = {
        "3:chat": "chat", "site:old": "old", "claim:chat": "chat", "chat": "chat", "a:b": "a:b",
        "site:3:x": "3:x",
    }  # fmt: skip
    assert {owner: job_of(owner) for owner in named} == named


def test_the_copy_that_is_kept_apart_follows_the_occupancy() -> None:
    occupancy = drawn("l0: n0 .... n1 ....\nl1: n2 ....")
    away = (Apart("leaf", ("chat-*",)),)
    assert without_excluded_domains(occupancy, ()) is occupancy
    before = without_excluded_domains(occupancy, away)
    assert before.usable_node.all()
    assert without_excluded_domains(occupancy, away) is before
    occupancy.take("7:chat-1", (MemberPlacement("w", 0, "n1", (0,)),))
    assert without_excluded_domains(occupancy, away).usable_node.tolist() == [False, False, True]
    assert excluded_nodes(occupancy, away).tolist() == [True, True, False]
    occupancy.check()
    occupancy.give_back("7:chat-1")
    assert without_excluded_domains(occupancy, away).usable_node.all()
    occupancy.check()


# ----- reading

FABRIC = drawn("s0/l0: n0 .... n1 ....").fabric


def test_the_strictest_wish_comes_first_and_what_must_hold_last() -> None:
    layers = (Slices(8, "spine", preferred=True), Slices(2, "node", preferred=True))
    job = workers(8, slices=(*layers, Slices(4, "leaf")))
    multiples = [
        request.roles[0].multiple_in_domain for request in requests_by_strictness(FABRIC, job)
    ]
    assert multiples == [(8, 8, 4, 2), (4, 4, 4, 2), (8, 8, 4, 1), (4, 4, 4, 1)]


def test_of_very_many_layers_the_outermost_go_one_after_the_other() -> None:
    count = MOST_COMBINED + 3
    layers = tuple(Slices(2**size, "leaf", preferred=True) for size in range(1, count + 1))
    job = workers(2**count, slices=layers)
    multiples = [
        request.roles[0].multiple_in_domain[2] for request in requests_by_strictness(FABRIC, job)
    ]
    assert multiples[:4] == [2**size for size in (count, count - 1, count - 2, count - 3)]
    assert multiples[-1] == 1
    assert len(multiples) <= 3 + 2**MOST_COMBINED


def test_preferred_slices_that_do_not_divide_a_role_are_passed_over() -> None:
    job = workers(6, slices=(Slices(4, "leaf", preferred=True), Slices(3, "node", preferred=True)))
    assert [
        request.roles[0].multiple_in_domain[2:] for request in requests_by_strictness(FABRIC, job)
    ] == [
        (3, 3),
        (1, 1),
    ]


def test_a_role_that_prefers_a_tier_is_tried_whole_in_it() -> None:
    near = Role("a", 2, W, topology=TopologySpec(preferred="node"))
    far = Role("b", 3, W)
    first, last = requests_by_strictness(FABRIC, Job("x", (near, far)))
    assert [role.whole_at for role in first.roles] == [3, 0]
    assert [role.whole_at for role in last.roles] == [0, 0]


def test_a_spread_over_gpus_is_one_member_a_gpu() -> None:
    service = replace(workers(2, spread=Spread("gpu", 1)), communicates=False)
    assert topology_request_of(
        FABRIC, replace(service, roles=(Role("w", 2, Shape(mig="1g.10gb")),))
    ).one_member_per_gpu
    evenly = replace(service, topology=TopologySpec(spread=Spread("gpu")))
    for members, shape, used in ((4, Shape(gpu_share=0.25), 4), (9, Shape(gpu_share=0.5), 5)):
        asked = replace(evenly, roles=(Role("w", members, shape),))
        found = place(Occupancy(FABRIC), asked)
        assert isinstance(found, Placement)
        assert not any(m.share.alone for m in found.members if m.share), "nobody waits for another"
        assert len({(m.node, m.parts) for m in found.members}) == used
    alone = replace(service, topology=TopologySpec(), roles=(Role("w", 2, Shape(mig="1g.10gb")),))
    assert not topology_request_of(FABRIC, alone).one_member_per_gpu


CONTRADICTIONS = {
    "slices that do not divide": (workers(3, slices=(Slices(2, "leaf"),)), "do not divide into slices of 2"),
    "together and spread": (workers(4, required="leaf", spread=Spread("leaf", 2)), "where a spread allows 2"),
    "larger slices than the spread allows": (
        workers(4, slices=(Slices(4, "leaf"),), spread=Spread("leaf", 2)), "put 4 members into one domain",
    ),
    "two ranks on a part": (
        Job("x", (Role("w", 1, Shape(mig="1g.10gb"), processes=2),)), "NCCL refuses two ranks on one GPU",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_wish_that_contradicts_itself_is_refused_for_good_with_the_reason(name: str) -> None:
    job, reason = CONTRADICTIONS[name]
    occupancy = drawn("s0/l0: n0 .... n1 ....")
    answer = place(occupancy, job)
    assert isinstance(answer, Refused)
    assert answer.never
    assert reason in answer.sentence
    for relaxation in answer.would_fit_if:
        assert isinstance(place(occupancy, relaxed(job, relaxation.patch)), Placement)


NO_WISHES = {
    "a tier to spread over": (workers(2, spread=Spread("rack", 1)), BadInput, "spread.tier: found `rack`"),
    "a tier to be apart in": (workers(2, apart=(Apart("lef", ("a",)),)), BadInput, "Did you mean `leaf`"),
    "no member in a domain": (workers(2, spread=Spread("leaf", 0)), BadInput, "at_most must be at least 1"),
    "empty slices": (workers(2, slices=(Slices(0, "leaf"),)), BadInput, "members must be at least 1"),
    "slices of nobody": (workers(2, slices=(Slices(1, "leaf", "v"),)), BadInput, "no role 'v'"),
    "no members": (workers(0), BadInput, "members must be at least 1"),
    "a GPU in two ways": (
        Job("x", (Role("w", 1, Shape(gpus=1, mig="1g.10gb")),)), BadInput, "each.gpus and each.mig",
    ),
    "more than a GPU as a share": (
        Job("x", (Role("w", 1, Shape(gpu_share=1.5)),)), BadInput, "above 0 and at most 1",
    ),
    "slices inside a node that do not nest": (
        workers(6, slices=(Slices(3, "socket"), Slices(2, "pcie"))), Unsupported, "do not nest",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NO_WISHES)
def test_what_is_no_wish_is_told_with_job_and_field(name: str) -> None:
    job, kind, told = NO_WISHES[name]
    with pytest.raises(kind, match=told) as error:
        fits(drawn("s0/l0: n0 .... n1 ...."), job)
    assert "job x" in str(error.value)
