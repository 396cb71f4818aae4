"""The heat map before it is drawn: each GPU once, nothing on anything else, deltas that add up, no secrets."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.api.access.access import EVERYTHING, Caller
from gantree.api.gpu_metrics.gpu_counters import GpuCounters
from gantree.control.engine.loop import Loop
from gantree.core.ledger.ledger import Ledger
from gantree.model.cluster import Cluster, GpuFacts, Node
from gantree.model.events import CordonRequested, NodeLost
from gantree.model.jobs import Job, Role, Shape
from gantree.policy.rules import Policy
from gantree.telemetry.gpu_use import GpuUse
from gantree.testing.builders import cluster, job, machine
from gantree.testing.stage import Stage
from gantree.topology.fabric.fabric import Fabric
from gantree.web.pages.heat_map import feed as heat_feed
from gantree.web.pages.heat_map.layout import HeatMap, heat_map, heat_map_json
from gantree.web.pages.heat_map.messages import (
    changed_use,
    compact,
    delta_json,
    use_rows,
    whole_json,
)
from gantree.web.pages.heat_map.scene import FREE, TAKEN, WHOLE, HeatScene, heat_scene
from support.examples import examples

Json = dict[str, Any]


def everybody(user: str, queue: str) -> bool:
    return True


def only_ann(user: str, queue: str) -> bool:
    return user == "ann"


def scene(ledger: Ledger, now: float = 0.0) -> HeatScene:
    found = heat_scene(ledger, now)
    assert found is not None
    return found


def of(name: str, user: str, members: int, gpus: int) -> Job:
    return replace(job(name, members, gpus), user=user)


# ----- where everything stands


@st.composite
def fabrics(draw: st.DrawFn) -> Fabric:
    """Trees of uneven domains whose machines have different numbers of GPUs, some none."""
    sizes = draw(st.lists(st.integers(0, 17), min_size=1, max_size=3, unique=True))
    machines = {f"m{size}": machine(size, name=f"m{size}") for size in sizes}
    nodes = draw(
        st.lists(
            st.tuples(st.integers(0, 2), st.integers(0, 3), st.sampled_from(sizes)),
            min_size=1,
            max_size=40,
        )
    )
    made = tuple(
        Node(f"n{i}", f"m{size}", (f"s{spine}", f"l{leaf}"))
        for i, (spine, leaf, size) in enumerate(nodes)
    )
    return Fabric.build(Cluster("c", ("spine", "leaf", "node"), machines, made))


Rect = tuple[float, float, float, float]


def node_rects(drawn: HeatMap) -> list[Rect]:
    told = heat_map_json(drawn)
    sizes = {int(gpus): shape["size"] for gpus, shape in told["shapes"].items()}
    return [(node.x, node.y, *sizes[node.gpus]) for node in drawn.nodes]


def apart(a: Rect, b: Rect) -> bool:
    slack = 0.11  # lengths are told with one decimal
    right, below = a[0] + a[2] <= b[0] + slack, a[1] + a[3] <= b[1] + slack
    left, above = b[0] + b[2] <= a[0] + slack, b[1] + b[3] <= a[1] + slack
    return right or below or left or above


def within(inner: Rect, outer: Rect) -> bool:
    slack = 0.11
    return (
        inner[0] >= outer[0] - slack
        and inner[1] >= outer[1] - slack
        and inner[0] + inner[2] <= outer[0] + outer[2] + slack
        and inner[1] + inner[3] <= outer[1] + outer[3] + slack
    )


@given(fabrics())
@settings(max_examples=examples(40))
def test_no_two_nodes_lie_on_each_other_and_each_lies_in_its_domains(fabric: Fabric) -> None:
    drawn = heat_map(fabric)
    nodes = node_rects(drawn)
    assert all(apart(a, b) for i, a in enumerate(nodes) for b in nodes[i + 1 :])
    for domain in drawn.domains:
        box = (domain.x, domain.y, domain.width, domain.height)
        assert all(within(nodes[i], box) for i in range(domain.first, domain.first + domain.count))


@given(fabrics())
@settings(max_examples=examples(40))
def test_every_gpu_has_one_place_inside_its_node(fabric: Fabric) -> None:
    drawn = heat_map(fabric)
    shapes = heat_map_json(drawn)["shapes"]
    assert [node.gpus for node in drawn.nodes] == fabric.gpus_of_node.tolist()
    for gpus in {node.gpus for node in drawn.nodes}:
        places = drawn.places_of_gpus(gpus)
        side, box = drawn.scale.cell, (0.0, 0.0, *shapes[gpus]["size"])
        cells = [(x, y, side, side) for x, y in places]
        assert len(set(places)) == gpus
        assert all(within(cell, box) for cell in cells)
        assert all(apart(a, b) for i, a in enumerate(cells) for b in cells[i + 1 :])


@given(fabrics())
@settings(max_examples=examples(40))
def test_the_nodes_of_a_domain_follow_one_another_and_each_tier_has_every_node_once(
    fabric: Fabric,
) -> None:
    drawn = heat_map(fabric)
    for tier in fabric.tiers[:-1]:
        of_tier = [each for each in drawn.domains if each.tier == tier]
        covered = [i for each in of_tier for i in range(each.first, each.first + each.count)]
        assert covered == list(range(len(fabric.nodes)))


def test_a_node_that_moves_makes_another_map_and_a_label_does_not() -> None:
    site = cluster()
    first, *others = site.nodes
    moved = replace(site, nodes=(replace(first, at=("s0", "l9")), *others))
    labelled = replace(site, nodes=(replace(first, labels=(("pool", "a"),)), *others))
    maps = [heat_map(Fabric.build(each)).map_id for each in (site, labelled, moved)]
    assert maps[0] == maps[1] != maps[2]


# ----- who holds what


def test_a_gpu_shows_who_holds_it_and_a_node_why_it_is_not_used() -> None:
    stage = Stage(cluster(nodes=2))
    stage.submit(job("a", 1, 8), job("b", 1, 2))
    stage.tell(CordonRequested, node="n2", reason="fan")
    stage.tell(NodeLost, node="n3", reason="gone")
    shown = scene(stage.scheduler.ledger)
    holders = {number: each.job for number, each in shown.holders.items()}
    names = [
        [holders.get(cell) for cell in row.cells if isinstance(cell, int)] for row in shown.nodes
    ]
    assert names[0] == ["a"] * 8
    assert names[1] == ["b"] * 2 + [None] * 6
    assert [row.state for row in shown.nodes] == ["ready", "ready", "cordoned", "lost"]


def sliced(name: str, profile: str) -> Job:
    role = Role("worker", 1, Shape(mig=profile), run=("true",))
    return replace(job(name), roles=(role,))


def shared(name: str, compute: float) -> Job:
    shape = Shape(gpu_share=compute, gpu_memory_GiB=8.0)
    return replace(job(name), roles=(Role("worker", 1, shape, run=("true",)),))


def site_of_one(**how: Any) -> Cluster:
    site = cluster(leaves=1, nodes=1, gpus=1)
    return replace(site, nodes=(replace(site.nodes[0], **how),))


def parts(shown: HeatScene) -> list[tuple[str, int, int]]:
    (cell,) = shown.nodes[0].cells
    assert isinstance(cell, tuple)
    who = {FREE: "free"} | {number: each.job for number, each in shown.holders.items()}
    return [(who[number], start, size) for number, start, size in cell]


def test_slices_stand_where_their_memory_is_and_idle_ones_are_free() -> None:
    stage = Stage(site_of_one(mig_by="gpu"))
    stage.submit(sliced("a", "3g.40gb"), sliced("b", "1g.10gb"))
    found = parts(scene(stage.scheduler.ledger))
    assert sorted((who, size) for who, _, size in found) == [("a", 500), ("b", 125)]
    stage.started("a", "b")
    stage.ended("b")
    assert ("free", 125) in [(who, size) for who, _, size in parts(scene(stage.scheduler.ledger))]


def test_shares_stand_beside_each_other_and_leave_the_rest_free() -> None:
    stage = Stage(site_of_one(shares=("mps",)))
    stage.submit(shared("a", 0.5), shared("b", 0.25))
    assert parts(scene(stage.scheduler.ledger)) == [("a", 0, 500), ("b", 500, 250)]
    assert WHOLE == 1000


def test_the_table_tells_the_largest_free_block_of_each_tier() -> None:
    stage = Stage(cluster(spines=2, leaves=2, nodes=2))
    stage.submit(job("a", 3, 8), job("b", 1, 5))
    stage.tell(CordonRequested, node="n7")
    rows = {row.name: row for row in scene(stage.scheduler.ledger).domains}
    assert (rows["test"].gpus, rows["test"].usable, rows["test"].free) == (64, 56, 27)
    assert rows["test"].largest == (24, 16, 8)
    assert rows["s0/l1"].largest == (3,)
    assert rows["s1/l3"].largest == (8,)


# ----- what a browser is told


def shown_cells(told: Json) -> list[Any]:
    """The cells of a whole scene as a browser has them."""
    runs = told["cells"]
    cells: list[Any] = [
        number for number, count in zip(runs[::2], runs[1::2], strict=True) for _ in range(count)
    ]
    for gpu, *held in told["parts"]:
        cells[gpu] = held
    return cells


def after(told: Json, delta: Mapping[str, Any] | None, gpus: int) -> list[Any]:
    """The cells that a browser has after a delta."""
    cells = shown_cells(told)
    for node, (_, held) in (delta or {"nodes": {}})["nodes"].items():
        cells[int(node) * gpus : int(node) * gpus + gpus] = [
            [list(part) for part in cell] if isinstance(cell, tuple) else cell for cell in held
        ]
    return cells


@given(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=12), st.booleans())
@settings(max_examples=examples(25))
def test_a_scene_and_its_delta_make_the_next_scene(steps: list[str], sees_all: bool) -> None:
    may_read = everybody if sees_all else only_ann
    stage = Stage(cluster(nodes=2, gpus=4))
    before = scene(stage.scheduler.ledger)
    seen: dict[str, None] = {}
    for name in steps:
        if name in seen:
            stage.cancel(name)
            stage.ended(name, 143) if stage.state(name).leaving else None
        else:
            size = ord(name) - ord("a")
            stage.submit(of(name, "ann" if size % 2 else "bob", 1 + size % 3, 1 + size % 4))
            seen[name] = None
        now = scene(stage.scheduler.ledger, stage.now)
        delta = delta_json(before, now, may_read)
        whole = whole_json(now, may_read)
        assert after(whole_json(before, may_read), delta, 4) == shown_cells(whole)
        rows = {row[0]: row for row in whole_json(before, may_read)["holders"]}
        for number in (delta or {"gone": []})["gone"]:
            del rows[number]
        rows.update({row[0]: row for row in (delta or {"holders": []})["holders"]})
        assert rows == {row[0]: row for row in whole["holders"]}
        before = now


def test_of_jobs_that_a_caller_may_not_see_it_learns_that_gpus_are_taken_and_nothing_else() -> None:
    stage = Stage(cluster(), Policy())
    before = scene(stage.scheduler.ledger)
    stage.submit(of("secret-plan", "bob", 1, 8), of("mine", "ann", 1, 4))
    now = scene(stage.scheduler.ledger)
    whole, delta = whole_json(now, only_ann), delta_json(before, now, only_ann)
    assert delta is not None
    text = compact(whole) + compact(delta)
    assert "mine" in text
    assert "secret" not in text and "bob" not in text
    cells = shown_cells(whole)
    assert cells.count(TAKEN) == 8
    assert sum(cell not in (TAKEN, FREE) for cell in cells) == 4


def test_where_only_hidden_jobs_change_places_nothing_is_told() -> None:
    stage = Stage(cluster(leaves=1, nodes=1))
    stage.submit(of("one", "bob", 1, 8), of("two", "bob", 1, 8))
    stage.started("one")
    before = scene(stage.scheduler.ledger)
    stage.ended("one")
    assert stage.nodes("two") == ["n0"]
    assert delta_json(before, scene(stage.scheduler.ledger), only_ann) is None


def test_use_is_told_of_gpus_that_the_caller_may_know_and_then_what_changed() -> None:
    stage = Stage(cluster(leaves=1, nodes=2))
    stage.submit(of("bobs", "bob", 1, 4))
    shown = scene(stage.scheduler.ledger)
    told = {
        "n0": {0: GpuUse(0.5, 1.25, 80.0, 99.6, 40.0), 7: GpuUse(1.0)},
        "n1": {1: GpuUse(power_W=70.0)},
        "n9": {0: GpuUse(1.0)},
    }
    whole = use_rows(shown, told, everybody)
    assert whole[0][0] == [50, 1.2, 80.0, 100, 40]
    assert whole[0][7] == [100, None, None, None, None]
    assert whole[1] == [None, [None, None, None, 70, None], *[None] * 6]
    assert whole.keys() == {0, 1}
    anns = use_rows(shown, told, only_ann)
    assert anns[0][0] is None
    assert anns[0][7] == [100, None, None, None, None]
    assert changed_use({}, anns) == {"0": anns[0], "1": anns[1]}
    assert changed_use(whole, anns) == {"0": anns[0]}
    assert changed_use(whole, {1: whole[1]}) == {"0": None}
    assert changed_use(whole, dict(whole)) is None


@pytest.mark.parametrize("word", ["</script>", 'é"\\'])
def test_names_go_through_json_whatever_they_are(word: str) -> None:
    stage = Stage(cluster())
    stage.submit(replace(job("a"), user=word))
    told = json.loads(compact(whole_json(scene(stage.scheduler.ledger), everybody)))
    assert told["holders"][0][4] == word


class Watched:
    """A site that takes a job while it is looked at for the second time, right after what is told was found."""

    gpu_counters = GpuCounters()

    def __init__(self, loop: Loop) -> None:
        self.stage, self.loop, self.looks = Stage(cluster(leaves=1, nodes=2)), loop, 0

    async def read(self, _: object, known: int) -> tuple[int, HeatScene] | None:
        self.looks += 1
        seq = len(self.stage.facts)
        told = None if seq == known else (seq, scene(self.stage.scheduler.ledger))
        if self.looks == 3:
            self.stage.submit(job("late", 1, 8))
            self.loop.changes.tick()
        return told

    def ticket(self) -> asyncio.Event:
        return self.loop.changes.ticket()

    @property
    def stopping(self) -> bool:
        return False


def test_who_is_shown_what_another_looked_at_misses_nothing_that_came_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heat_feed, "EVERY_S", 0.2)

    async def lived() -> None:
        loop = Loop()
        site = Watched(loop)
        feed = heat_feed.HeatFeed(cast(Any, site))
        held_by = cast(Any, SimpleNamespace(caller=Caller("op", EVERYTHING, "tcp")))
        first, second = feed.frames(held_by), feed.frames(held_by)
        told: list[str] = []

        async def follow(frames: AsyncIterator[str]) -> None:
            async for text in frames:
                told.extend(text.splitlines())

        following = [asyncio.create_task(follow(first))]
        await asyncio.sleep(0.05)
        following.append(asyncio.create_task(follow(second)))
        await asyncio.sleep(0.05)
        loop.changes.tick()
        async with asyncio.timeout(60.0):
            while sum("late" in line for line in told) < 2:
                await asyncio.sleep(0.05)
        for each in following:
            each.cancel()
        loop.close()

    asyncio.run(lived())


def test_a_node_notes_gpus_of_which_links_carry_less() -> None:
    worn = (GpuFacts("n1", 3, pcie=0.5), GpuFacts("n1", 4, pcie=0.25, nvlink=0.9))
    site = replace(cluster(leaves=1, nodes=2), gpus=worn)
    notes = {node.name: node.notes for node in heat_map(Fabric.build(site)).nodes}
    assert notes == {"n0": (), "n1": ("2 GPUs PCIe 25 % to 50 %", "1 GPU NVLink 90 %")}
