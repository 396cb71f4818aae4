"""The drawing of a fabric: what it shows, that boxes stand inside boxes and apart, that names stay names."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from gantree.model.cluster import (
    Allocation,
    Cluster,
    DomainFacts,
    Machine,
    Nic,
    NicFacts,
    Node,
    Torus,
)
from gantree.model.placements import MemberPlacement
from gantree.topology.fabric.conditions import Conditions
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.catalog import machine
from gantree.topology.occupancy.occupancy import Occupancy
from gantree.web.fabric.layout import (
    Box,
    Scale,
    head_height,
    lay_out,
    node_size,
    place_of_gpu,
    scale_for,
)
from gantree.web.fabric.page import page, svg
from gantree.web.fabric.scene import Scene, code_of, percent, scene_of

SVG = "{http://www.w3.org/2000/svg}"
EVIL = "<script>alert(1)</script>\"'&"


def fabric_of(gpus_of_leaf: dict[str, list[int]], **more: Any) -> Fabric:
    """Leaves under spine s0, each with nodes of so many GPUs."""
    machines = {f"m{n}": Machine(f"m{n}", n) for leaf in gpus_of_leaf.values() for n in leaf}
    nodes = tuple(
        Node(f"{leaf}n{i}", f"m{gpus}", ("s0", leaf))
        for leaf, counts in gpus_of_leaf.items()
        for i, gpus in enumerate(counts)
    )
    return Fabric.build(Cluster("site", ("spine", "leaf", "node"), machines, nodes, **more))


def scene(fabric: Fabric, occupancy: Occupancy | None = None) -> Scene:
    return scene_of(fabric, occupancy or Occupancy(fabric), Conditions(fabric))


def drawn(fabric: Fabric, occupancy: Occupancy | None = None) -> Any:
    return etree.fromstring(
        svg(fabric, occupancy or Occupancy(fabric), Conditions(fabric)).encode()
    )


def node_of(root: Any, name: str) -> Any:
    return next(g for g in root.iter(f"{SVG}g") if _title(g).startswith(f"{name} ("))


def _title(group: Any) -> str:
    title = group.find(f"{SVG}title")
    return "" if title is None or title.text is None else str(title.text)


def cells(node: Any, sign: str) -> int:
    """How many cells of a class are drawn over a node's free ones."""
    return sum(p.get("d").count("M") for p in node.iter(f"{SVG}path") if p.get("class") == sign)


def test_a_nic_that_is_not_whole_is_told_and_marks_its_node() -> None:
    machines = {"m": Machine("m", 2, nics=(Nic("mlx5_0"), Nic("mlx5_1")))}
    facts = (
        NicFacts("n1", "mlx5_1", health=0.0),
        NicFacts("n2", "mlx5_0", health=0.5, load=0.2),
        NicFacts("n3", "mlx5_0", load=0.2),
    )
    nodes = tuple(Node(f"n{i}", "m", ("l0",)) for i in range(4))
    root = drawn(Fabric.build(Cluster("c", ("leaf", "node"), machines, nodes, nics=facts)))
    looks = {
        name: (
            node.get("class"),
            [p.get("class") for p in node.iter(f"{SVG}path") if p.get("class").startswith("w")],
            [line for line in _title(node).splitlines() if "NIC" in line],
            "low" in node.get("data-k").split(),
        )
        for name in ("n0", "n1", "n2", "n3")
        for node in [node_of(root, name)]
    }
    assert looks == {
        "n0": ("n", [], [], False),
        "n1": ("n l", ["w dead"], ["NIC mlx5_1 out of use"], True),
        "n2": ("n l", ["w"], ["NIC mlx5_0 health 50 %, load 20 %"], True),
        "n3": ("n", [], ["NIC mlx5_0 load 20 %"], False),
    }


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["n0", "n1"], ["n0", "n1"]),
        (["dgx-04-c01", "dgx-04-c02"], ["…c01", "…c02"]),
        (["computenode001", "computenode012"], ["…001", "…012"]),
        (["rack-4", "rack-4-spare"], ["…4", "…spare"]),
        (["verylongname", "verylongname1"], ["…gname", "…name1"]),
        (["onlylongname"], ["…gname"]),
    ],
)
def test_names_without_room_lose_what_the_nodes_of_a_domain_share(
    names: list[str], shown: list[str]
) -> None:
    nodes = tuple(Node(name, "m", ("l0",)) for name in names)
    fabric = Fabric.build(Cluster("c", ("leaf", "node"), {"m": Machine("m", 2)}, nodes))
    root = drawn(fabric)
    assert [node_of(root, name).find(f"{SVG}text").text for name in names] == shown


def test_cells_of_a_node_show_who_holds_them_and_what_is_out_of_use() -> None:
    fabric = fabric_of({"l0": [8, 8]}, allocations=(Allocation("old", "l0n0", (0, 1, 5)),))
    occupancy = Occupancy(fabric)
    occupancy.take("train", [MemberPlacement("w", 0, "l0n1", (2, 3))])
    occupancy.mark("l0n1", usable=False)
    root = drawn(fabric, occupancy)
    first, second = node_of(root, "l0n0"), node_of(root, "l0n1")
    assert (cells(first, "h"), cells(first, "x"), first.get("class")) == (3, 0, "n")
    assert (cells(second, "h"), cells(second, "x"), second.get("class")) == (2, 6, "n o")
    assert _title(second).splitlines() == [
        "l0n1 (m8)",
        "spine s0, leaf l0",
        "6 of 8 GPUs free",
        "out of use",
        "b: train (GPU 2,3)",
    ]
    assert (first.get("data-k"), second.get("data-k")) == ("0 free", "1 out")


def test_health_is_a_triangle_and_load_the_length_of_a_bar() -> None:
    fabric = fabric_of(
        {"l0": [4, 4]},
        domains=(
            DomainFacts("node", "l0n0", health=0.5, load=0.25),
            DomainFacts("leaf", "s0/l0", health=0.75),
        ),
    )
    root = drawn(fabric)
    whole, worn = node_of(root, "l0n1"), node_of(root, "l0n0")
    assert (cells(whole, "w"), cells(whole, "u")) == (0, 0)
    assert (cells(worn, "w"), cells(worn, "u")) == (1, 1)
    lengths = {
        p.get("class"): float(re.search(r"h([0-9.]+)", p.get("d"))[1])  # type: ignore[index] # all bars have one
        for p in worn.iter(f"{SVG}path")
        if p.get("class") in {"t", "u"}
    }
    assert lengths["u"] == pytest.approx(lengths["t"] / 4, abs=0.02)
    assert "75 %" in [text.text for text in root.iter(f"{SVG}text")]


def test_a_node_without_health_is_out_of_use() -> None:
    fabric = fabric_of({"l0": [4]}, domains=(DomainFacts("node", "l0n0", health=0),))
    assert scene(fabric).root.free_gpus == 0
    assert cells(node_of(drawn(fabric), "l0n0"), "x") == 4


def test_the_counts_add_up() -> None:
    fabric = fabric_of({"l0": [8, 8], "l1": [4, 0]})
    occupancy = Occupancy(fabric)
    occupancy.take(
        "a", [MemberPlacement("w", 0, "l0n0", (0, 1, 2)), MemberPlacement("w", 1, "l1n0", (3,))]
    )
    occupancy.take("cpus", [MemberPlacement("w", 0, "l1n1", cpus=0.0)])
    occupancy.mark("l1n0", usable=False)
    told = scene(fabric, occupancy)
    assert (told.root.gpus, told.root.free_gpus, told.taken_gpus, told.idle_gpus) == (20, 13, 4, 3)
    assert [(h.name, h.code, h.gpus, h.nodes) for h in told.holders] == [
        ("a", "a", 4, 2),
        ("cpus", "b", 0, 1),
    ]


def test_partitions_and_tori_are_listed_and_found() -> None:
    model = machine("dgx-h100")
    nodes = tuple(
        Node(f"n{i}", model.name, ("l0",), partitions=(("power", f"feed-{i % 2}"),))
        for i in range(4)
    )
    torus = Torus("pod", (4, 8), (2, 4), tuple(n.name for n in nodes), (True, False))
    fabric = Fabric.build(Cluster("c", ("leaf", "node"), {model.name: model}, nodes, tori=(torus,)))
    text = page(fabric, Occupancy(fabric), Conditions(fabric))
    assert '<td>power</td><td>feed-1</td><td class="r">2</td><td class="r">16</td>' in text
    assert "<td>pod</td><td>4 &times; 8</td><td>2 &times; 4</td><td>0</td>" in text
    assert "torus pod at 2,4" in text


def test_names_stay_names() -> None:
    nodes = (Node(EVIL, EVIL, (EVIL,), partitions=((EVIL, EVIL),)),)
    described = Cluster(EVIL, (EVIL, "node"), {EVIL: Machine(EVIL, 2)}, nodes)
    fabric = Fabric.build(described)
    occupancy = Occupancy(fabric)
    occupancy.take(EVIL, [MemberPlacement("w", 0, EVIL, (0,))])
    text = page(fabric, occupancy, Conditions(fabric))
    parsed = etree.fromstring(text.encode(), etree.HTMLParser())
    [script] = parsed.findall(".//script")
    assert "alert" not in (script.text or "")
    assert not [e for e in parsed.iter() if any(key.startswith("on") for key in e.attrib)]
    root = drawn(fabric, occupancy)
    assert not list(root.iter(f"{SVG}script"))
    assert _title(node_of(root, EVIL)).startswith(EVIL)


def test_the_page_asks_for_nothing_from_elsewhere() -> None:
    fabric = fabric_of({"l0": [8]})
    text = page(fabric, Occupancy(fabric), Conditions(fabric))
    assert (
        re.findall(
            r'(?:src|href)="(?!#)|url\((?!#)|@import|https?://(?!www\.w3\.org/2000/svg)', text
        )
        == []
    )
    assert "default-src 'none'" in text


def test_codes_go_on_after_z() -> None:
    assert [code_of(n) for n in (0, 25, 26, 51, 52, 701, 702)] == [
        "a",
        "z",
        "aa",
        "az",
        "ba",
        "zz",
        "aaa",
    ]


def test_what_is_not_quite_all_or_nothing_is_not_rounded_to_it() -> None:
    assert [percent(part) for part in (0, 0.001, 0.5, 0.999, 1)] == [
        "0 %",
        "1 %",
        "50 %",
        "99 %",
        "100 %",
    ]


SHAPES = st.dictionaries(
    st.sampled_from([f"l{i}" for i in range(9)]),
    st.lists(st.sampled_from([0, 1, 2, 4, 8, 16, 72]), min_size=1, max_size=20),
    min_size=1,
)


@given(SHAPES)
def test_boxes_stand_inside_their_domain_and_apart_from_each_other(
    gpus_of_leaf: dict[str, list[int]],
) -> None:
    told = scene(fabric_of(gpus_of_leaf))
    scale = scale_for(told.root.gpus, len(told.nodes))
    root = lay_out(told.root, scale)
    leaves = 0
    for depth, box in _walk(root, 0):
        leaves += not box.inside
        head = head_height(scale) if depth else 0
        for each in box.inside:
            assert each.x >= 0
            assert each.y >= head
            assert each.x + each.width <= box.width + 0.01
            assert each.y + each.height <= box.height + 0.01
        assert not any(_overlap(a, b) for i, a in enumerate(box.inside) for b in box.inside[:i])
    assert leaves == len(told.nodes)


def _walk(box: Box, depth: int) -> Iterator[tuple[int, Box]]:
    yield depth, box
    for each in box.inside:
        yield from _walk(each, depth + 1)


def _overlap(a: Box, b: Box) -> bool:
    apart = 0.01
    beside = a.x + a.width <= b.x + apart or b.x + b.width <= a.x + apart
    return not (beside or a.y + a.height <= b.y + apart or b.y + b.height <= a.y + apart)


@given(st.integers(1, 1024), st.sampled_from([(0, 0), (400, 1), (4000, 1), (90_000, 1)]))
def test_cells_stand_inside_their_node_and_apart(gpus: int, size: tuple[int, int]) -> None:
    scale: Scale = scale_for(*size)
    width, height = node_size(gpus, scale)
    places = [place_of_gpu(gpu, gpus, scale) for gpu in range(gpus)]
    assert len(set(places)) == gpus
    assert max(x for x, _ in places) + scale.cell <= width
    assert max(y for _, y in places) + scale.cell <= height


def test_two_thousand_nodes_are_a_page_of_a_megabyte() -> None:
    model = machine("dgx-h100")
    nodes = tuple(
        Node(f"gpu{i:04}", model.name, (f"s{i // 512}", f"l{i // 32}")) for i in range(2000)
    )
    fabric = Fabric.build(Cluster("big", ("spine", "leaf", "node"), {model.name: model}, nodes))
    occupancy = Occupancy(fabric)
    for job in range(250):
        held = range(8 * job, 8 * job + 6)
        occupancy.take(
            f"team/training-run-{job:04}",
            [MemberPlacement("w", i, f"gpu{n:04}", tuple(range(8))) for i, n in enumerate(held)],
        )
    text = page(fabric, occupancy, Conditions(fabric))
    assert len(text.encode()) < 1_500_000
    assert text.count('class="n"') == 2000
