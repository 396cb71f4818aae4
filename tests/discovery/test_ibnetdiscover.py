"""Reading `ibnetdiscover`: the recorded dump against its verdict, printed fabrics read back, traps, and fuzz."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.errors import BadFields, BadInput, GantreeError
from gantree.topology.discovery.fabrics import FabricReading
from gantree.topology.discovery.networks.ibnetdiscover import parse
from gantree.topology.discovery.networks.infiniband import (
    cable_GBps,
    host_and_device,
    link_GBps,
    switch_name,
)
from support.examples import examples

SHARED = Path(__file__).parents[3] / "shared" / "data" / "topology" / "ibnetdiscover"


def recorded(name: str) -> str:
    path = SHARED / name
    if not path.exists():
        pytest.skip("needs ../shared/data/topology, whose prints carry no licence")
    return path.read_text()


@dataclass
class Printer:
    """A fabric that prints itself as ibnetdiscover would: devices by GUID, and both ends of each cable."""

    descriptions: dict[str, str] = field(default_factory=dict)
    cards: dict[str, str] = field(default_factory=dict)
    far: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)
    rate: str = "4xNDR"

    def add(self, kind: str, description: str, card: str = "") -> str:
        name = f"{kind}-{0x2C5EAB0300000000 + 16 * len(self.descriptions):016x}"
        self.descriptions[name] = description
        self.cards[name] = card or name[2:]
        return name

    def join(self, a: str, b: str) -> None:
        ends = []
        for name in (a, b):
            ends.append((name, 1 + max((port for at, port in self.far if at == name), default=0)))
            self.far[ends[-1]] = ("", 0)
        self.far[ends[0]], self.far[ends[1]] = ends[1], ends[0]

    def __str__(self) -> str:
        blocks = [
            self._block(name) for kind in "SHR" for name in self.descriptions if name[0] == kind
        ]
        return "#\n# Topology file: generated on Fri Aug  8 06:33:24 2025\n#\n" + "\n".join(blocks)

    def _block(self, name: str) -> str:
        guid, description = name[2:], self.descriptions[name]
        ids = f"vendid=0x2c9\ndevid=0xd2f2\nsysimgguid=0x{self.cards[name].lstrip('0')}\n"
        ports = [self._port(name, port) for at, port in self.far if at == name]
        if name[0] == "S":
            note = f'"{description}" enhanced port 0 lid 7 lmc 0'
            head = f'switchguid=0x{guid}({guid})\nSwitch\t65 "{name}"\t\t# {note}\n'
        else:
            word, noun = ("ca", "Ca") if name[0] == "H" else ("rt", "Rt")
            head = f'{word}guid=0x{guid}\n{noun}\t2 "{name}"\t\t# "{description}"\n'
        return "\n" + ids + head + "".join(ports)

    def _port(self, name: str, port: int) -> str:
        far, far_port = self.far[name, port]
        lids = "" if name[0] == "S" else "lid 5 lmc 0 "
        own = "" if name[0] == "S" else f"({self.port_guid(name, port)}) "
        other = "" if far[0] == "S" else f"({self.port_guid(far, far_port)}) "
        return f'[{port}]{own}\t"{far}"[{far_port}]{other}\t\t# {lids}"{self.descriptions[far]}" lid 9 {self.rate}\n'

    @staticmethod
    def port_guid(name: str, port: int) -> str:
        return f"{int(name[2:], 16) + port - 1:x}"


def rail_fabric(units: int = 2, rails: int = 2, hosts: int = 3, spines: int = 2) -> Printer:
    fabric = Printer()
    tops = [fabric.add("S", f"MF0;SPINE-{s}:MQM9701/U1") for s in range(spines)]
    for unit in range(units):
        for rail in range(rails):
            leaf = fabric.add("S", f"MF0;LEAF-{rail}-{unit}:MQM9701/U1")
            for top in tops:
                fabric.join(leaf, top)
                fabric.join(leaf, top)
            fabric.join(fabric.add("H", "Mellanox Technologies Aggregation Node"), leaf)
            for host in range(hosts):
                fabric.join(fabric.add("H", f"u{unit}n{host} mlx5_{rail}"), leaf)
    return fabric


def three_tiers(k: int) -> Printer:
    half, fabric = k // 2, Printer()
    cores = [[fabric.add("S", f"core-{s}-{c}") for c in range(half)] for s in range(half)]
    for pod in range(k):
        spines = [fabric.add("S", f"spine-{pod}-{s}") for s in range(half)]
        for spine, above in zip(spines, cores, strict=True):
            for core in above:
                fabric.join(spine, core)
        for number in range(half):
            leaf = fabric.add("S", f"leaf-{pod}-{number}")
            for spine in spines:
                fabric.join(leaf, spine)
            for host in range(half):
                fabric.join(fabric.add("H", f"h{pod}-{number}-{host} mlx5_0"), leaf)
    return fabric


def places(reading: FabricReading) -> dict[str, str]:
    return {node.name: "/".join(node.at) for node in reading.nodes}


def test_the_recorded_rail_fabric_gets_its_verdict() -> None:
    text = recorded("topograph-example.txt")
    reading = parse(text, "f")
    assert reading.tiers == ("spine", "leaf")
    assert len(reading.nodes) == 122
    leaves = {nic.switch for node in reading.nodes for nic in node.nics}
    assert len(leaves) == 31
    assert all(leaf and "-IBLEAF-" in leaf for leaf in leaves)
    assert {nic.bandwidth_GBps for node in reading.nodes for nic in node.nics} == {50.0}
    at_04 = [n for n in reading.nodes if any(nic.switch == "A09-P1-IBLEAF-04-04" for nic in n.nics)]
    assert {n.name for n in at_04} == {f"a08-p1-dgx-04-c{i:02d}" for i in range(1, 18)}
    assert {n.at[1] for n in at_04} == {"A09-P1-IBLEAF-x-04"}
    assert all([(x.name, x.rail) for x in n.nics] ==
               [("mlx5_0", 0), ("mlx5_1", 1), ("mlx5_4", 2), ("mlx5_5", 3)] for n in at_04)  # fmt: skip


def test_the_units_of_the_recorded_fabric_hold_its_rows_of_machines() -> None:
    reading = parse(recorded("topograph-example.txt"), "f")
    rows: dict[str, Counter[str]] = {}
    for node in reading.nodes:
        rows.setdefault(node.at[1], Counter())[node.name[:12]] += 1
    assert rows["A09-P1-IBLEAF-x-01"] == {"a05-p1-dgx-0": 10, "localhost": 1}
    assert rows["B09-P1-IBLEAF-x-08"] == {"b08-p1-dgx-0": 14, "ubuntu": 1, "B11-P1-CUFM-": 1}
    assert len(rows) == 8
    three = next(node for node in reading.nodes if node.name == "a05-p1-dgx-01-c01")
    assert [(nic.name, nic.rail) for nic in three.nics] == [
        ("HCA-1", 0),
        ("HCA-2", 1),
        ("HCA-6", 3),
    ]
    told = {facts.name.split("/")[1]: facts.uplink_GBps for facts in reading.domains}
    assert told["A09-P1-IBLEAF-x-04"] == 68 * 50.0


def test_what_is_odd_in_the_recorded_fabric_is_told() -> None:
    warnings = parse(recorded("topograph-example.txt"), "f").warnings
    assert len(warnings) == 2
    assert warnings[0].startswith("69 adapters do not say which host they are in")
    assert "each host's own reading" in warnings[0]
    assert "b08-p1-dgx-08-c01 HCA-5, b08-p1-dgx-08-c01 HCA-6" in warnings[1]


def test_machines_that_know_their_guids_join_the_recorded_fabric() -> None:
    text = recorded("topograph-example.txt")
    guids = ["e09d730300858d88", "0xE09D730300857448"]
    reading = parse(text, "f", dict.fromkeys(guids, "c05"))
    node = next(node for node in reading.nodes if node.name == "c05")
    assert [nic.guids[0] for nic in node.nics] == ["e09d730300857448", "e09d730300858d88"]
    assert node.at[1] == "A09-P1-IBLEAF-x-02"
    assert reading.warnings[0].startswith("67 adapters")


def test_the_recorded_dump_of_a_lone_adapter_is_refused_with_the_way_out() -> None:
    text = recorded("topograph-example-bad.txt")
    with pytest.raises(BadFields) as caught:
        parse(text, "bad.txt")
    assert "bad.txt:10: adapter H-b8e92403009ca838" in str(caught.value)
    assert "no switch" in str(caught.value)
    assert "ibstat" in str(caught.value)


def test_a_printed_rail_fabric_is_read_back() -> None:
    reading = parse(str(rail_fabric()), "f")
    assert places(reading) == {
        f"u{unit}n{n}": f"SPINE-x/LEAF-x-{unit}" for unit in range(2) for n in range(3)
    }
    assert all([nic.rail for nic in node.nics] == [0, 1] for node in reading.nodes)
    assert {facts.uplink_GBps for facts in reading.domains} == {8 * 50.0}
    assert reading.warnings == ()


@pytest.mark.parametrize("k", [4, 6])
def test_a_printed_fat_tree_of_three_tiers_is_read_back(k: int) -> None:
    reading = parse(str(three_tiers(k)), "f")
    assert reading.tiers == ("core", "spine", "leaf")
    assert len(reading.nodes) == k**3 // 4
    for node in reading.nodes:
        pod, leaf, _ = node.name[1:].split("-")
        assert node.at == ("core-x-x", f"spine-{pod}-x", f"leaf-{pod}-{leaf}")
    assert reading.warnings == ()


def grouped(text: str) -> str:
    """The same as -g prints it: chassis lines, a switch twice, external ports, notes after ids."""
    blocks = text.split("\n\n")
    switch = next(block for block in blocks if "Switch\t" in block)
    blocks.insert(
        1,
        "Chassis 1 (guid 0x2c5eab0300000000)\n\n# Spine Nodes\n"
        + switch.replace("]\t", "][ext 3]\t"),
    )
    noted = [
        block.replace(
            "sysimgguid=0x2c5eab0300000010", "sysimgguid=0x2c5eab0300000010\t\t# Chassis 1"
        )
        for block in blocks
    ]
    return "\n\n".join([*noted, "Non-Chassis Nodes"])  # fmt: skip


@pytest.mark.parametrize(
    "changed",
    [
        lambda text: "\ufeff" + text.replace("\n", "\r\n"),
        lambda text: text.replace("4xNDR\n", "4xNDR s=4 w=2 v=5\n"),
        lambda text: text + text,
        lambda text: text.replace("enhanced", "base"),
        grouped,
    ],
    ids=["crlf", "full", "twice", "base-port-0", "grouped"],
)
def test_the_same_fabric_is_read_however_it_was_printed(changed) -> None:  # type: ignore[no-untyped-def] # a table of lambdas
    text = str(rail_fabric())
    whole, found = parse(text, "f"), parse(changed(text), "f")
    assert found == whole


REPORT = """\
SW     3 65 0x2c5eab0300000010 4x NDR - CA     9  1 0x2c5eab0300000099 ( 'MF0;LEAF:MQM9701/U1' - 'Mellanox Technologies Aggregation Node' )
SW     3  3 0x2c5eab0300000010 4x SDR                                    'MF0;LEAF:MQM9701/U1'
SW     3  2 0x2c5eab0300000010 4x NDR - CA     7  1 0x2c5eab0300000020 ( 'MF0;LEAF:MQM9701/U1' - 'n1 mlx5_0' )
SW     3  1 0x2c5eab0300000010 4x NDR - CA     6  1 0x2c5eab0300000030 ( 'MF0;LEAF:MQM9701/U1' - 'n0 mlx5_0' )
CA     7  1 0x2c5eab0300000020 4x NDR - SW     3  2 0x2c5eab0300000010 ( 'n1 mlx5_0' - 'MF0;LEAF:MQM9701/U1' )
CA     6  1 0x2c5eab0300000030 4x NDR - SW     3  1 0x2c5eab0300000010 ( 'n0 mlx5_0' - 'MF0;LEAF:MQM9701/U1' )
"""  # noqa: E501 # lines as the tool prints them


def test_a_ports_report_is_read() -> None:
    reading = parse(REPORT, "f")
    assert sorted(places(reading).items()) == [("n0", "LEAF"), ("n1", "LEAF")]
    assert reading.nodes[0].nics[0].bandwidth_GBps == 50.0
    assert reading.warnings == ("1 cables are told at one end only: the print was cut",)


def test_routers_and_noise_are_passed_over_and_told() -> None:
    fabric = rail_fabric()
    router = fabric.add("R", "SwitchIB Router")
    fabric.join(router, next(name for name, d in fabric.descriptions.items() if "LEAF-0-0" in d))
    found = parse("ibwarn: [12] discover: timeout\n" + str(fabric), "f")
    whole = parse(str(rail_fabric()), "f")
    assert places(found) == places(whole)
    assert "1 line is none of ibnetdiscover's" in found.warnings[0]
    assert "cables lead to routers" in found.warnings[1]


def test_a_dump_that_was_cut_keeps_its_fabric_and_says_so() -> None:
    text = str(rail_fabric())
    found = parse(text[: text.index("\nvendid", text.index("Ca\t"))], "f")
    assert places(found) == places(parse(text, "f"))
    assert any(told.endswith("one end only: the print was cut") for told in found.warnings)


def test_the_hosts_of_unnamed_adapters_come_from_their_card_or_from_the_caller() -> None:
    fabric = Printer()
    leaf = fabric.add("S", "leaf")
    bare = "MT4129 ConnectX7   Mellanox Technologies"
    named = fabric.add("H", "n0 mlx5_0")
    fabric.join(named, leaf)
    fabric.join(fabric.add("H", bare, card=named[2:]), leaf)
    stranger = fabric.add("H", bare)
    fabric.join(stranger, leaf)
    reading = parse(str(fabric), "f")
    assert [(node.name, len(node.nics)) for node in reading.nodes] == [("n0", 2)]
    assert any(
        "1 adapters without a host name are in the host of" in told for told in reading.inferred
    )
    assert any(told.startswith("1 adapters do not say") for told in reading.warnings)
    known = parse(str(fabric), "f", {stranger[2:]: "n7"})
    assert [(node.name, len(node.nics)) for node in known.nodes] == [("n0", 2), ("n7", 1)]
    assert known.warnings == ()


def test_the_machine_that_has_a_guid_is_believed_before_the_description() -> None:
    fabric = Printer()
    leaf = fabric.add("S", "leaf")
    adapter = fabric.add("H", "localhost mlx5_0")
    fabric.join(adapter, leaf)
    reading = parse(str(fabric), "f", {adapter[2:]: "n3"})
    assert [node.name for node in reading.nodes] == ["n3"]
    assert "1 adapters call themselves something else" in reading.warnings[0]


def test_machines_that_share_a_name_are_left_out_until_their_guids_are_known() -> None:
    fabric = Printer()
    leaf = fabric.add("S", "leaf")
    twins = [fabric.add("H", "localhost mlx5_0") for _ in range(2)]
    for adapter in (*twins, fabric.add("H", "n0 mlx5_0")):
        fabric.join(adapter, leaf)
    reading = parse(str(fabric), "f")
    assert [node.name for node in reading.nodes] == ["n0"]
    assert "2 adapters claim to be in 'localhost'" in reading.warnings[0]
    known = parse(str(fabric), "f", {guid[2:]: f"m{i}" for i, guid in enumerate(twins)})
    assert [node.name for node in known.nodes] == ["m0", "m1", "n0"]


def test_two_ports_of_an_adapter_are_two_nics() -> None:
    fabric = Printer()
    leaves = [fabric.add("S", f"leaf{i}") for i in range(2)]
    adapter = fabric.add("H", "n0 mlx4_0")
    for leaf in leaves:
        fabric.join(adapter, leaf)
    (node,) = parse(str(fabric), "f").nodes
    assert [(nic.name, nic.switch) for nic in node.nics] == [
        ("mlx4_0:1", "leaf0"),
        ("mlx4_0:2", "leaf1"),
    ]
    assert node.nics[1].guids == (f"{int(adapter[2:], 16) + 1:016x}", adapter[2:])


def test_guids_are_sixteen_digits_however_they_are_printed() -> None:
    text = str(rail_fabric(units=1, rails=1, hosts=1)).replace("2c5eab03", "00000003")
    reading = parse(text.replace("(00000003", "(3"), "f", {"300000040": "known"})
    (node,) = reading.nodes
    assert node.name == "known"
    assert all(len(guid) == 16 for nic in node.nics for guid in nic.guids)


def test_an_aggregation_node_is_known_by_its_device_too() -> None:
    text = str(rail_fabric()).replace("Mellanox Technologies Aggregation Node", "sharp-an")
    assert "sharp-an" in places(parse(text, "f"))
    blocks = [
        b.replace("0xd2f2", "0xcf09") if '# "sharp-an"' in b and "Ca\t" in b else b
        for b in text.split("\n\n")
    ]
    assert places(parse("\n\n".join(blocks), "f")) == places(parse(str(rail_fabric()), "f"))


def test_an_adapter_without_a_cable_leaves_its_host_alone() -> None:
    fabric = rail_fabric()
    fabric.add("H", "lost mlx5_0")
    reading = parse(str(fabric), "f")
    assert places(reading)["lost"] == "lost/lost"
    assert any("1 host on no switch" in told for told in reading.warnings)


BACK_TO_BACK = """\
vendid=0x02c9
devid=0x1017
sysimgguid=0xa088c20300ab0000
caguid=0xa088c20300ab0000
Ca\t1 "H-a088c20300ab0000"\t\t# "node-a mlx5_0"
[1](a088c20300ab0001) \t"H-a088c20300bb0000"[1](a088c20300bb0001)\t\t# lid 1 lmc 0 "node-b mlx5_0" lid 2 4xEDR
"""


@pytest.mark.parametrize("prefix", ["", "0x"])
def test_two_hosts_without_a_switch_are_two_nodes_apart(prefix: str) -> None:
    text = BACK_TO_BACK.replace('"H-', f'"H-{prefix}').replace("](", f"]({prefix}")
    reading = parse(text, "f")
    assert [(node.name, node.at) for node in reading.nodes] == [("node-a", ()), ("node-b", ())]
    assert any("1 cables join two hosts without a switch" in told for told in reading.warnings)


def test_adapters_without_a_host_are_counted_not_their_ports() -> None:
    fabric = rail_fabric()
    leaf = fabric.add("S", "leaf-z")
    card = fabric.add("H", "MT23108 InfiniHost Mellanox Technologies")
    fabric.join(leaf, card)
    fabric.join(leaf, card)
    assert any(w.startswith("1 adapters do not say") for w in parse(str(fabric), "f").warnings)


def line_of(text: str, words: str) -> int:
    return next(n for n, line in enumerate(text.split("\n"), 1) if words in line)


def test_a_port_with_two_cables_is_refused_with_both_lines() -> None:
    text = str(rail_fabric())
    line = next(line for line in text.split("\n") if line.startswith("[2]"))
    twice = text.replace(line, line + "\n" + line.replace('"[', '"[1'), 1)
    with pytest.raises(BadFields) as caught:
        parse(twice, "f")
    first = line_of(twice, line)
    assert f"f:{first + 1}: port " in str(caught.value)
    assert f"as in line {first}" in str(caught.value)


def test_ends_that_name_other_ports_are_refused_with_both_lines() -> None:
    fabric = rail_fabric()
    name = next(name for name, d in fabric.descriptions.items() if d == "u0n0 mlx5_0")
    text = str(fabric)
    at = line_of(text, f'Ca\t2 "{name}"') + 1
    lines = text.split("\n")
    lines[at - 1] = lines[at - 1].replace('"[6]', '"[60]')
    assert lines[at - 1] != text.split("\n")[at - 1]
    with pytest.raises(BadFields) as caught:
        parse("\n".join(lines), "f")
    assert f"f:{at}: port {name}[1]" in str(caught.value)


def test_a_guid_with_two_names_is_refused_with_both_lines() -> None:
    text = str(rail_fabric())
    other = text.replace("u0n0 mlx5_0", "u0n9 mlx5_0")
    with pytest.raises(BadFields, match="'u0n9 mlx5_0'; allowed: 'u0n0 mlx5_0', as in line"):
        parse(text + other, "f")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no `ibnetdiscover` print"),
        ("hello\nworld", "no `ibnetdiscover` print"),
        ('Switch\t : 0x2c5eab0300000010 ports 65 devid 0xd2f2 vendid 0x2c9 "leaf"', "a list of `ibnetdiscover -l`"),
        ("< vendid=0x2c9\n", "--diff"),
        ("CA Name: mlx5_0", "no `ibnetdiscover` print"),
    ],
)  # fmt: skip
def test_what_shows_no_cables_is_named(text: str, told: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(text, "f")
    assert told in str(caught.value)
    assert "f:" in str(caught.value)


@pytest.mark.parametrize(
    ("width", "speed", "GBps"),
    [
        ("4x", "NDR", 50.0), ("4x", "HDR", 25.0), ("4x", "EDR", 12.5), ("4x", "XDR", 100.0), ("2x", "HDR", 12.5),
        ("4x", "QDR", 4.0), ("12x", "QDR", 12.0), ("1x", "SDR", 0.25), ("4x", "FDR10", 5.0), ("8x", "DDR", 4.0),
        ("IB_4x", "ndr", 50.0), ("??", "NDR", None), ("4x", "???", None), ("3x", "NDR", None),
    ],
)  # fmt: skip
def test_rates_are_those_of_data(width: str, speed: str, GBps: float | None) -> None:
    assert link_GBps(width, speed) == GBps


def test_a_lane_of_fdr_is_what_is_left_of_14_0625_Gbps_after_coding() -> None:
    assert link_GBps("4x", "FDR") == pytest.approx(4 * 14.0625 * 64 / 66 / 8)


@pytest.mark.parametrize(
    ("ends", "GBps"),
    [
        ([("4x", "NDR"), ("4x", "NDR")], 50.0),
        ([("4x", "NDR"), ("4x", "HDR")], 25.0),
        ([("4x", "NDR"), ("2x", "NDR")], 25.0),
        ([("4x", "QDR"), ("4x", "EDR")], 12.5),
        ([("4x", "???"), ("4x", "EDR")], 12.5),
        ([("4x", "???")], None),
        ([], None),
    ],
)
def test_ends_that_differ_in_speed_give_the_later_word_or_the_slower_rate(
    ends: list[tuple[str, str]], GBps: float | None
) -> None:
    assert cable_GBps(ends) == GBps


@pytest.mark.parametrize(
    ("description", "told"),
    [
        ("a08-p1-dgx-04-c01 mlx5_5", ("host", "a08-p1-dgx-04-c01", "mlx5_5")),
        ("n01.site.org HCA-6", ("host", "n01.site.org", "HCA-6")),
        ("node01", ("host", "node01", "")),
        ("'n01 HCA-1'", ("host", "n01", "HCA-1")),
        ("n01 HCA-1 (Mellanox HCA)", ("host", "n01", "HCA-1")),
        ("rack 7 n01 hfi1_0", ("host", "rack-7-n01", "hfi1_0")),
        ("MT4129 ConnectX7   Mellanox Technologies", ("unnamed", "", "")),
        ("MT25408 ConnectX Mellanox Technologies", ("unnamed", "", "")),
        ("QLogic Infiniband HCA", ("unnamed", "", "")),
        ("Mellanox Technologies Aggregation Node", ("sharp", "", "")),
        ("Quantum Mellanox Technologies Aggregation Node", ("sharp", "", "")),
        ("mlx5_0", ("unnamed", "", "")),
        ("", ("unnamed", "", "")),
        ("((( mlx5_0", ("unnamed", "", "")),
    ],
)  # fmt: skip
def test_a_node_description_tells_host_and_device_or_neither(
    description: str, told: tuple[str, str, str]
) -> None:
    assert host_and_device(description) == told


@pytest.mark.parametrize(
    ("description", "name"),
    [
        ("MF0;A09-P1-IBLEAF-04-04:MQM9701/U1", "A09-P1-IBLEAF-04-04"),
        ("MF0;dir1:CS7500/L01/U1", "dir1-L01-U1"),
        ("leaf-7", "leaf-7"),
        ("Quantum Mellanox Technologies", ""),
        ("SwitchIB Mellanox Technologies", ""),
    ],
)
def test_a_switch_is_called_after_its_own_name_and_not_its_model(
    description: str, name: str
) -> None:
    assert switch_name(description) == name


TEXT = str(rail_fabric(hosts=2))
WHOLE = places(parse(TEXT, "f"))
LINES = TEXT.split("\n")


@settings(max_examples=examples(75), deadline=None)
@given(st.integers(0, len(TEXT)), st.integers(0, len(TEXT)), st.text(max_size=6))
def test_a_damaged_dump_is_refused_or_read(start: int, end: int, filling: str) -> None:
    start, end = min(start, end), max(start, end)
    try:
        reading = parse(TEXT[:start] + filling + TEXT[end:], "fuzz")
    except GantreeError as error:
        assert "fuzz" in str(error)
    else:
        reading.as_json()


@settings(max_examples=examples(75), deadline=None)
@given(st.integers(0, len(TEXT)))
def test_a_dump_cut_at_its_end_places_no_host_elsewhere(end: int) -> None:
    try:
        reading = parse(TEXT[:end], "f")
    except GantreeError:
        return
    switches = {nic.switch for node in reading.nodes for nic in node.nics}
    assert {node.name for node in reading.nodes} <= set(WHOLE)
    assert all(switch is None or switch.startswith("LEAF") for switch in switches)


@settings(max_examples=examples(75), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, len(LINES) - 1), st.integers(0, len(LINES) - 1)), max_size=6)
)
def test_moved_doubled_and_dropped_lines_raise_only_our_errors(
    moves: list[tuple[int, int]],
) -> None:
    lines = list(LINES)
    for a, b in moves:
        lines[a % len(lines)] = lines[b % len(lines)]
    try:
        parse("\n".join(lines), "f").as_json()
    except GantreeError:
        return


@settings(max_examples=examples(50), deadline=None)
@given(st.text())
def test_no_text_raises_anything_but_our_errors(text: str) -> None:
    with pytest.raises(BadInput):
        parse(text, "f")
