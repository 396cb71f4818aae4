"""Files for NCCL: read by a reader as strict as NCCL's own, and topology files read back as the machine they are of."""

import re
from dataclasses import dataclass, field, replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.model.cluster import Machine, Nic
from gantree.model.errors import BadInput, Unsupported
from gantree.topology.discovery.gpus import machine_from
from gantree.topology.discovery.machines.nccl.nccl_xml import parse
from gantree.topology.graph.nccl_hint import fits_all_groups, graph_of, graph_xml
from gantree.topology.hardware.catalog import MACHINES, machine, plain
from gantree.topology.hardware.gpu_models import gpu_model
from gantree.topology.hardware.link_classes import bonded_links
from gantree.topology.hardware.nccl_system import BusIds, system_xml

TPUS = {name for name in MACHINES if name.startswith("tpu")}
WITH_GPUS = sorted(name for name, model in MACHINES.items() if model.gpus and name not in TPUS)
NVIDIA = [name for name in WITH_GPUS if not name.startswith("mi")]

ELEMENT = re.compile(
    r'<(?P<end>/?)(?P<name>[^ >/\n\r"=]+)(?P<attributes>(?: [^ =>/\n\r"]+="[^"]{0,254}")*)(?P<alone>/?)>'
)
"""One element as NCCL reads it: a single space before each attribute, nothing else between them."""
CHILDREN = {
    "": {"system", "graphs"},
    "system": {"cpu"}, "cpu": {"pci", "nic"}, "pci": {"pci", "gpu", "nic", "pcilink"},
    "gpu": {"nvlink", "c2c", "xgmi"}, "nic": {"net"}, "graphs": {"graph"}, "graph": {"channel"},
    "channel": {"net", "gpu"},
}  # fmt: skip
NEEDED = {
    "system": {"version"}, "graphs": {"version"}, "cpu": {"numaid"},
    "pci": {"busid", "class", "link_speed", "link_width"}, "nvlink": {"target", "count", "tclass"},
    "net": {"dev"}, "gpu": {"dev"},
    "graph": {"id", "pattern", "crossnic", "nchannels", "speedintra", "speedinter", "typeintra", "typeinter",
              "samechannels"},
}  # fmt: skip
LINK_TYPES = {"LOC", "NVL", "NVB", "PIX", "PXB", "PXN", "PHB", "SYS"}


@dataclass
class Element:
    name: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list["Element"] = field(default_factory=list)

    def all(self, name: str) -> list["Element"]:
        own = [child for child in self.children if child.name == name]
        return own + [found for child in self.children for found in child.all(name)]


def strictly(text: str) -> Element:
    """The document's element; ValueError for what NCCL's reader stops at or passes over."""
    top = Element("")
    above = [top]
    at = 0
    while rest := text[at:].lstrip(" \n\r"):
        at = len(text) - len(rest)
        match = ELEMENT.match(text, at)
        if match is None:
            raise ValueError(f"cannot read {text[at : at + 40]!r}")
        at = match.end()
        if match["end"]:
            if above.pop().name != match["name"]:
                raise ValueError(f"{match['name']} closes another element")
            continue
        found = re.findall(r' ([^=]+)="([^"]*)"', match["attributes"])
        element = Element(match["name"], dict(found))
        judged(element, above[-1].name, len(found))
        above[-1].children.append(element)
        if not match["alone"]:
            above.append(element)
    if len(above) > 1 or len(top.children) != 1:
        raise ValueError("no single closed document")
    return top.children[0]


def judged(element: Element, parent: str, attributes: int) -> None:
    if element.name not in CHILDREN[parent]:
        raise ValueError(f"{element.name} in {parent or 'the document'} is passed over")
    missing = NEEDED.get(element.name, set()) - set(element.attributes)
    if missing or attributes > 16 or len(element.attributes) < attributes:
        raise ValueError(f"{element.name}: {missing or 'too many attributes'}")


def numbers(elements: list[Element], name: str = "dev") -> list[int]:
    """As old versions read them (any base), which must be as new ones do (base 16)."""
    written = [element.attributes[name] for element in elements]
    assert [int(each, 0) for each in written] == [int(each, 16) for each in written]
    return [int(each, 16) for each in written]


@pytest.mark.parametrize(
    "text",
    [
        '<?xml version="1.0"?><graphs version="1"/>',
        '<graphs  version="1"/>',
        '<graphs\tversion="1"/>',
        "<graphs version='1'><graph id=0/></graphs>",
        '<graphs version="1"><channel/></graphs>',
        '<graphs version="1">',
        f'<graphs version="{"1" * 300}"/>',
    ],
)
def test_the_strict_reader_refuses_what_nccl_refuses(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        strictly(text)


# ----- topology files


def near_of(model: Machine) -> list[tuple[str, tuple[int, ...], float | None]]:
    return [(nic.name, nic.near, nic.bandwidth_GBps) for nic in model.nics]


@pytest.mark.parametrize("name", WITH_GPUS)
def test_every_machine_of_the_catalogue_reads_back_as_it_is(name: str) -> None:
    model = machine(name)
    text = system_xml(model)
    strictly(text)
    back = machine_from(parse(text, name), name)
    relayed = tuple(tuple("NODE" if link == "NVB" else link for link in row) for row in model.links)
    if (
        name == "mi250x-8"
    ):  # pairs that are reached over other dies have only their PCI path in a file
        assert {link for row in back.links for link in row} == {"X", "XGMI1", "NODE"}
    else:
        assert back.links == relayed
    assert back.numa == model.numa
    assert near_of(back) == near_of(model)
    paths = [of.path or ("PIX" if of.near else "") for of in model.nics]
    assert [nic.path for nic in back.nics] == paths


@given(
    st.integers(1, 2), st.integers(1, 3), st.integers(1, 2), st.integers(1, 2), st.booleans(), st.booleans()
)  # fmt: skip
def test_any_nesting_of_switches_reads_back_as_it_is(
    sockets: int, roots: int, switches: int, each: int, nics: bool, linked: bool
) -> None:
    model = nested(sockets, roots, switches, each, nics=nics, linked=linked)
    text = system_xml(model)
    strictly(text)
    back = machine_from(parse(text, "m"), "m")
    assert back.links == (model.links if model.gpus > 1 else ())
    assert near_of(back) == near_of(model)
    if sockets > 1:
        assert back.numa == model.numa


def nested(
    sockets: int, roots: int, switches: int, each: int, *, nics: bool, linked: bool
) -> Machine:
    """GPUs below switches below upper switches, one root complex each; NICs beside them; NVLinks to a neighbour."""
    gpus = sockets * roots * switches * each
    sizes = [(each, "PIX"), (switches * each, "PXB"), (roots * switches * each, "NODE")]

    def link(a: int, b: int) -> str:
        if a == b:
            return "X"
        if linked and a // 2 == b // 2:
            return "NV4"
        return next((word for size, word in sizes if a // size == b // size), "SYS")

    cards = tuple(
        Nic(f"ib{n}", tuple(range(n * each, (n + 1) * each)), n, 25.0, "PIX")
        for n in range(gpus // each if nics else 0)
    )
    return Machine(
        "m", gpus, None, tuple(tuple(link(a, b) for b in range(gpus)) for a in range(gpus)),
        tuple(gpu * sockets // gpus for gpu in range(gpus)), cards,
    )  # fmt: skip


def test_links_into_nvswitches_and_between_gpus_are_written_as_nccl_writes_them() -> None:
    switched = strictly(system_xml(machine("dgx-h100")))
    assert {(e.attributes["target"], e.attributes["count"], e.attributes["tclass"])
            for e in switched.all("nvlink")} == {("fffffff:ffff:ff", "18", "0x068000")}  # fmt: skip
    wired = strictly(system_xml(machine("dgx-1-v100")))
    bus_ids = {e.attributes["busid"] for e in wired.all("pci") if e.all("gpu")}
    assert {e.attributes["target"] for e in wired.all("nvlink")} <= bus_ids
    links_of_gpu = [sum(numbers_of(gpu)) for gpu in wired.all("gpu")]
    assert links_of_gpu == [6] * 8


def numbers_of(gpu: Element) -> list[int]:
    return [int(link.attributes["count"]) for link in gpu.all("nvlink")]


def test_told_bus_ids_are_kept_and_made_up_ones_never_meet_them() -> None:
    model = machine("dgx-h100")
    told = BusIds(
        tuple(f"0000:{gpu + 1:02x}:00.0" for gpu in range(8)),
        tuple(f"0000:{nic + 16:02x}:00.0" for nic in range(len(model.nics))),
    )
    seen = strictly(system_xml(model, told)).all("pci")
    ids = [pci.attributes["busid"] for pci in seen]
    assert len(set(ids)) == len(ids)
    assert {*told.gpus, *told.nics} <= set(ids)
    back = parse(system_xml(model, told), "m")
    assert back.bus_id_of_gpu == told.gpus
    assert machine_from(back, "m").links == model.links


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (machine("tpu-v4-host"), "know no TPUV4"),
        (plain("m", 8, "H100-80GB"), "links between its GPUs are not told"),
        (replace(machine("t4-4"), name='a"b'), "cannot read the name"),
        (replace(machine("t4-4"), nics=(Nic("a&b"),)), "cannot read the name"),
    ],
)
def test_what_cannot_be_written_is_refused_with_the_reason(model: Machine, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        system_xml(model)


def test_too_few_bus_ids_are_refused() -> None:
    with pytest.raises(BadInput, match="1 bus ids of GPUs and 0 of NICs; it has 4 GPUs"):
        system_xml(machine("t4-4"), BusIds(("0000:01:00.0",), ()))


# ----- graph files


def held_nics(model: Machine, gpus: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(nic.name for nic in model.nics if set(nic.near) & set(gpus))


@given(st.sampled_from(NVIDIA), st.data(), st.booleans())
def test_every_channel_goes_over_each_gpu_once_and_by_a_nic_that_is_near(
    name: str, data: st.DataObject, leaves_node: bool
) -> None:
    model = machine(name)
    count = data.draw(st.integers(1, model.gpus))
    gpus = tuple(data.draw(st.permutations(range(model.gpus)))[:count])
    nics = held_nics(model, gpus)
    if (leaves_node and not nics) or (count > 2 and meshed(model, gpus)):
        with pytest.raises((BadInput, Unsupported)):
            graph_of(model, gpus, nics, leaves_node=leaves_node)
        return
    graph = strictly(graph_xml(graph_of(model, gpus, nics, leaves_node=leaves_node))).children[0]
    assert {graph.attributes["typeintra"], graph.attributes["typeinter"]} <= LINK_TYPES
    assert int(graph.attributes["nchannels"]) == len(graph.children) <= 32
    assert min(float(graph.attributes[speed]) for speed in ("speedintra", "speedinter")) > 0
    rings = set()
    for channel in graph.children:
        order = numbers(channel.all("gpu"))
        assert sorted(order) == sorted(gpus)
        rings.add(turned(order))
        nets = numbers(channel.all("net"))
        if leaves_node:
            assert [each.name for each in channel.children] == ["net", *["gpu"] * count, "net"]
            assert nets[0] == nets[1]
            assert order[0] in next(nic for nic in model.nics if nic.name == nics[nets[0]]).near
        else:
            assert nets == []
    assert rings == {turned(list(gpus))}
    if leaves_node:
        used = {numbers(channel.all("net"))[0] for channel in graph.children}
        assert used == set(range(len(nics)))


def meshed(model: Machine, gpus: tuple[int, ...]) -> bool:
    """Whether the ring has a link of the GPUs' own, and no NVSwitch joins them: GPUs have no more links than ports."""
    widths = [[bonded_links(link) for link in row] for row in model.links]
    known = gpu_model(model.gpu)
    assert known is not None and known.links is not None
    hops = zip(gpus, (*gpus[1:], gpus[0]), strict=True)
    return max(map(sum, widths)) <= known.links and any(widths[a][b] for a, b in hops)


def turned(ring: list[int]) -> tuple[int, ...]:
    first = ring.index(min(ring))
    return (*ring[first:], *ring[:first])


def test_a_node_of_a_dgx_h100_in_full() -> None:
    graph = graph_of(machine("dgx-h100"), (1, 0), ("mlx5_1",), leaves_node=True)
    assert graph_xml(graph) == (
        '<graphs version="1">\n'
        '  <graph id="0" pattern="4" crossnic="0" nchannels="2" speedintra="25" speedinter="25" latencyinter="0" '
        'typeintra="NVL" typeinter="PXN" samechannels="1">\n'
        + 2
        * (
            "    <channel>\n"
            '      <net dev="0x0"/>\n      <gpu dev="0x1"/>\n      <gpu dev="0x0"/>\n      <net dev="0x0"/>\n'
            "    </channel>\n"
        )
        + "  </graph>\n</graphs>\n"
    )


def test_a_container_numbers_the_gpus_that_it_sees() -> None:
    graph = graph_of(machine("dgx-h100"), (6, 7), leaves_node=False)
    channel = strictly(graph_xml(graph, {6: 0, 7: 1})).children[0].children[0]
    assert numbers(channel.all("gpu")) == [0, 1]


@pytest.mark.parametrize(
    ("name", "gpus", "types"),
    [
        ("dgx-h100", (0,), ("LOC", "PIX")),
        ("dgx-h100", (0, 1), ("NVL", "PXN")),
        ("l40s-8", (0, 1), ("PHB", "PHB")),
        ("l40s-8", (0, 4), ("SYS", "SYS")),
    ],
)
def test_links_are_named_by_their_weakest_hop(
    name: str, gpus: tuple[int, ...], types: tuple[str, str]
) -> None:
    model = machine(name)
    model = model if model.nics else replace(model, nics=(Nic("ib0", (0,), 0, 25.0, "NODE"),))
    graph = graph_of(model, gpus, (model.nics[0].name,), leaves_node=True)
    assert (graph.intra, graph.inter) == types


def test_gpus_that_are_wired_to_each_other_are_left_to_nccl() -> None:
    with pytest.raises(Unsupported, match="leave NCCL_GRAPH_FILE unset"):
        graph_of(machine("dgx-1-v100"), (0, 1, 2, 3), leaves_node=False)


@pytest.mark.parametrize(
    ("model", "gpus", "nics", "said"),
    [
        (machine("dgx-h100"), (), (), "holds none"),
        (machine("dgx-h100"), (0,), (), "no NIC by name"),
        (machine("dgx-h100"), (0,), ("eth9",), "no NIC 'eth9'"),
        (machine("mi300x-8"), (0, 1), ("rdma0",), "no GPU of NVIDIA"),
    ],
)
def test_members_without_rings_are_refused_with_the_reason(
    model: Machine, gpus: tuple[int, ...], nics: tuple[str, ...], said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        graph_of(model, gpus, nics, leaves_node=True)


# ----- one file for all groups


def plain_fits(node: list[int], member: list[int], groups: list[list[int]]) -> bool:
    """A plain twin: each group has all ranks or none of each member, and no node has two members."""
    ranks = range(len(node))
    owners = {(node[rank], member[rank]) for rank in ranks}
    whole = [{rank for rank in ranks if member[rank] == each} for each in set(member)]
    return len(owners) == len({n for n, _ in owners}) and all(
        own <= set(group) or not own & set(group) for group in groups for own in whole
    )


@given(st.integers(1, 3), st.integers(1, 3), st.data())
def test_a_file_fits_where_no_group_divides_a_member(
    members: int, each: int, data: st.DataObject
) -> None:
    ranks = members * each
    member = [rank // each for rank in range(ranks)]
    node_of_member = data.draw(st.lists(st.integers(0, 3), min_size=members, max_size=members))
    node = [node_of_member[m] for m in member]
    size = data.draw(st.sampled_from([n for n in range(1, ranks + 1) if ranks % n == 0]))
    order = data.draw(st.permutations(range(ranks)))
    groups = [list(order[start : start + size]) for start in range(0, ranks, size)]
    found = fits_all_groups(np.array(node), np.array(member), {"data": np.array(groups)})
    assert found == plain_fits(node, member, groups)


def test_order_within_a_group_does_not_matter_to_a_file() -> None:
    node, member = np.array([0, 0, 1, 1]), np.array([0, 0, 1, 1])
    for order in permutations(range(4)):
        assert fits_all_groups(node, member, {"data": np.array([order])})
    assert not fits_all_groups(node, member, {"data": np.array([[0, 2], [1, 3]])})
