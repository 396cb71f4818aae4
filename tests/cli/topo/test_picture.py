"""The picture of a cluster reads without colour: whole drawings, character by character."""

from dataclasses import replace
from typing import Any

from rich.console import Console

from gantree.cli.topo.gpu_parts import holders_by_node, parts_json
from gantree.cli.topo.picture import picture
from gantree.formats import read_cluster
from gantree.model.cluster import Allocation, Cluster, DomainFacts, Machine, NicFacts, Node, Torus
from gantree.model.placements import MemberPlacement, SharePart
from gantree.topology.fabric.conditions import Conditions
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.catalog import plain
from gantree.topology.occupancy.occupancy import Occupancy

M4, M0 = plain("m4", 4), plain("bare", 0, cpus=8)


def cluster(
    nodes: dict[str, tuple[Machine, str]],
    allocations: tuple[Allocation, ...] = (),
    **more: Any,
) -> Fabric:
    """Nodes by name, with machine and leaf, in spine s0."""
    described = Cluster(
        "site",
        ("spine", "leaf", "node"),
        {machine.name: machine for machine, _ in nodes.values()},
        tuple(Node(name, machine.name, ("s0", leaf)) for name, (machine, leaf) in nodes.items()),
        allocations=allocations,
        **more,
    )
    return Fabric.build(described)


def drawn(fabric: Fabric, occupancy: Occupancy) -> list[str]:
    console = Console(width=100, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(picture(fabric, occupancy, Conditions(fabric)))
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


def test_health_and_load_stand_beside_what_they_are_of() -> None:
    fabric = cluster(
        {f"n{i}": (M4, "l0") for i in range(3)},
        domains=(
            DomainFacts("spine", "s0", load=0.4),
            DomainFacts("leaf", "s0/l0", health=0.5, load=0.999),
            DomainFacts("node", "n0", health=0.0),
            DomainFacts("node", "n2", health=0.75, load=0.1),
        ),
    )
    assert drawn(fabric, Occupancy(fabric)) == [
        "site  12 GPUs, 8 free",
        "└── spine s0  12 GPUs, 8 free, load 40 %",
        "    └── leaf l0  12 GPUs, 8 free, health 50 %, load 99 %",
        "        ├── n0  m4  ....  out of use, health 0 %",
        "        ├── n1  m4  ....",
        "        └── n2  m4  ....  health 75 %, load 10 %",
    ]


def test_a_node_that_is_worn_is_not_drawn_as_one_that_is_whole() -> None:
    fabric = cluster(
        {f"n{i}": (M4, "l0") for i in range(9)}, domains=(DomainFacts("node", "n4", health=0.5),)
    )
    names = [line.strip("│├└─ ").split("  ")[0] for line in drawn(fabric, Occupancy(fabric))[3:]]
    assert names == ["n0 .. n3 (4 alike)", "n4", "n5 .. n8 (4 alike)"]


def test_nics_that_are_broken_worn_or_busy_stand_beside_their_node() -> None:
    facts = (
        NicFacts("n1", "mlx5_0", health=0.0, load=0.5),
        NicFacts("n2", "mlx5_0", health=0.5),
        NicFacts("n2", "mlx5_1", health=0.25, load=0.1),
        NicFacts("n3", "mlx5_0"),
    )
    with_nics = plain("m4", 4, nics=2)
    fabric = cluster({f"n{i}": (with_nics, "l0") for i in range(6)}, nics=facts)
    assert drawn(fabric, Occupancy(fabric))[3:] == [
        "        ├── n0  m4  ....",
        "        ├── n1  m4  ....  1 NIC out of use",
        "        ├── n2  m4  ....  2 NICs health 25 % to 50 %, 1 NIC load 10 %",
        "        └── n3 .. n5 (3 alike)  m4  .... each",
    ]


def test_partitions_and_tori_are_listed_below_the_tree() -> None:
    plain_fabric = cluster({f"n{i}": (M4, "l0") for i in range(4)})
    nodes = tuple(
        replace(node, partitions=(("power", f"feed-{i // 3}"),))
        for i, node in enumerate(plain_fabric.nodes)
    )
    torus = Torus("pod", (4, 4), (2, 2), ("n0", "n1", "n2", "n3"), (True, False))
    fabric = Fabric.build(replace(plain_fabric.cluster, nodes=nodes, tori=(torus,)))
    occupancy = Occupancy(fabric)
    occupancy.mark("n1", usable=False)
    assert drawn(fabric, occupancy)[-4:] == [
        "├── partition power",
        "│   ├── feed-0  3 nodes, 12 GPUs, 8 free",
        "│   └── feed-1  1 node, 4 GPUs, 4 free",
        "└── torus pod  4x4 GPUs, 2x2 on each of 4 nodes, closed along axis 0",
    ]


def test_of_many_domains_of_a_partition_the_first_are_listed() -> None:
    described = cluster({f"n{i}": (M4, "l0") for i in range(40)}).cluster
    nodes = tuple(replace(n, partitions=(("rack", n.name),)) for n in described.nodes)
    fabric = Fabric.build(replace(described, nodes=nodes))
    lines = drawn(fabric, Occupancy(fabric))
    assert [line.strip("│├└─ ").split("  ")[0] for line in lines[-3:]] == [
        "n10",
        "n11",
        "28 others",
    ]


PARTED = """
name: parted
tiers: [leaf, node]
machines:
  a4: {gpus: 4, gpu: A100-80GB, cpus: 64, memory_GiB: 512, devices: {fpga: 2}}
nodes:
  - names: n0
    machine: a4
    at: {leaf: l0}
    mig: {gpus: [0, 1], instances: [{gpu: 0, profile: 3g.40gb, start: 4}, {gpu: 0, profile: 2g.20gb, start: 0}]}
  - names: n1
    machine: a4
    at: {leaf: l0}
    mig: {instances: [{gpu: 0, profile: 1g.10gb, start: 0}], by: nobody}
  - {names: n2, machine: a4, at: {leaf: l1}}
  - {names: n3, machine: a4, at: {leaf: l2}, share: {modes: [mps], tenants: 2}}
  - {names: n4, machine: a4, at: {leaf: l3}, share: none}
allocations:
  - {job: cut, node: n0, mig: [{gpu: 0, profile: 3g.40gb, start: 4}]}
  - {job: half, node: n2, shares: [{gpu: 3, compute: 0.5, memory_GiB: 20, isolation: mps}]}
  - {job: board, node: n4, devices: {fpga: 1}}
"""


DIVIDED = """
name: amd
tiers: [node]
machines: {m: {gpus: 2, gpu: MI300X-192GB, cpus: 8, memory_GiB: 64}}
nodes:
  - {names: "n[0-1]", machine: m, mig: {by: nobody, instances: [{gpu: 0, profile: dpx, start: 0}]}}
allocations:
  - {job: held, node: n0, mig: [{gpu: 0, profile: dpx, start: 4}]}
"""


def test_modes_of_amd_gpus_are_called_compute_partitions() -> None:
    fabric = Fabric.build(read_cluster(DIVIDED, "divided.yaml"))
    assert drawn(fabric, Occupancy(fabric)) == [
        "amd  4 GPUs, 2 free",
        "├── n0  m  /.  GPU 0: dpx idle + dpx a, divided by nobody",
        "├── n1  m  -.  GPU 0: dpx idle + dpx idle, divided by nobody",
        "├── /  parts of it are held: free for no whole GPU",
        "├── -  stays divided: free for MIG instances or compute partitions only",
        "└── holders",
        "    └── a  site:held  1 compute partition",
    ]


def test_gpus_held_in_parts_are_not_free_and_their_instances_and_shares_are_told() -> None:
    fabric = Fabric.build(read_cluster(PARTED, "parted.yaml"))
    assert drawn(fabric, Occupancy(fabric)) == [
        "parted  20 GPUs, 17 free",
        "├── leaf l0  8 GPUs, 6 free",
        "│   ├── n0  a4  /...  GPU 0: 2g.20gb idle + 3g.40gb a, GPU 1: MIG mode, no instances",
        "│   └── n1  a4  -...  GPU 0: 1g.10gb idle, MIG by nobody",
        "├── leaf l1  4 GPUs, 3 free",
        "│   └── n2  a4  .../  GPU 3: 0.5 mps b",
        "├── leaf l2  4 GPUs, 4 free",
        "│   └── n3  a4  ....  shared by mps, at most 2 on a GPU",
        "├── leaf l3  4 GPUs, 4 free",
        "│   └── n4  a4  ....  1 of 2 fpga held, not shared",
        "├── /  parts of it are held: free for no whole GPU",
        "├── -  stays divided: free for MIG instances or compute partitions only",
        "└── holders",
        "    ├── a  site:cut  1 MIG instance",
        "    ├── b  site:half  1 share",
        "    └── c  site:board  1 fpga",
    ]


def test_what_is_kept_of_a_shared_gpu_is_told_beside_the_shares_and_is_none() -> None:
    site = replace(read_cluster(PARTED, "parted.yaml"), allocations=())
    occupancy = Occupancy(Fabric.build(site))
    occupancy.take("a", [MemberPlacement("w", 0, "n2", share=SharePart(3, 0.25, 20, "mps"))])
    occupancy.take_free("claim:b", [MemberPlacement("w", 0, "n2", (3,))])
    lines = drawn(occupancy.fabric, occupancy)
    assert "│   └── n2  a4  .../  GPU 3: 0.25 mps a + 0.75 kept b" in lines
    assert lines[-2:] == ["    ├── a  a  1 share", "    └── b  claim:b  what is left of 1 GPU"]
    holders = holders_by_node(occupancy)["n2"]
    told = parts_json(occupancy, occupancy.fabric.index_of_node["n2"], holders)["shares"]["held"]
    assert [(one["holder"], one["isolation"]) for one in told] == [("a", "mps"), ("claim:b", None)]
