"""The picture of a cluster reads without colour: whole drawings, character by character."""

from rich.console import Console

from gantree.cli.topo_picture import picture
from gantree.model.cluster import Allocation, Cluster, Machine, Node
from gantree.model.placements import MemberPlacement
from gantree.topology.catalog import plain
from gantree.topology.fabric import Fabric
from gantree.topology.occupancy import Occupancy

M4, M0 = plain("m4", 4), plain("bare", 0, cpus=8)


def cluster(
    nodes: dict[str, tuple[Machine, str]], allocations: tuple[Allocation, ...] = ()
) -> Fabric:
    """Nodes by name, with machine and leaf, in spine s0."""
    described = Cluster(
        "site",
        ("spine", "leaf", "node"),
        {machine.name: machine for machine, _ in nodes.values()},
        tuple(Node(name, machine.name, ("s0", leaf)) for name, (machine, leaf) in nodes.items()),
        allocations=allocations,
    )
    return Fabric.build(described)


def drawn(fabric: Fabric, occupancy: Occupancy) -> list[str]:
    console = Console(width=100, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(picture(fabric, occupancy))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_each_gpu_shows_its_holder_and_the_legend_names_them() -> None:
    fabric = cluster(
        {"n0": (M4, "l0"), "n1": (M4, "l0"), "n2": (M4, "l1")}, (Allocation("old", "n0", (0, 1)),)
    )
    occupancy = Occupancy(fabric)
    occupancy.take(
        "[bold]train",
        [MemberPlacement("w", 0, "n1", (2, 3)), MemberPlacement("w", 1, "n2", (0, 1, 2, 3))],
    )
    assert drawn(fabric, occupancy) == [
        "site  12 GPUs, 4 free",
        "├── spine s0  12 GPUs, 4 free",
        "│   ├── leaf l0  8 GPUs, 4 free",
        "│   │   ├── n0  m4  aa..",
        "│   │   └── n1  m4  ..bb",
        "│   └── leaf l1  4 GPUs, 0 free",
        "│       └── n2  m4  bbbb",
        "└── holders",
        "    ├── a  site:old  2 GPUs",
        "    └── b  [bold]train  6 GPUs",
    ]


def test_neighbours_that_look_alike_are_drawn_once() -> None:
    fabric = cluster({f"n{i}": (M4, f"l{i // 4}") for i in range(20)})
    occupancy = Occupancy(fabric)
    occupancy.take("job", [MemberPlacement("w", i, f"n{i}", (0, 1, 2, 3)) for i in range(3)])
    assert drawn(fabric, occupancy) == [
        "site  80 GPUs, 68 free",
        "├── spine s0  80 GPUs, 68 free",
        "│   ├── leaf l0  16 GPUs, 4 free",
        "│   │   ├── n0 .. n2 (3 alike)  m4  aaaa each",
        "│   │   └── n3  m4  ....",
        "│   └── leaf l1 .. l4 (4 alike, l1 shown)  16 GPUs, 16 free, each",
        "│       └── n4 .. n7 (4 alike)  m4  .... each",
        "└── holders",
        "    └── a  job  12 GPUs",
    ]


def test_nodes_out_of_use_and_nodes_without_gpus_say_so() -> None:
    fabric = cluster({"n0": (M4, "l0"), "c0": (M0, "l0"), "c1": (M0, "l0")})
    occupancy = Occupancy(fabric)
    occupancy.take("web", [MemberPlacement("w", 0, "c1", cpus=2.0)])
    occupancy.mark("n0", usable=False)
    assert drawn(fabric, occupancy)[2:] == [
        "│   └── leaf l0  4 GPUs, 0 free",
        "│       ├── n0  m4  ....  out of use",
        "│       ├── c0  bare    no GPUs",
        "│       └── c1  bare    no GPUs, held by a",
        "└── holders",
        "    └── a  web  0 GPUs",
    ]


def test_more_holders_than_letters_share_a_sign() -> None:
    fabric = cluster({f"n{i}": (M4, "l0") for i in range(20)})
    occupancy = Occupancy(fabric)
    for job in range(70):
        occupancy.take(f"job{job:02}", [MemberPlacement("w", 0, f"n{job // 4}", (job % 4,))])
    lines = drawn(fabric, occupancy)
    assert lines[3] == "│       ├── n0  m4  abcd"
    assert lines[3 + 15].endswith("n15  m4  89##")
    assert lines[-1] == "    └── #  8 others"


def test_two_thousand_nodes_used_alike_fit_on_a_screen() -> None:
    fabric = cluster({f"n{i}": (M4, f"l{i // 32}") for i in range(2048)})
    assert len(drawn(fabric, Occupancy(fabric))) < 10


def test_two_leaves_that_look_alike_still_name_their_own_nodes() -> None:
    fabric = cluster({"n0": (M4, "l0"), "n1": (M4, "l1")})
    assert [line.split()[-3] for line in drawn(fabric, Occupancy(fabric)) if "...." in line] == [
        "n0",
        "n1",
    ]
