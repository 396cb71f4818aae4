"""Reading NCCL and RCCL topology files: collected machines against their verdicts, a table of traps, and fuzz."""

from itertools import combinations
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.errors import BadFields, BadInput, GantreeError
from gantree.topology.discovery.gpus import GpuTopology, machine_from
from gantree.topology.discovery.machines.nccl.nccl_xml import parse
from support.damage import damaged, told_machine
from support.examples import examples

SHARED = Path(__file__).parents[3] / "shared" / "data" / "topology"


def sample(name: str) -> GpuTopology:
    path = SHARED / name
    if not path.exists():
        pytest.skip("needs ../shared/data/topology, whose files carry no licence")
    return parse(path.read_text(), path.name)


def classes(found: GpuTopology) -> dict[str, list[tuple[int, int]]]:
    """Pairs of GPUs by link class."""
    pairs: dict[str, list[tuple[int, int]]] = {}
    for a, b in combinations(range(found.gpus), 2):
        assert found.links[a][b] == found.links[b][a]
        pairs.setdefault(str(found.links[a][b]), []).append((a, b))
    return pairs


def test_p4d_has_two_gpus_and_a_nic_below_each_switch() -> None:
    found = sample("nccl-xml/aws-p4d-24xl-topo.xml")
    assert found.numa == (0, 0, 0, 0, 1, 1, 1, 1)
    assert classes(found)["PIX"] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert found.nearest_nics() == tuple(
        (f"0000:{bus}:1b.0",) for bus in ("10", "10", "20", "20", "90", "90", "a0", "a0")
    )
    assert set(found.model_of_gpu) == {"A100-40GB"}
    assert found.cpu_sets[0] == ((0, 23), (48, 71))
    assert "no NVLink" in " ".join(found.warnings)


def test_p5_has_four_nics_of_100_Gbps_for_each_gpu() -> None:
    found = sample("nccl-xml/aws-p5.48xl-topo.xml")
    assert (found.gpus, len(found.nics), set(found.numa)) == (8, 32, {0})
    assert set(found.GBps_of_nic) == {12.5}
    nearest = found.nearest_nics()
    assert nearest[0] == ("rdmap79s0", "rdmap80s0", "rdmap81s0", "rdmap82s0")
    assert sorted(nic for names in nearest for nic in names) == sorted(found.nics)
    assert machine_from(found, "p5").nics[31].near == (7,)
    assert found.guid_of_nic == ()  # 0, 1, 2... are no GUIDs
    assert set(found.model_of_gpu) == {None}
    assert "the Hopper architecture" in " ".join(found.inferred)


def test_g5_leaves_all_to_the_machine() -> None:
    found = sample("nccl-xml/aws-g5.48xl-topo.xml")
    assert found.gpus == 0
    assert "9 PCI devices have no class" in " ".join(found.warnings)


def test_ndv2_has_no_switches_and_one_nic() -> None:
    found = sample("nccl-xml/azure-ndv2-topo.xml")
    assert found.numa == (0, 0, 0, 0, 1, 1, 1, 1)
    assert {link: len(pairs) for link, pairs in classes(found).items()} == {"NODE": 12, "SYS": 16}
    assert found.nics == ("0101:00:00.0",)
    assert [row[0] for row in found.nic_links] == ["NODE"] * 4 + ["SYS"] * 4
    assert machine_from(found, "ndv2").nics[0].near == (0, 1, 2, 3)


def test_ndv4_numbers_gpus_by_bus_id_though_the_file_begins_with_others() -> None:
    found = sample("nccl-xml/azure-ndv4-topo.xml")
    domains = ["0001", "0002", "0003", "0004", "000b", "000c", "000d", "000e"]
    assert found.bus_id_of_gpu == tuple(f"{domain}:00:00.0" for domain in domains)
    assert found.numa == (1, 1, 0, 0, 3, 3, 2, 2)
    assert classes(found)["PIX"] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    nics = [("0101", "0102"), ("0103", "0104"), ("0105", "0106"), ("0107", "0108")]
    assert found.nearest_nics() == tuple(
        tuple(f"{domain}:00:00.0" for domain in nics[gpu // 2]) for gpu in range(8)
    )


def test_ncv4_has_bridged_pairs_and_says_that_it_concluded_so() -> None:
    found = sample("nccl-xml/azure-ncv4-topo.xml")
    assert found.numa == (0, 1, 2, 3)
    assert classes(found)["NV12"] == [(0, 1), (2, 3)]
    assert found.nvlink_islands() == ((0, 1), (2, 3))
    assert set(found.model_of_gpu) == {"A100-80GB"}
    assert "taken as bridges between neighbouring GPUs" in " ".join(found.inferred)
    assert [row[0] for row in found.nic_links] == ["NODE", "SYS", "SYS", "SYS"]


@pytest.mark.parametrize("name", ["", "-kubernetes"])
def test_oracle_h100_has_nvswitches_and_two_ports_for_each_gpu(name: str) -> None:
    found = sample(f"nccl-xml/oracle-quickstart-H100-topology{name}.xml")
    assert found.numa == (0, 0, 0, 0, 1, 1, 1, 1)
    assert list(classes(found)) == ["NV18"]
    assert (len(found.nics), set(found.model_of_gpu)) == (16, {"H100-80GB"})
    for gpu, names in enumerate(found.nearest_nics()):
        assert len(names) == 2
        assert {found.nic_links[gpu][found.nics.index(nic)] for nic in names} == {"PIX"}
    assert found.guid_of_nic == ()  # both ports write the card's
    assert not found.warnings


def test_oracle_a100_has_numa_nodes_in_no_order() -> None:
    found = sample("nccl-xml/oracle-quickstart-topo-flattened.xml")
    assert found.numa == (3, 3, 1, 1, 7, 7, 5, 5)
    assert [len(names) for names in found.nearest_nics()] == [2] * 8
    assert found.nearest_nics()[2] == ("0000:48:00.0", "0000:4c:00.0")
    assert found.cpu_sets[0] == ((24, 31), (88, 95))


def test_gfx90a_has_three_links_a_gpu_and_hops_over_peers_otherwise() -> None:
    found = sample("rccl-xml/topo_8p_90a.xml")
    assert [row.count("XGMI1") for row in found.links] == [3] * 8
    assert {link: len(pairs) for link, pairs in classes(found).items()} == {"XGMI1": 12, "PHB": 16}
    assert "16 pairs of GPUs have no link of their own" in found.inferred[0]
    assert set(found.model_of_gpu) == {None}
    assert "gfx90a" in " ".join(found.inferred)


def test_gfx942_is_a_full_mesh_with_a_nic_for_each_gpu() -> None:
    found = sample("rccl-xml/topo_8p_940.xml")
    assert list(classes(found)) == ["XGMI1"]
    assert found.numa == (0, 0, 0, 0, 1, 1, 1, 1)
    assert found.nearest_nics() == tuple((f"mlx5_{gpu}",) for gpu in range(8))
    assert set(found.GBps_of_nic) == {50.0}
    assert set(found.model_of_gpu) == {"MI300X-192GB"}
    assert not any("hop over" in said for said in found.inferred)


def test_apus_keep_their_order_and_kb_s_are_seen() -> None:
    found = sample("rccl-xml/topo_4p_940.xml")
    assert found.numa == (2, 3, 0, 1)
    assert found.nearest_nics() == (("cxi0",), ("cxi1",), ("cxi2",), ("cxi3",))
    assert found.GBps_of_nic == (25.0,) * 4
    assert "taken as kb/s: cxi0 (200000000)" in " ".join(found.inferred)


def test_older_amd_boxes_have_rings_a_cut_mesh_and_plain_pcie() -> None:
    rome = sample("rccl-xml/topo_8p_rome.xml")
    assert rome.nvlink_islands() == ((0, 1, 3, 5), (2, 4, 6, 7))
    mesh = sample("rccl-xml/topo_8p6l.xml")
    assert classes(mesh)["SYS"] == [(0, 5), (1, 4), (2, 7), (3, 6)]
    pcie = sample("rccl-xml/topo_8p_pcie.xml")
    assert {link: len(pairs) for link, pairs in classes(pcie).items()} == {"PXB": 12, "PHB": 16}
    assert [row[0] for row in pcie.nic_links] == ["PXB"] * 4 + ["PHB"] * 4
    assert pcie.guid_of_nic == ("b8599f030007053a",)  # Mellanox's b8:59:9f


def gpu(bus: str, dev: int | str = "", *inside: str, **attributes: str) -> str:
    """A <pci> with a <gpu>; bus "1b" is 0000:1b:00.0."""
    more = "".join(f' {name}="{value}"' for name, value in attributes.items())
    return f'<pci busid="0000:{bus}:00.0" class="0x030200"><gpu dev="{dev}"{more}>{"".join(inside)}</gpu></pci>'


def nvlink(bus: str, count: int, tclass: str = "0x030200") -> str:
    return f'<nvlink target="0000:{bus}:00.0" count="{count}" tclass="{tclass}"/>'


def net(name: str, **attributes: str) -> str:
    more = "".join(f' {key}="{value}"' for key, value in attributes.items())
    return f'<net name="{name}"{more}/>'


def system(*inside: str, cpu: str = 'numaid="0" affinity="ff"') -> str:
    return f'<system version="1">\n<cpu {cpu}>\n' + "\n".join(inside) + "\n</cpu>\n</system>\n"


ONE, TWO = gpu("01", 0), gpu("02", 1)


def links(text: str) -> tuple[tuple[str | None, ...], ...]:
    return parse(text, "f").links


SWITCH = "0x068000"


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ([gpu("01", 0, nvlink("02", 2)), gpu("02", 1, nvlink("01", 2))], "NV2"),
        ([gpu("01", 0, nvlink("02", 2), nvlink("02", 2)), gpu("02", 1, nvlink("01", 4))], "NV4"),
        ([gpu("01", 0, nvlink("d0", 5, SWITCH), nvlink("d1", 4, SWITCH)),
          gpu("02", 1, nvlink("d0", 4, SWITCH), nvlink("d1", 5, SWITCH))], "NV9"),
        ([gpu("01", 0, '<nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/>'),
          gpu("02", 1, '<nvlink target="fffffff:ff:ff.0" count="18" tclass="0x068000"/>')], "NV18"),
        ([gpu("01", 0, nvlink("02", 2, "0x03"), '<c2c bw="400" count="2"/>'), gpu("02", 1, nvlink("01", 2))], "NV2"),
        ([gpu("01", 0, '<nvlink target="00000000:02:00.0" count="1"/>'), gpu("02", 1, nvlink("01", 1))], "NV1"),
        ([gpu("01", 0, nvlink("d0", 3, "0x068001")), gpu("02", 1, nvlink("d0", 3, "0x068001"))], "PHB"),
        ([gpu("01", 0, nvlink("02", 0)), gpu("02", 1)], "PHB"),
        ([gpu("01", 0, '<xgmi target="0000:02:00.0" count="2" tclass="0x120000"/>'),
          gpu("02", 1, '<xgmi target="0000:01:00.0" count="2" tclass="0x120000"/>')], "XGMI2"),
    ],
    ids=["pair", "two-lines", "switches", "unseen-switch", "c2c", "long-bus-id", "to-power-cpu", "no-links", "xgmi"],
)  # fmt: skip
def test_links_are_counted_by_what_they_end_in(inside: list[str], expected: str) -> None:
    assert links(system(*inside)) == (("X", expected), (expected, "X"))


@pytest.mark.parametrize(
    ("inside", "expected", "told"),
    [
        ([gpu("01", 0, nvlink("02", 4)), gpu("02", 1, nvlink("01", 3))], "NV3", "GPU0 tells of 4 links to GPU1"),
        ([gpu("01", 0), gpu("02", 1, nvlink("01", 3))], "NV3", "GPU1 tells of 3 links to GPU0, GPU0 of 0"),
        ([gpu("01", 0, nvlink("09", 4)), gpu("02", 1)], "PHB", "GPU0: 4 links end in GPUs that the file does not"),
        ([gpu("01", 0, nvlink("01", 4)), gpu("02", 1)], "PHB", "NVLinks of a GPU to itself: GPU0 4"),
        ([gpu("01", 0, nvlink("d0", 18, SWITCH)), gpu("02", 1)], "PHB", "GPU1 has 0 links into NVSwitches, others"),
        ([gpu("01", 4), gpu("02", 6)], "PHB", "no NVLink or xGMI link"),
    ],
)  # fmt: skip
def test_odd_links_are_warned_of(inside: list[str], expected: str, told: str) -> None:
    found = parse(system(*inside), "f")
    assert found.links[0][1] == expected
    assert told in "\n".join(found.warnings)


@pytest.mark.parametrize(
    ("inside", "order", "told"),
    [
        ([gpu("02", 0), gpu("01", 1)], ["02", "01"], None),
        ([gpu("02", 5), gpu("01", 4)], ["01", "02"], "GPUs 4, 5 alone; here they count from 0"),
        ([gpu("02", 0, rank="1"), gpu("01", 0, rank="0")], ["01", "02"], "numbered by rank"),
        ([gpu("02", 0), gpu("01", 0)], ["01", "02"], "numbered by bus id"),
        ([gpu("02"), gpu("01")], ["01", "02"], "numbered by bus id"),
    ],
)
def test_gpus_are_numbered_as_the_machine_numbers_them(
    inside: list[str], order: list[str], told: str | None
) -> None:
    found = parse(system(*inside), "f")
    assert found.bus_id_of_gpu == tuple(f"0000:{bus}:00.0" for bus in order)
    assert told is None or told in "\n".join(found.inferred)


def test_domains_longer_than_four_digits_come_after_shorter_ones() -> None:
    text = system(
        *(f'<pci busid="{bus}" class="0x0302"/>' for bus in ("10000:01:00.0", "ffff:01:00.0"))
    )
    assert parse(text, "f").bus_id_of_gpu == ("ffff:01:00.0", "10000:01:00.0")


@pytest.mark.parametrize(
    "comment",
    [
        "<!-- a -->",
        "<!-------------\n - Copyright\n ------------->",
        "<!----><!-- <pci busid='x'/> -->",
    ],
)
def test_comments_may_hold_rows_of_dashes_as_nccl_lets_them(comment: str) -> None:
    text = f"{comment}\n" + system(f"{comment}{ONE}{comment}")
    assert parse(text, "f").gpus == 1
    line = text.count("\n", 0, text.index("<gpu")) + 1
    with pytest.raises(BadFields, match=f"f:{line}: gpu dev"):
        parse(text.replace('dev="0"', 'dev="zero"'), "f")


def test_a_comment_that_never_ends_is_refused() -> None:
    with pytest.raises(BadFields):
        parse(system(ONE) + "<!-- ", "f")


def test_parts_of_one_gpu_count_once() -> None:
    text = system(
        '<pci busid="0000:01:00.0"><gpu dev="0" mlopart="0"/><gpu dev="0" mlopart="1"/></pci>'
    )
    found = parse(text, "f")
    assert found.gpus == 1
    assert "GPU0 is shared by 2 ranks or parts" in "\n".join(found.warnings)


def broadcom(bus: str, subsystem: str, *inside: str, device: str = "0xc030") -> str:
    ids = f'vendor="0x1000" device="{device}" subsystem_vendor="0x1000" subsystem_device="{subsystem}"'
    return f'<pci busid="0000:{bus}:00.0" class="0x060400" {ids}>{"".join(inside)}</pci>'


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (
            broadcom("a0", "0x0072", broadcom("a1", "0x1003", ONE), broadcom("a2", "0x1003", TWO)),
            "PIX",
        ),
        (
            broadcom("a0", "0x0072", broadcom("a1", "0x0072", ONE), broadcom("a2", "0x0072", TWO)),
            "PXB",
        ),
        (
            broadcom("a0", "0xa032", broadcom("a1", "0xb032", ONE), TWO, device="0xc010"),
            "PXB",
        ),
        (
            broadcom("a0", "0xa032", broadcom("a1", "0xa032", ONE, device="0xc010"), TWO, device="0xc010"),
            "PIX",
        ),
        (
            broadcom("a0", "0x0072", broadcom("a1", "0x1003", broadcom("a2", "0x1003", ONE)), TWO),
            "PXB",
        ),
    ],
    ids=["generation-5", "two-switches", "another-model", "generation-4", "merged-once"],
)  # fmt: skip
def test_the_two_levels_of_a_broadcom_switch_are_one_switch(tree: str, expected: str) -> None:
    assert links(system(tree))[0][1] == expected


def test_ports_of_one_device_are_told_apart_by_their_number() -> None:
    ports = net("mlx5_0", port="1") + net("mlx5_0", port="2")
    nic = f'<pci busid="0000:03:00.0" class="0x0200"><nic>{ports}</nic></pci>'
    assert parse(system(gpu("01", 0), nic), "f").nics == ("mlx5_0:1", "mlx5_0:2")


def test_rates_and_guids_are_told_where_they_are_some() -> None:
    nets = [
        net("a", dev="1", speed="400000", guid="0xf01cbc0103dd6838"),
        net("b", dev="0", speed="0", guid="7"),
        net("c", dev="2", speed="99999999999999", guid="0x12345678123456781234"),
    ]
    with pytest.raises(BadFields, match="net guid"):
        parse(system(gpu("01", 0), "<nic>" + "".join(nets) + "</nic>"), "f")
    found = parse(system(gpu("01", 0), "<nic>" + "".join(nets[:2]) + "</nic>"), "f")
    assert found.nics == ("b", "a")
    assert found.GBps_of_nic == (None, 50.0)
    assert found.guid_of_nic == (None, "3868dd0301bc1cf0")
    assert "no rate is told for b" in "\n".join(found.warnings)


def test_a_speed_that_is_too_high_in_any_unit_is_not_told() -> None:
    nets = net("a", speed="99999999999999") + net("b", speed="100000")
    assert parse(system(gpu("01", 0), f"<nic>{nets}</nic>"), "f").GBps_of_nic == (None, 12.5)


@pytest.mark.parametrize(
    ("cpu", "numa", "path"),
    [('numaid="-1"', None, "PHB"), ("", None, "PHB"), ('numaid="3"', 3, "NODE")],
)
def test_an_unknown_numa_node_stays_unknown(cpu: str, numa: int | None, path: str) -> None:
    nic = '<pci busid="0001:03:00.0" class="0x0200"/>'
    found = parse(system(gpu("01", 0), nic, cpu=cpu), "f")
    assert (found.numa, found.nic_links) == ((numa,), ((path,),))
    assert any("NUMA" in warning for warning in found.warnings) == (numa is None)


def test_management_chips_are_no_gpus() -> None:
    text = system(
        '<pci busid="0000:01:00.0" class="0x030000" vendor="0x1a03"/>',
        '<pci busid="0000:02:00.0" class="0x030000" vendor="0x10de" device="0x2230"/>',
    )
    found = parse(text, "f")
    assert found.bus_id_of_gpu == ("0000:02:00.0",)
    assert found.model_of_gpu == ("A6000-48GB",)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (system('<pci busid="here"/>'), "f:3: pci busid: found `here`; allowed: a PCI bus id"),
        (system('<pci class="0x0302"/>'), "f:3: pci busid: found nothing"),
        (system(gpu("01", "x")), "f:3: gpu dev: found `x`; allowed: a whole number"),
        (system(gpu("01", 0), gpu("01", 1)), "f:4: pci busid: found `0000:01:00.0`, which is in line 3 too"),
        (system(gpu("01", 0, '<nvlink count="2"/>')), "f:3: nvlink: found no target"),
        (system(gpu("01", 0, nvlink("02", 1000))), "f:3: nvlink: found no target, or no count of at most 999"),
        (system(cpu='numaid="zero"'), "f:2: cpu numaid: found `zero`"),
        (system(cpu='numaid="0" affinity="many"'), "f:2: cpu affinity: found `many`; allowed: a CPU mask"),
        (system(f"<nic>{net('a')}{net('a')}</nic>"), "f:3: net name: found `a`, which is in line 3 too"),
        ('<system>\n<cpu numaid="0" host_hash="0x1"/>\n<cpu numaid="0" host_hash="0x2"/></system>',
         "f:3: cpu host_hash: found `0x2` after `0x1`; allowed: CPUs of one host"),
        ("<system>\n<cpu", "f:2: document: found"),
        ("<system/>" + "<system/>", "document: found"),
        ("", "document: found"),
    ],
)  # fmt: skip
def test_contradictions_are_refused_with_their_lines(text: str, told: str) -> None:
    with pytest.raises(BadFields) as caught:
        parse(text, "f")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('<graphs version="1"/>', "NCCL graph file"),
        ("<topology><object/></topology>", "hwloc's XML"),
        ("<nvidia_smi_log/>", "nvidia-smi -q -x"),
    ],
)
def test_other_documents_are_named(text: str, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        parse(text, "f")


def nested(depth: int) -> str:
    return system('<pci busid="0000:01:00.0">' * depth + "</pci>" * depth)


HOSTILE = {
    "laughs": '<!DOCTYPE s [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]><system version="&b;"/>',
    "unused-entity": '<!DOCTYPE s [<!ENTITY a "ha">]><system version="1"/>',
    "external": '<!DOCTYPE s [<!ENTITY x SYSTEM "file:///etc/passwd">]><system><cpu numaid="&x;"/></system>',
    "nested": nested(100_000),
    "nested-a-little": nested(70),
    "siblings": system(*(f'<pci busid="{n >> 8:04x}:{n & 255:02x}:00.0" class="0x0302"/>' for n in range(100_000))),
    "nets": system("<nic>" + "<net/>" * 100_000 + "</nic>"),
    "cpus": "<system>" + '<cpu numaid="0"/>' * 100_000 + "</system>",
    "number": system(gpu("01", "9" * 100_000)),
    "mask": system(cpu=f'numaid="0" affinity="{"ffffffff," * 100_000}f"'),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(name: str) -> None:
    with pytest.raises(BadFields):
        parse(HOSTILE[name], "f")


DUMP = system(
    '<pci busid="0000:a0:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">',
    gpu("01", 0, nvlink("d0", 18, SWITCH), sm="90", rank="0"),
    f'<pci busid="0000:03:00.0" class="0x020000"><nic>{net("mlx5_0", dev="0", speed="400000")}</nic></pci>',
    "</pci>",
    gpu("02", 1, nvlink("d0", 18, SWITCH), sm="90", rank="1"),
    '<pci busid="0000:04:00.0" class="0x120000"/>',
)
PIECES = st.sampled_from(
    ['"', "<", ">", "/>", "\n", "0", "9" * 30, "-1", "\x00", "é", "\ud800", 'numaid="1"', "<nic>", "</pci>",
     DUMP[90:160], 'class="0x0302"', 'busid="0000:01:00.0"', 'target="0000:02:00.0"', 'count="3"',
     'guid="0xffffffffffffffff"']
)  # fmt: skip


@settings(max_examples=examples(125), deadline=None)
@given(
    st.one_of(
        damaged([DUMP], PIECES),
        st.text(max_size=50),
        st.binary(max_size=50).map(lambda b: b.decode("latin-1")),
    )
)
def test_no_text_makes_it_raise_anything_but_its_own_errors(text: str) -> None:
    told_machine(parse, text)


ATTRIBUTES = ["busid", "class", "dev", "rank", "sm", "target", "count", "tclass", "numaid", "affinity", "speed", "guid",
              "port", "name", "host_hash", "vendor"]  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(
        [
            "",
            "0",
            "1",
            "-1",
            "0x0302",
            "0x02",
            "0000:01:00.0",
            "0000:02:00.0",
            "ff",
            "9" * 25,
            "0x068000",
        ]
    ),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8),
)


@settings(max_examples=examples(50), deadline=None)
@given(st.data())
def test_no_attribute_makes_it_raise_anything_but_its_own_errors(data: st.DataObject) -> None:
    def tags(depth: int) -> str:
        made = []
        for _ in range(data.draw(st.integers(0, 3))):
            tag = data.draw(st.sampled_from(["pci", "gpu", "nic", "net", "nvlink", "xgmi", "cpu"]))
            names = data.draw(st.sets(st.sampled_from(ATTRIBUTES), max_size=5))
            told = "".join(f" {name}={quoteattr(data.draw(VALUES))}" for name in sorted(names))
            made.append(f"<{tag}{told}>{tags(depth - 1) if depth else ''}</{tag}>")
        return "".join(made)

    text = f"<system><cpu>{tags(2)}</cpu></system>"
    try:
        found = parse(text, "fuzz")
    except GantreeError:
        return
    assert machine_from(found, "m").gpus == found.gpus
