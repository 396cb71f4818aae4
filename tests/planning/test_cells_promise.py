"""The promise of cells over random histories: safety, and no later than in a private cluster.

The loop below is no scheduler of ours: it is the least that a core must do with `planning.cells.home`.
"""

from dataclasses import dataclass, field, replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gantree.model.jobs import Job
from gantree.placement.choice.search import find
from gantree.planning.cells.home import (
    CellDomains,
    CellView,
    HomePlan,
    at_home_in_place,
    home,
    releasable,
    view_of,
)
from gantree.policy.rules import LOOSE, QueueRule
from gantree.testing.builders import cluster, job
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples

LEAVES, NODES, GPUS = 2, 2, 4
QUEUES = ("a", "b", "c")


@dataclass
class Run:
    """One job of the workload and what became of it."""

    name: str
    queue: str
    members: int
    gpus: int
    submit_s: int
    duration_s: int
    started_s: int | None = None
    ended_s: int | None = None

    @property
    def spec(self) -> Job:
        return job(self.name, self.members, self.gpus)


@dataclass
class Site:
    """A shared cluster with cells: what the ledger would know."""

    queues: tuple[QueueRule, ...]
    occupancy: Occupancy = field(
        default_factory=lambda: Occupancy(
            Fabric.build(cluster(leaves=LEAVES, nodes=NODES, gpus=GPUS))
        )
    )
    bound: dict[tuple[str, str, int], str] = field(default_factory=dict)
    homes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cell_domains = CellDomains.of(self.queues, self.occupancy.fabric)

    def view(self) -> CellView:
        occupancy = self.occupancy
        harm = {o: float(len(o)) for o in occupancy.owners if o not in self.homes}
        return view_of(occupancy, self.cell_domains, self.bound, self.homes, harm)

    def go_home(self, run: str, queue: str, plan: HomePlan) -> None:
        for owner in plan.evict:
            assert owner not in self.homes, "a home job was evicted"
            self.occupancy.give_back(owner)
        self.occupancy.take(run, plan.placement.members)
        self.bind(run, queue, plan.bind)

    def bind(self, run: str, queue: str, cells: tuple[tuple[str, int, str], ...]) -> None:
        for tier, number, domain in cells:
            assert (queue, tier, number) not in self.bound
            self.bound[queue, tier, number] = domain
        self.homes[run] = queue

    def end(self, run: str) -> None:
        self.occupancy.give_back(run)
        self.homes.pop(run, None)
        for cell in releasable(self.view()):
            del self.bound[cell]

    def check(self) -> None:
        """No cell is lost, bound cells do not overlap, home jobs are inside their queue's cells."""
        self.occupancy.check()
        view = self.view()
        assert view.lost == () and view.vanished == ()
        taken = sum(int(view.gpus_of([one]).sum()) for one in view.bound)
        assert taken == int(view.gpus_of(view.bound).sum())
        for owner, queue in self.homes.items():
            assert view.gpus_of(view.bound_of(queue))[list(view.gpus_of_owner[owner])].all()


def private_nodes(rule: QueueRule, site: Site) -> list[int]:
    """Free GPUs of the nodes of a queue's private cluster, a loose GPU as a node of its own, less what is at home."""
    view = site.view()
    nodes: list[int] = []
    for one in view.bound_of(rule.path):
        inside = view.gpus_of([one]) & ~view.fixed_gpu
        of_node = [int(inside[n * GPUS : (n + 1) * GPUS].sum()) for n in range(LEAVES * NODES)]
        nodes += of_node
    for cell in view.unbound_of(rule.path):
        nodes += {"leaf": [GPUS] * NODES, "node": [GPUS], LOOSE: [1]}[cell.tier]
    return nodes


@st.composite
def owners_of_cells(draw: st.DrawFn) -> tuple[QueueRule, ...]:
    """Queues whose cells all fit: leaves, nodes and GPUs are dealt out of what is left."""
    nodes, rules = LEAVES * NODES, []
    leaves_left, loose = LEAVES, 0
    for path in QUEUES:
        leaves = draw(st.integers(0, min(1, leaves_left)))
        nodes -= leaves * NODES
        leaves_left -= leaves
        whole = draw(st.integers(0, min(2, nodes)))
        nodes -= whole
        leaves_left = min(leaves_left, nodes // NODES)
        single = draw(st.integers(0, min(3, nodes * GPUS)))
        nodes -= -(-single // GPUS)
        leaves_left = min(leaves_left, nodes // NODES)
        loose += single
        rules.append(QueueRule(path, cells=(("leaf", leaves), ("node", whole), (LOOSE, single))))
    return tuple(rules)


actions = st.lists(
    st.tuples(
        st.sampled_from(("home", "home", "guest", "end", "stay")),
        st.sampled_from(QUEUES),
        st.integers(1, 3),
        st.sampled_from((1, 2, 4)),
        st.integers(0, 20),
    ),
    max_size=14,
)


@given(owners_of_cells(), actions)
@settings(max_examples=examples(50), deadline=None)
def test_no_history_breaks_a_promise_and_what_fits_the_private_cluster_always_goes_home(
    rules: tuple[QueueRule, ...], history: list[tuple[str, str, int, int, int]]
) -> None:
    site = Site(rules)
    for number, (what, queue, members, gpus, pick) in enumerate(history):
        name, spec = f"j{number}", job(f"j{number}", members, gpus)
        names = list(site.occupancy.owners)
        if what == "home":
            nodes = private_nodes(next(one for one in rules if one.path == queue), site)
            plan = home(site.view(), queue, spec)
            assert plan or sum(free // gpus for free in nodes) < members, "refused at home"
            if plan:
                site.go_home(name, queue, plan)
        elif what == "guest":
            place = find(site.occupancy, spec)
            if place is not None:
                site.occupancy.take(name, place.members)
        elif names and what == "end":
            site.end(names[pick % len(names)])
        elif names:
            stays = at_home_in_place(site.view(), queue, names[pick % len(names)])
            if stays is not None:
                site.bind(names[pick % len(names)], queue, stays)
        site.check()


def walk(site: Site, runs: list[Run], now_s: int) -> None:
    """One cycle: every queue sends home what it can until nothing changes, then guests go where there is room."""
    while any(_send_home(site, runs, queue, now_s) for queue in QUEUES):
        pass
    for run in runs:
        if run.name not in site.occupancy.owners:
            place = find(site.occupancy, run.spec)
            if place is not None:
                site.occupancy.take(run.name, place.members)
                run.started_s = now_s


def _send_home(site: Site, runs: list[Run], queue: str, now_s: int) -> bool:
    """Send the first job home that may go, in order of arrival; a guest stays where that can be home, or moves."""
    for run in runs:
        if run.queue != queue or run.name in site.homes:
            continue
        stays = at_home_in_place(site.view(), queue, run.name)
        if stays is not None:
            site.bind(run.name, queue, stays)
            return True
        plan = home(site.view().without(run.name), queue, run.spec)
        if plan is not None:
            _begin_at_home(site, runs, run, plan, now_s)
        return plan is not None
    return False


def _begin_at_home(site: Site, runs: list[Run], run: Run, plan: HomePlan, now_s: int) -> None:
    """Start a job at home, from its beginning where it ran as a guest; those that leave for it wait again."""
    site.occupancy.give_back(run.name)
    site.go_home(run.name, run.queue, plan)
    run.started_s = now_s
    for other in runs:
        if other.name in plan.evict:
            other.started_s = None


def shared(rules: tuple[QueueRule, ...], runs: list[Run]) -> None:
    """Play a workload on the shared cluster; an evicted guest loses all that it did."""
    site, now_s, left = Site(rules), 0, list(runs)
    while left:
        for run in [r for r in left if _end_s(r) == now_s]:
            run.ended_s = now_s
            site.end(run.name)
            left.remove(run)
        walk(site, [run for run in left if run.submit_s <= now_s], now_s)
        site.check()
        now_s += 1
        if now_s > 400:
            return


def _end_s(run: Run) -> int:
    return -1 if run.started_s is None else run.started_s + run.duration_s


def private(slots: int, runs: list[Run]) -> dict[str, int]:
    """Starts of jobs, one after the other, on so many slots for members; jobs too large for them are left out."""
    starts: dict[str, int] = {}
    ends: list[tuple[int, int]] = []
    now_s = 0
    for run in runs:
        if run.members > slots:
            break
        now_s = max(now_s, run.submit_s)
        while sum(members for end, members in ends if end > now_s) + run.members > slots:
            now_s = min(end for end, _ in ends if end > now_s)
        starts[run.name] = now_s
        ends.append((now_s + run.duration_s, run.members))
    return starts


@st.composite
def workloads(draw: st.DrawFn) -> list[Run]:
    """Jobs in order of arrival; those of one queue have members of one size."""
    size = {queue: draw(st.sampled_from((1, 2, 4)), label=queue) for queue in QUEUES}
    fields = st.tuples(
        st.sampled_from(QUEUES), st.integers(1, 3), st.integers(0, 6), st.integers(1, 8)
    )
    rows = sorted(draw(st.lists(fields, min_size=1, max_size=9)), key=lambda row: row[2])
    return [
        Run(f"j{n}", queue, members, size[queue], submit_s, duration_s)
        for n, (queue, members, submit_s, duration_s) in enumerate(rows)
    ]


def owning(**cells: tuple[tuple[str, int], ...]) -> tuple[QueueRule, ...]:
    return tuple(QueueRule(path, cells=cells.get(path, ())) for path in QUEUES)


def gangs(*rows: tuple[str, int, int]) -> list[Run]:
    """Gangs of three members with one GPU each: (queue, submit_s, duration_s)."""
    return [Run(f"j{n}", queue, 3, 1, at_s, for_s) for n, (queue, at_s, for_s) in enumerate(rows)]


@example(  # j1, a guest on three GPUs of a node: it is at home there, if the loose cell keeps off
    owning(a=(("node", 1), (LOOSE, 1)), b=(("leaf", 1),)),
    gangs(("a", 0, 1), ("a", 0, 3), ("a", 0, 2), ("b", 1, 2), ("b", 2, 1)),
)
@example(  # j3, a guest in a bound cell of queue a: it moves home when it may, not when it must
    owning(a=(("node", 2),), b=(("leaf", 1),)),
    gangs(("a", 0, 3), ("b", 0, 1), ("b", 0, 1), ("b", 0, 3), ("a", 2, 1)),
)
@given(owners_of_cells(), workloads())
@settings(max_examples=examples(40), deadline=None)
def test_every_job_starts_no_later_than_in_a_private_cluster_of_its_queues_cells(
    rules: tuple[QueueRule, ...], jobs: list[Run]
) -> None:
    empty, runs = Site(rules), [replace(run) for run in jobs]
    shared(rules, runs)
    for rule in rules:
        mine = [run for run in runs if run.queue == rule.path]
        if mine:
            slots = sum(free // mine[0].gpus for free in private_nodes(rule, empty))
            for name, start_s in private(slots, mine).items():
                run = next(run for run in mine if run.name == name)
                assert run.started_s is not None and run.started_s <= start_s, (name, start_s)
                assert run.ended_s is not None and run.ended_s <= start_s + run.duration_s
