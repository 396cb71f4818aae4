"""Reading UFM's REST answers: one fabric told as ports, as links, in pages and merged, a table of traps, and fuzz.

Records have the fields that the UFM Enterprise REST API Guide shows for GET resources/{systems, ports, links}.
"""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.errors import BadFields, BadInput, GantreeError
from gantree.topology.discovery.fabrics import FabricReading
from gantree.topology.discovery.networks.ufm import parse
from support.examples import examples
from support.ufm import Json, fabric

SYSTEMS, PORTS, LINKS = fabric()
PLACES = {f"u{u}n{h}": ("spine-x", f"leaf-x-{u}") for u in range(2) for h in range(2)}


def read(*answers: object) -> FabricReading:
    return parse([(json.dumps(answer), f"f{i}") for i, answer in enumerate(answers)])


def places(reading: FabricReading) -> dict[str, tuple[str, ...]]:
    return {node.name: node.at for node in reading.nodes}


def changed(which: int, **fields: object) -> list[Json]:
    return [record | fields if i == which else record for i, record in enumerate(PORTS)]


def test_ports_alone_tell_the_whole_fabric() -> None:
    reading = read(PORTS)
    assert reading.tiers == ("spine", "leaf")
    assert places(reading) == PLACES
    nics = reading.nodes[0].nics
    assert [(nic.name, nic.rail, nic.switch, nic.bandwidth_GBps) for nic in nics] == [
        ("mlx5_0", 0, "leaf-0-0", 50.0),
        ("mlx5_1", 1, "leaf-1-0", 50.0),
    ]
    assert nics[0].guids == ("0000000000001000",)
    assert {facts.uplink_GBps for facts in reading.domains} == {200.0}
    assert reading.warnings == ()


@pytest.mark.parametrize(
    "answers",
    [
        (SYSTEMS, PORTS, LINKS),
        (LINKS, PORTS),
        ({"systems": SYSTEMS, "ports": PORTS, "links": LINKS},),
        ({"data": PORTS, "filtered_resources": len(PORTS)},),
        (PORTS[:7], PORTS[7:]),
        ([s | {"ports": [p for p in PORTS if p["systemID"] == s["guid"]]} for s in SYSTEMS],),
        ([{k: v for k, v in p.items() if not k.startswith("peer_")} for p in PORTS],),
        ([{k: v for k, v in p.items() if k != "peer"} for p in PORTS],),
        ([p for p in PORTS if p["description"].startswith("Computer") or p["system_name"].startswith("leaf")],),
    ],
    ids=["three-files", "links-first", "merged", "page", "two-files", "inside-systems", "no-peer-fields", "no-peer",
         "without-spines"],
)  # fmt: skip
def test_the_same_fabric_is_read_however_it_was_asked_for(answers: tuple[object, ...]) -> None:
    reading = read(*answers)
    assert places(reading) == PLACES
    assert reading.nodes == read(PORTS).nodes
    assert reading.warnings == ()


def test_links_alone_tell_places_but_no_rates_and_what_was_concluded() -> None:
    reading = read(LINKS)
    assert {name: at[1] for name, at in places(reading).items()} == {
        name: at[1] for name, at in PLACES.items()
    }
    assert {nic.bandwidth_GBps for node in reading.nodes for nic in node.nics} == {None}
    assert reading.domains == ()
    assert "concluded from their descriptions" in reading.inferred[0]
    assert any("capacity of 2 domains is not known" in told for told in reading.warnings)


def test_links_with_systems_conclude_nothing_from_descriptions() -> None:
    bare = [{k: v for k, v in each.items() if "description" not in k} for each in LINKS]
    reading = read(SYSTEMS, bare)
    assert places(reading) == PLACES
    assert not any("descriptions" in told for told in reading.inferred)


def test_links_of_old_versions_without_port_names_are_read() -> None:
    old = [
        {k: v for k, v in each.items() if "port_name" not in k} | {"width": "IB_4x"}
        for each in LINKS
    ]
    assert places(read(SYSTEMS, old)) == PLACES


def test_a_port_that_is_not_active_holds_no_cable() -> None:
    up = next(
        i
        for i, p in enumerate(PORTS)
        if p["system_name"] == "leaf-0-0" and p["peer_node_name"] == "spine-a"
    )
    reading = read(changed(up, logical_state="Down", physical_state="Polling"))
    assert {facts.name.split("/")[1]: facts.uplink_GBps for facts in reading.domains} == {
        "leaf-x-0": 150.0,
        "leaf-x-1": 200.0,
    }
    assert "1 ports are not active" in reading.warnings
    assert "1 cables are down and join nothing" in reading.warnings


def test_peers_that_are_known_by_their_labels_only_are_found() -> None:
    labelled = [
        {k: v for k, v in p.items() if k != "peer"}
        | {"dname": f"1/{p['number']}/1", "peer_port_dname": f"1/{p['peer_port_dname']}/1"}
        for p in PORTS
    ]
    assert places(read(labelled)) == PLACES


def test_unplugged_ports_are_no_cables() -> None:
    spare = PORTS[0] | {"name": "00000000000000a0_60", "number": 60, "logical_state": "Down", "peer": "N/A",
                        "peer_guid": "N/A", "peer_node_guid": "N/A", "peer_port_dname": "N/A", "active_speed": None,
                        "active_width": None}  # fmt: skip
    assert places(read([*PORTS, spare])) == PLACES


def test_severities_are_told_and_break_nothing() -> None:
    reading = read(
        [s | {"severity": "Critical"} if s["system_name"] == "leaf-0-0" else s for s in SYSTEMS],
        PORTS,
    )
    assert reading.warnings == ("UFM reports 1 systems of severity Critical: leaf-0-0",)
    assert {facts.health for facts in reading.domains} == {1.0}


def test_pages_that_are_missing_are_told() -> None:
    reading = read({"data": PORTS, "filtered_resources": len(PORTS) + 5, "num_of_pages": 2})
    assert "5 records are on pages that were not given" in reading.warnings


def test_sharp_is_no_host_and_adapters_without_a_name_are_told() -> None:
    first = next(i for i, p in enumerate(PORTS) if p["system_name"] == "u0n0")
    sharp = read(changed(first, node_description="Mellanox Technologies Aggregation Node"))
    assert [nic.name for nic in sharp.nodes[0].nics] == ["mlx5_1"]
    bare = {
        "node_description": "MT4129 ConnectX7   Mellanox Technologies",
        "system_name": "MT4129 ConnectX7   Mellanox Technologies",
    }
    reading = read(changed(first, **bare))
    assert any(told.startswith("1 adapters do not say which host") for told in reading.warnings)
    known = parse([(json.dumps(changed(first, **bare)), "f")], {PORTS[first]["guid"]: "u0n0"})
    assert places(known) == PLACES


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ((changed(0, peer="00000000000000f1_1"),), "f0: [1].peer: found port 00000000000000f0_1 joined"),
        ((PORTS, [LINKS[0] | {"destination_port_name": "00000000000000f1_1"}]), "f1: [0].source_port_name"),
        (([*PORTS, PORTS[0] | {"peer": "00000000000000f1_40"}],), "a0_1 joined to 00000000000000f1_40"),
        ((changed(0, name="leaf", guid="N/A"),), "f0: [0].name: found 'leaf'"),
        (([LINKS[0] | {"source_port_name": "N/A", "name": "x", "source_guid": "?"}],), "found a link whose ends"),
        ((changed(0, system_name="other"),), "f0: [2].system_name: found 'leaf-0-0'; allowed: 'other'"),
        (([SYSTEMS[0], SYSTEMS[0] | {"system_name": "other"}], PORTS), "f0: [1].system_name: found 'other'"),
    ],
)  # fmt: skip
def test_contradictions_are_refused_with_their_places(
    answers: tuple[object, ...], told: str
) -> None:
    with pytest.raises(BadFields) as caught:
        read(*answers)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "f:1: document"),
        ("[]", "no UFM system, port or link"),
        ('[{"a": 1}]', "no UFM system, port or link"),
        (json.dumps(SYSTEMS), "systems, which tell no cables"),
        ("3", "a mapping or a list"),
    ],
)
def test_what_tells_no_cables_is_refused_with_the_way_out(text: str, told: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse([(text, "f")])
    assert told in str(caught.value)


def test_no_file_is_refused() -> None:
    with pytest.raises(BadInput, match="no file"):
        parse([])


VALUES = st.one_of(st.none(), st.booleans(), st.integers(-5, 10**20), st.text(max_size=8), st.just([1]),
                   st.sampled_from(["N/A", "Active", "Switch IB Port", "00000000000000a0_1", "00000000000000a0", "4x"]),
                   st.dictionaries(st.text(max_size=3), st.integers(), max_size=2))  # fmt: skip
RECORDS = [*SYSTEMS, *PORTS, *LINKS]


@settings(max_examples=examples(75), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, len(RECORDS) - 1), st.integers(0, 40), VALUES),
        min_size=1,
        max_size=6,
    )
)
def test_damaged_records_raise_only_our_errors(damages: list[tuple[int, int, Any]]) -> None:
    records = [dict(record) for record in RECORDS]
    for which, key, value in damages:
        names = sorted(records[which])
        records[which][names[key % len(names)]] = value
    try:
        parse([(json.dumps(records), "fuzz")]).as_json()
    except GantreeError as error:
        assert "fuzz" in str(error)


@settings(max_examples=examples(50), deadline=None)
@given(st.integers(0, 3000), st.integers(0, 3000), st.text(max_size=4))
def test_damaged_text_raises_only_our_errors(start: int, end: int, filling: str) -> None:
    text = json.dumps(PORTS[:3])
    try:
        parse([(text[: min(start, end)] + filling + text[max(start, end) :], "fuzz")]).as_json()
    except GantreeError as error:
        assert "fuzz" in str(error)
