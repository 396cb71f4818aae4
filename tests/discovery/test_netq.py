"""Reading NetQ: the recorded answers against their verdicts, drawn ones, a table of traps, and fuzz."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import DomainFacts
from gantree.model.errors import BadFields, BadInput, GantreeError
from gantree.topology.discovery.fabrics import FabricReading
from gantree.topology.discovery.networks.netq import parse
from support.examples import examples

SHARED = Path(__file__).parents[3] / "shared" / "data" / "topology" / "topograph"
Json = dict[str, Any]


def recorded(name: str) -> tuple[str, str]:
    path = SHARED / name
    if not path.exists():
        pytest.skip("needs ../shared/data/topology, whose answers carry no licence")
    return path.read_text(), name


def device(name: str, tier: int, kind: str = "") -> Json:
    kind = kind or ("switch" if tier > 0 else "discovered_via_lldp")
    return {
        "id": f"id-{name}",
        "name": name,
        "tier": tier,
        "device_type": kind,
        "node_type": "device",
        "size": 1,
    }


def joined(a: str, b: str, *ports: tuple[str, str]) -> Json:
    """A link as NetQ tells it, with one compounded link for each pair of interfaces."""
    a, b = f"id-{a}", f"id-{b}"
    cables = [
        {
            "id": f"{a}:{x}-*-{b}:{y}",
            "interfaces": [{"node": a, "interface": x}, {"node": b, "interface": y}],
        }
        for x, y in ports
    ]
    return {
        "id": f"{a}-*-{b}",
        "interfaces": [{"node": a}, {"node": b}],
        "compounded_links": cables,
        "size": len(ports),
    }


def graph(devices: list[Json], links: list[Json]) -> list[Json]:
    tiers = {each["tier"]: None for each in devices}
    nodes = [
        {"id": f"tier-{tier}", "name": f"tier-{tier}", "node_type": "tier", "tier": tier,
         "compounded_nodes": [each for each in devices if each["tier"] == tier]}
        for tier in tiers
    ]  # fmt: skip
    return [{"nodes": nodes, "links": links}]


def tray(name: str, domain: str, health: str = "HEALTHY", gpus: int = 4) -> Json:
    place = {
        "ChassisID": 1,
        "ChassisSerialNumber": "18250",
        "HostID": 1,
        "SlotID": 5,
        "TrayIndex": 4,
    }
    return {"ID": f"x-{name}", "Name": name, "DomainUUID": domain, "Health": health, "LocationInfo": place,
            "Description": "", "GpuIDList": [f"{name}-{i}" for i in range(gpus)]}  # fmt: skip


DEVICES = [
    device("spine", 2), device("leaf1", 1), device("leaf2", 1),
    *(device(f"n{i}", -1) for i in range(4)),
]  # fmt: skip
LINKS = [
    *(joined("spine", f"leaf{leaf}", ("swp1", "swp31"), ("swp2", "swp32")) for leaf in (1, 2)),
    *(joined(f"leaf{1 + i // 2}", f"n{i}", (f"swp{i}", "eth0")) for i in range(4)),
]


def read(*answers: object) -> FabricReading:
    return parse([(json.dumps(answer), f"f{i}") for i, answer in enumerate(answers)])


def places(reading: FabricReading) -> dict[str, str]:
    return {node.name: "/".join(node.at) for node in reading.nodes}


PLACES = {f"n{i}": f"spine/leaf{1 + i // 2}" for i in range(4)}


def test_the_recorded_graph_gives_its_leaves_and_hosts() -> None:
    reading = parse([recorded("netq-topologyGraph.json")])
    assert reading.tiers == ("spine", "leaf")
    leaf = {f"dgx-0{number}": 1 if number < 5 else 2 for number in range(1, 9)}
    assert places(reading) == {
        name: f"net-unit-s1/net-unit-l{number}" for name, number in leaf.items()
    }
    for node in reading.nodes:
        assert [nic.name for nic in node.nics] == [
            "ens1f0np1",
            "ens1f1np3",
            "ens4f0np0",
            "ens4f1np2",
        ]
    assert reading.warnings == (
        "the up-link capacity of 2 domains is not known: cables without a rate",
    )


def test_the_recorded_compute_nodes_are_one_nvlink_domain() -> None:
    reading = parse([recorded("netq-computeNodes.json")])
    assert reading.tiers == ("nvlink",)
    assert places(reading) == dict.fromkeys(
        ("node1", "node2"), "3fbfc98b-7f95-4749-ab11-bd351a2aab3e"
    )
    assert [node.gpus for node in reading.nodes] == [4, 4]
    assert reading.nodes[1].labels == (("chassis", "1825024170029"), ("tray", "12"), ("slot", "22"))
    assert reading.warnings == ()


def test_a_drawn_graph_is_read() -> None:
    reading = read(graph(DEVICES, LINKS))
    assert places(reading) == PLACES
    assert "levels of switches are the tiers that NetQ gives them" in reading.inferred


def test_links_may_come_before_nodes_and_in_another_file() -> None:
    (whole,) = graph(DEVICES, LINKS)
    assert places(read([{"links": whole["links"]}], [{"nodes": whole["nodes"]}])) == PLACES


def test_a_link_without_interfaces_is_known_by_its_id() -> None:
    bare = [{"id": link["id"], "size": 1} for link in LINKS]
    assert places(read(graph(DEVICES, bare))) == PLACES


def test_groups_may_be_nested_deeper() -> None:
    (whole,) = graph(DEVICES, LINKS)
    nested = {
        "id": "site",
        "node_type": "group",
        "name": "site",
        "compounded_nodes": whole["nodes"],
    }
    assert places(read([whole | {"nodes": [nested]}])) == PLACES


def test_switches_without_a_tier_are_counted_from_the_hosts() -> None:
    devices = [each | {"tier": -1} for each in DEVICES]
    reading = read(graph(devices, LINKS))
    assert places(reading) == PLACES
    assert not any("tiers that NetQ gives" in told for told in reading.inferred)


def test_hosts_that_netq_classifies_stay_hosts() -> None:
    devices = [each if each["tier"] > 0 else device(each["name"], 0, "host") for each in DEVICES]
    assert places(read(graph(devices, LINKS))) == PLACES


def test_names_that_several_hosts_share_are_left_out_and_told() -> None:
    twin = device("n0", -1) | {"id": "id-twin"}
    reading = read(graph([*DEVICES, twin], LINKS))
    assert "n0" not in places(reading)
    assert any("1 names are each that of several hosts" in told for told in reading.warnings)


def test_links_to_unknown_devices_are_told() -> None:
    reading = read(graph(DEVICES, [*LINKS, joined("leaf1", "ghost", ("swp9", "eth0"))]))
    assert places(reading) == PLACES
    assert "1 cables join no two known devices and were passed over" in reading.warnings


def test_nvlink_domains_inside_leaves_are_the_narrowest_tier() -> None:
    trays = [tray("n0", "rack-a"), tray("n1", "rack-a"), tray("n2", "rack-b")]
    reading = read(graph(DEVICES, LINKS), trays)
    assert reading.tiers == ("spine", "leaf", "nvlink")
    assert places(reading) == {
        "n0": "spine/leaf1/rack-a",
        "n1": "spine/leaf1/rack-a",
        "n2": "spine/leaf2/rack-b",
        "n3": "spine/leaf2/n3",
    }


def test_nvlink_domains_across_leaves_are_a_partition() -> None:
    reading = read([tray("n0", "rack-a"), tray("n2", "rack-a")], graph(DEVICES, LINKS))
    assert reading.tiers == ("spine", "leaf")
    assert {
        node.name: node.partitions for node in reading.nodes if node.partitions
    } == dict.fromkeys(("n0", "n2"), (("nvlink", "rack-a"),))
    assert any(
        "1 NVLink domains cross domains of tier leaf (rack-a)" in told for told in reading.warnings
    )


def test_a_tray_that_the_graph_lacks_is_where_its_domain_is() -> None:
    reading = read(
        graph(DEVICES, LINKS), [tray("n0", "rack-a"), tray("n9", "rack-a"), tray("n8", "rack-z")]
    )
    assert places(reading)["n9"] == "spine/leaf1/rack-a"
    assert places(reading)["n8"] == "rack-z/rack-z/rack-z"
    assert any(
        "2 of 3 NVLink compute nodes are not in the topology graph" in told
        for told in reading.warnings
    )


@pytest.mark.parametrize("none", ["", "00000000-0000-0000-0000-000000000000", None])
def test_a_node_without_an_nvlink_domain_is_its_own(none: str | None) -> None:
    reading = read([tray("n0", "rack-a"), tray("n1", "x") | {"DomainUUID": none}])
    assert places(reading) == {"n0": "rack-a", "n1": "n1"}


def test_unhealthy_nodes_take_no_work_and_degraded_ones_are_told() -> None:
    reading = read([tray("n0", "a", "UNHEALTHY"), tray("n1", "a", "DEGRADED"), tray("n2", "a")])
    assert reading.domains == (DomainFacts("node", "n0", health=0.0),)
    assert reading.warnings == (
        "1 compute nodes are UNHEALTHY in NVLink: n0",
        "1 compute nodes are DEGRADED in NVLink: n1",
    )


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (graph([*DEVICES, device("other", 1) | {"id": "id-leaf1"}], LINKS), "compounded_nodes[2].id: found 'id-leaf1'"),
        ([tray("n0", "a"), tray("n0", "b")], "f0: [1].Name: found 'n0'"),
        ([tray("n0", "a") | {"Name": None}], "f0: [0].Name"),
        ([{"nodes": [{"name": "x", "tier": 1}]}], "f0: [0].nodes[0].id: found nothing"),
        ([{"nodes": "many"}], "f0: [0].nodes: found `many`; allowed: a list"),
        ([{"links": [{"interfaces": [{}, {}]}], "nodes": []}], "[0].links[0].interfaces[0].node"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_or_lacks_a_name_is_refused_with_its_place(
    answer: object, told: str
) -> None:
    with pytest.raises(BadFields) as caught:
        read(answer)
    assert told in str(caught.value)


@pytest.mark.parametrize("text", ["[]", "{}", '[{"a": 1}]', '[{"nodes": [], "links": []}]'])
def test_what_holds_no_device_is_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(BadInput, match="fetch-topology"):
        parse([(text, "f")])


RECORDS = [*graph(DEVICES, LINKS), tray("n0", "a"), tray("n1", "a")]
TEXT = json.dumps(RECORDS)
WORDS = [
    "null",
    "[]",
    "{}",
    "-1",
    "1e400",
    "true",
    '"id-n0"',
    '"nodes"',
    '"tier"',
    ",",
    ":",
    "]",
    "}",
    "9" * 30,
]


@settings(max_examples=examples(75), deadline=None)
@given(st.integers(0, len(TEXT)), st.integers(0, 40), st.sampled_from(WORDS) | st.text(max_size=4))
def test_damaged_text_raises_only_our_errors(start: int, length: int, filling: str) -> None:
    try:
        parse([(TEXT[:start] + filling + TEXT[start + length :], "fuzz")]).as_json()
    except GantreeError as error:
        assert "fuzz" in str(error)


def values(record: object) -> list[tuple[Any, Any]]:
    """All places in nested mappings and lists, as (container, key)."""
    found: list[tuple[Any, Any]] = []
    pairs = (
        record.items()
        if isinstance(record, dict)
        else enumerate(record)
        if isinstance(record, list)
        else ()
    )
    for key, value in pairs:
        found += [(record, key), *values(value)]
    return found


@settings(max_examples=examples(75), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 10_000),
            st.none() | st.integers(-9, 9) | st.text(max_size=5) | st.builds(list),
        ),
        max_size=5,
    )
)
def test_damaged_values_raise_only_our_errors(damages: list[tuple[int, Any]]) -> None:
    records = json.loads(TEXT)
    for which, value in damages:
        spots = values(records)
        container, key = spots[which % len(spots)]
        container[key] = value
    try:
        parse([(json.dumps(records), "fuzz")]).as_json()
    except GantreeError as error:
        assert "fuzz" in str(error)
