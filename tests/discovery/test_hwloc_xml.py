"""Reading hwloc XML: collected machines against their verdicts, a table of traps, and fuzz."""

from itertools import combinations
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.errors import BadFields, BadInput
from gantree.topology.discovery.gpus import GpuTopology
from gantree.topology.discovery.machines.hwloc.hwloc_xml import parse
from support.damage import damaged, told_machine
from support.examples import examples

SHARED = Path(__file__).parents[3] / "shared" / "data" / "topology" / "hwloc"


def sample(name: str) -> GpuTopology:
    path = SHARED / name
    if not path.exists():
        pytest.skip("needs ../shared/data/topology, whose files carry no licence")
    return parse(path.read_text(), path.name)


def test_a_dgx2_joins_sixteen_gpus_over_its_switches() -> None:
    found = sample("nvidiaDGX2.xml")
    assert {found.links[a][b] for a, b in combinations(range(16), 2)} == {"NV6"}
    assert found.numa == (0,) * 8 + (1,) * 8
    assert set(found.model_of_gpu) == {"V100-32GB"}
    assert found.bus_id_of_gpu[:2] == ("0000:34:00.0", "0000:36:00.0")
    assert found.uuid_of_gpu[0] == "GPU-d3977428-7a30-086b-2e20-5c1eeed647c6"
    assert "taken as one fabric" in " ".join(found.inferred)
    assert found.nics == ()


def test_power8_joins_pairs_by_two_links_and_keeps_links_to_cpus_apart() -> None:
    found = sample("power8gpudistances.xml")
    assert found.nvlink_islands() == ((0, 1), (2, 3))
    assert (found.links[0][1], found.links[0][2]) == ("NV2", "SYS")
    assert found.numa == (0, 0, 1, 1)
    assert (set(found.model_of_gpu), found.memory_MiB_of_gpu[0]) == ({"P100-16GB"}, 16280)
    assert (found.hostname, found.cpus) == ("drac-12.grenoble.grid5000.fr", 16.0)
    assert found.cpu_sets[0] == ((0, 1), (8, 9), (16, 17), (24, 25))


def test_a_gpu_is_what_cuda_names_and_a_nic_what_rdma_does() -> None:
    found = sample("32em64t-2n8c2t-pci-wholeio.xml")
    assert (found.gpus, found.numa, found.nics) == (1, (1,), ("mlx5_0",))
    assert found.bus_id_of_gpu == ("0000:84:00.0",)
    assert found.nic_links == (("PIX",),)
    assert found.guid_of_nic == ("248a0703001e39fe",)
    assert (found.hostname, found.cpus) == ("conan", 32.0)
    assert found.memory_GiB == pytest.approx(63.97, abs=0.01)
    assert "0000:03:00.0, 0000:83:00.0, 0000:84:00.1" in " ".join(found.warnings)


def info(name: str, value: str) -> str:
    return f"<info name={quoteattr(name)} value={quoteattr(value)}/>"


def osdev(name: str, gp: int, *infos: str, kind: int = 1) -> str:
    return f'<object type="OSDev" name="{name}" gp_index="{gp}" osdev_type="{kind}">{"".join(infos)}</object>'


def pcidev(
    bus: str, *inside: str, kind: str = "0302 [10de:ffff]", gp: int = 0, subtype: str = ""
) -> str:
    """A PCI device; bus "1b" is 0000:1b:00.0."""
    own = f'pci_busid="0000:{bus}:00.0" pci_type="{kind} [0000:0000] a1" gp_index="{gp}" subtype="{subtype}"'
    return f'<object type="PCIDev" {own}>{"".join(inside)}</object>'


def bridge(bus: str, *inside: str) -> str:
    return f'<object type="Bridge" bridge_type="1-1" pci_busid="0000:{bus}:00.0">{"".join(inside)}</object>'


def host_bridge(name: str, *inside: str) -> str:
    return f'<object type="Bridge" bridge_type="0-1" bridge_pci="{name}">{"".join(inside)}</object>'


def package(number: int, *inside: str, subtype: str = "", extra: str = "") -> str:
    """A package of eight CPUs with a NUMA node of 1 GiB."""
    sets = f'cpuset="{0xFF << 8 * number:#010x}" nodeset="{1 << number:#010x}"'
    node = f'<object type="NUMANode" os_index="{number}" subtype="{subtype}" {sets} local_memory="1073741824"/>'
    return (
        f'<object type="Package" os_index="{number}" {sets}>{node}{extra}{"".join(inside)}</object>'
    )


def topology(*inside: str, after: str = "", version: str = "2.0") -> str:
    sets = 'cpuset="0x0000ffff" nodeset="0x00000003"'
    doctype = '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
    tree = f'<object type="Machine" {sets}>{"".join(inside)}</object>'
    return f'{doctype}<topology version="{version}">\n{tree}\n{after}</topology>\n'


def matrix(name: str, objects: list[str], values: list[list[int]]) -> str:
    """A matrix, its values in lines of three as hwloc breaks them."""
    flat = [str(value) for row in values for value in row]
    lines = "".join(
        f"<u64values>{' '.join(flat[at : at + 3])} </u64values>" for at in range(0, len(flat), 3)
    )
    count = len(objects)
    return (
        f'<distances2hetero nbobjs="{count}" name="{name}"><indexes>{" ".join(objects)} </indexes>'
        f"{lines}</distances2hetero>\n"
    )


def nvml(number: int, model: str = "Tesla V100-SXM2-16GB") -> str:
    return osdev(
        f"nvml{number}", 100 + number, info("GPUModel", model), info("NVIDIAUUID", f"GPU-{number}")
    )


def test_places_in_the_tree_tell_paths() -> None:
    switch = bridge(
        "01",
        bridge("02", bridge("03", pcidev("10", nvml(0))), bridge("04", pcidev("11", nvml(1))),
               bridge("05", bridge("06", bridge("07", pcidev("12", nvml(2)))))),
    )  # fmt: skip
    text = topology(
        package(
            0,
            host_bridge("a", switch),
            host_bridge("a2", pcidev("20", nvml(3)), pcidev("21", nvml(4))),
        ),
        package(1, host_bridge("b", pcidev("30", nvml(5)))),
    )
    found = parse(text, "f")
    assert found.links[0][1:] == ("PIX", "PXB", "NODE", "NODE", "SYS")
    assert found.links[3][4] == "PHB"
    assert found.numa == (0, 0, 0, 0, 0, 1)
    assert (found.cpus, found.memory_GiB) == (16.0, 2.0)
    assert found.cpu_sets[5] == ((8, 15),)


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (["nvml1 cuda0", "nvml0 cuda1"], ["02", "01"]),
        (["cuda1 opencl0d0", "cuda0 opencl0d1"], ["02", "01"]),
        (["opencl0d1", "cuda0"], ["02"]),
        (["opencl0d1 opencl1d0", "opencl0d0 opencl1d1"], ["02", "01"]),
        (["rsmi1", "rsmi0"], ["02", "01"]),
        (["rsmi0", "nvml0"], ["02", "01"]),
        (["card0", "nvml0"], ["02"]),
        (["rsmi0 rsmi1", "rsmi2 rsmi3"], ["01", "01", "02", "02"]),
        (["ze1", "ze0"], ["02", "01"]),
        (["card0", "card1"], ["01", "02"]),
    ],
    ids=["nvml-first", "cuda-first", "cuda-over-opencl", "opencl-alone", "rsmi", "two-makers", "unnamed",
         "partitions", "level-zero", "by-class"],
)  # fmt: skip
def test_gpus_are_those_and_in_the_order_that_the_best_library_names(
    names: list[str], order: list[str]
) -> None:
    devices = [
        pcidev(f"0{place + 1}", *(osdev(name, 10 * place + at) for at, name in enumerate(told.split())))
        for place, told in enumerate(names)
    ]  # fmt: skip
    found = parse(topology(package(0, host_bridge("a", *devices))), "f")
    assert found.bus_id_of_gpu == tuple(f"0000:{bus}:00.0" for bus in order)
    left_out = "not counted as GPUs" in " ".join(found.warnings)
    assert left_out == (len({*order}) < 2)


def test_opencl_names_cpus_too() -> None:
    cpu = osdev("opencl0d0", 9, info("OpenCLDeviceType", "CPU"))
    found = parse(topology(package(0, cpu, pcidev("01", osdev("opencl0d1", 8)))), "f")
    assert found.bus_id_of_gpu == ("0000:01:00.0",)


def test_without_names_display_chips_of_the_board_are_no_gpus() -> None:
    chips = [
        pcidev("01", kind="0300 [1a03:2000]"),
        pcidev("02", kind="0300 [102b:0532]"),
        pcidev("03", kind="0302 [10de:20b5]"),
        pcidev("04", kind="1200 [1002:74a1]"),
        pcidev("05", kind="0300 [8086:9bc5]"),
    ]
    found = parse(topology(package(0, *chips)), "f")
    assert found.bus_id_of_gpu == ("0000:03:00.0", "0000:04:00.0")
    assert found.model_of_gpu == ("A100-80GB", "MI300X-192GB")
    assert "GPUs are told by their PCI class" in found.inferred[0]


@pytest.mark.parametrize(
    ("kind", "infos", "model"),
    [
        ("0302 [10de:ffff]", {"GPUModel": "NVIDIA H100 80GB HBM3", "CUDAGlobalMemorySize": "83028672KiB"}, "H100-80GB"),
        ("0302 [10de:ffff]", {"GPUModel": "Tesla V100-SXM2-32GB"}, "V100-32GB"),
        ("0302 [10de:ffff]", {"GPUModel": "NVIDIA GH200 480GB"}, None),
        ("0302 [10de:2941]", {"GPUModel": "NVIDIA GB200", "OpenCLGlobalMemorySize": "193200128"}, "GB200-186GB"),
        ("0302 [10de:2941]", {"GPUModel": "NVIDIA GB200"}, "GB200-186GB"),
        ("0302 [10de:ffff]", {"GPUModel": "NVIDIA GB200"}, None),
        ("1200 [1002:74a1]", {"GPUModel": "MI300X", "RSMIVRAMSize": "201310208KiB"}, "MI300X-192GB"),
        ("1200 [1002:ffff]", {"GPUModel": "AMD Instinct MI210", "RSMIVRAMSize": "67092480KiB"}, "MI210-64GB"),
        ("0302 [10de:ffff]", {}, None),
    ],
)  # fmt: skip
def test_a_model_is_named_from_product_and_memory_or_ids(
    kind: str, infos: dict[str, str], model: str | None
) -> None:
    name = "rsmi0" if "1002" in kind else "cuda0"
    device = pcidev("01", osdev(name, 1, *(info(*told) for told in infos.items())), kind=kind)
    assert parse(topology(package(0, device)), "f").model_of_gpu == (model,)


def test_memory_of_gpus_and_other_memory_without_cpus_is_no_node_of_a_cpu() -> None:
    gpu_node = (
        '<object type="NUMANode" os_index="253" subtype="GPUMemory" local_memory="16000000000"/>'
    )
    gpu_of_it = info("PCIBusID", "0006:00:00.0")
    old_gpu_node = f'<object type="NUMANode" os_index="254" local_memory="16">{gpu_of_it}</object>'
    fast_node = '<object type="NUMANode" os_index="2" subtype="HBM" local_memory="16000000000"/>'
    text = topology(
        package(0, pcidev("01", nvml(0)), extra=gpu_node + old_gpu_node + fast_node),
        package(1, pcidev("02", nvml(1))),
    )
    near_all = text.replace('nodeset="0x00000001">', 'nodeset="0x60000000,,,,,,,0x5">', 1)
    assert near_all != text
    found = parse(near_all, "f")
    assert (found.numa, found.memory_GiB) == ((0, 1), 2.0)


@pytest.mark.parametrize(
    ("text", "numa", "one"),
    [
        (topology(package(0), package(1), pcidev("01", nvml(0))), None, False),
        (topology(package(0, pcidev("01", nvml(0)))), 0, True),
        (topology(pcidev("01", nvml(0))), None, True),
        (topology('<object type="Node" os_index="1" cpuset="0xf" nodeset="0x2">' + pcidev("01", nvml(0)) + "</object>",
                  package(0)), 1, False),
    ],
    ids=["near-both", "one-node", "no-node", "version-1"],
)  # fmt: skip
def test_a_numa_node_is_told_where_one_alone_is_near(
    text: str, numa: int | None, one: bool
) -> None:
    found = parse(text, "f")
    assert (found.numa, found.one_numa_node) == ((numa,), one)
    assert ("near to no NUMA node" in " ".join(found.warnings)) == (numa is None and not one)


TWO = package(0, host_bridge("a", pcidev("01", nvml(0)), pcidev("02", nvml(1))))
SWITCHED = package(
    0, host_bridge("a", pcidev("01", nvml(0)), pcidev("02", nvml(1)),
                   pcidev("61", kind="0680 [10de:1ac2]", gp=61), pcidev("62", kind="0680 [1014:04ea]", gp=62)),
)  # fmt: skip
PAIR = ["OSDev:100", "OSDev:101"]


def two_by_two(value: int, back: int | None = None) -> list[list[int]]:
    return [[1000000, value], [value if back is None else back, 1000000]]


@pytest.mark.parametrize(
    ("text", "expected", "said"),
    [
        (topology(TWO, after=matrix("NVLinkBandwidth", PAIR, two_by_two(50000))), "NV2", ""),
        (topology(TWO, after=matrix("NVLinkBandwidth", PAIR, two_by_two(0))), "PHB", ""),
        (topology(TWO, after=matrix("NVLinkBandwidth", PAIR, two_by_two(60000))), "NV2", "rounded down"),
        (topology(TWO.replace("Tesla V100-SXM2-16GB", "Tesla P100-SXM2-16GB"),
                  after=matrix("NVLinkBandwidth", PAIR, two_by_two(40000))), "NV2", ""),
        (topology(TWO.replace("Tesla V100-SXM2-16GB", "NVIDIA B200 180GB"),
                  after=matrix("NVLinkBandwidth", PAIR, two_by_two(900000))), "NV18", ""),
        (topology(TWO.replace("Tesla V100-SXM2-16GB", ""),
                  after=matrix("NVLinkBandwidth", PAIR, two_by_two(50000))), "NV2", "GPU models are not told"),
        (topology(SWITCHED, after=matrix("NVLinkBandwidth", [*PAIR, "PCIDev:61"],
                  [[9, 0, 300000], [0, 9, 150000], [300000, 150000, 9]])), "NV6", "taken as one fabric"),
        (topology(SWITCHED, after=matrix("NVLinkBandwidth", [*PAIR, "PCIDev:62"],
                  [[9, 0, 300000], [0, 9, 150000], [300000, 150000, 9]])), "PHB", ""),
        (topology(TWO, after=matrix("NVLinkBandwidth", PAIR, two_by_two(50000)).replace("OSDev:", "")
                  .replace("distances2hetero", "distances2").replace("nbobjs", 'type="OSDev" indexing="gp" nbobjs')),
         "NV2", ""),
        (topology(TWO, after=matrix("XGMIBandwidth", PAIR, two_by_two(100000))), "XGMI1", "not by how many links"),
        (topology(TWO, after=matrix("XGMIBandwidth", PAIR, two_by_two(50000))
                  + matrix("XGMIHops", PAIR, two_by_two(2))), "PHB", "given with their PCI path"),
    ],
    ids=["direct", "none", "uneven", "p100", "b200", "no-model", "switch", "power-bridge", "one-type", "xgmi", "hops"],
)  # fmt: skip
def test_matrices_tell_links(text: str, expected: str, said: str) -> None:
    found = parse(text, "f")
    assert found.links == (("X", expected), (expected, "X"))
    assert said in " ".join(found.inferred)
    assert bool(said) == bool(found.inferred)


def test_a_file_without_a_matrix_says_that_links_may_be_missing() -> None:
    assert "no NVLink or xGMI matrix" in " ".join(parse(topology(TWO), "f").warnings)


@pytest.mark.parametrize(("version", "kind"), [("2.0", 3), ("3.0", 48), ("1", 3)])
def test_rdma_devices_are_told_by_kind_in_every_version(version: str, kind: int) -> None:
    nics = [
        osdev("mlx5_0", 7, info("NodeGUID", "248A:0703:001e:39fe"), kind=kind),
        osdev("rdmap85s0", 8, info("NodeGUID", "0000:0000:0000:0000"), kind=kind),
        osdev("eth0", 9, kind=16 if version == "3.0" else 2),
    ]
    text = topology(
        package(0, host_bridge("a", pcidev("01", nvml(0)), pcidev("02", *nics))), version=version
    )
    found = parse(text, "f")
    assert found.nics == ("mlx5_0", "rdmap85s0")
    assert found.guid_of_nic == ("248a0703001e39fe", None)
    assert found.nic_links == (("PHB", "PHB"),)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (topology(TWO, after=matrix("NVLinkBandwidth", PAIR, two_by_two(50000, 25000))),
         "f:5: NVLinkBandwidth: found 50000 from GPU0 to GPU1, 25000 back"),
        (topology(TWO, after=matrix("NVLinkBandwidth", PAIR, [[1, 2], [2]])),
         "f:5: distances2hetero NVLinkBandwidth: found 3 values for 2 objects"),
        (topology(TWO, after=matrix("NVLinkBandwidth", PAIR, two_by_two(5)).replace('"2"', '"3"')),
         "4 values for 2 objects"),
        (topology(TWO, after=matrix("NVLinkBandwidth", PAIR, two_by_two(-5))), "found `-5`; allowed: whole numbers"),
        (topology(TWO.replace("nvml1", "nvml0")), "OSDev name: found `nvml0`, which is in line 4 too"),
        (topology(TWO.replace('cpuset="0x000000ff"', 'cpuset="many"')),
         "f:4: Package cpuset: found `many`; allowed: a mask"),
        (topology(TWO.replace("0000:01:00.0", "somewhere")), "f:4: PCIDev pci_busid: found `somewhere`"),
        (topology(package(0).replace('NUMANode" os_index="0"', 'NUMANode" os_index="x"')),
         "NUMANode os_index: found `x`"),
        (topology(osdev("mlx5_0", 1, kind=3) * 2), "OSDev name: found `mlx5_0`, which is in line 4 too"),
        (topology(TWO)[:-20], "document: found"),
    ],
)  # fmt: skip
def test_contradictions_are_refused_with_their_lines(text: str, told: str) -> None:
    with pytest.raises(BadFields) as caught:
        parse(text, "f")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("<topology/>", "no hwloc topology"),
        ('<system version="1"/>', "NCCL topology file"),
        ("<nvidia_smi_log/>", "nvidia-smi -q -x"),
    ],
)
def test_other_documents_are_named(text: str, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        parse(text, "f")


HOSTILE = {
    "laughs": '<!DOCTYPE t [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><topology><object type="&b;"/></topology>',
    "unused-entity": topology(TWO).replace('SYSTEM "hwloc2.dtd"', 'SYSTEM "hwloc2.dtd" [<!ENTITY a "ha">]'),
    "external": '<!DOCTYPE t [<!ENTITY x SYSTEM "file:///etc/passwd">]><topology><object type="&x;"/></topology>',
    "nested": topology("<object>" * 100_000 + "</object>" * 100_000),
    "bridges": topology('<object type="Bridge" bridge_type="1-1">' * 80 + "</object>" * 80),
    "gpus": topology(*(osdev(f"nvml{n % 10000}", n) for n in range(20_000))),
    "nics": topology(*(osdev(f"mlx5_{n}", n, kind=3) for n in range(20_000))),
    "mask": topology(TWO.replace('cpuset="0x000000ff"', f'cpuset="{"0xffffffff," * 1000}0x1"')),
    "matrix": topology(TWO, after=matrix("NVLinkBandwidth", [f"OSDev:{n}" for n in range(2000)], [])),
    "number": topology(TWO, after=matrix("NVLinkBandwidth", PAIR, two_by_two(10**30))),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(name: str) -> None:
    with pytest.raises(BadFields):
        parse(HOSTILE[name], "f")


def test_many_harmless_objects_are_no_trouble() -> None:
    found = parse(topology(TWO, '<object type="PU" cpuset="0x1"/>' * 50_000), "f")
    assert found.gpus == 2


NIC = pcidev("41", osdev("mlx5_0", 7, kind=3), kind="0207 [15b3:1021]")
WHOLE = topology(
    SWITCHED, package(1, host_bridge("b", bridge("40", NIC))),
    after=matrix("NVLinkBandwidth", [*PAIR, "PCIDev:61"], [[9, 0, 300000], [0, 9, 150000], [300000, 150000, 9]]),
).replace("><", ">\n<")  # fmt: skip
PIECES = st.sampled_from(
    ['"', "<", ">", "/>", "\n", "0", "9" * 30, "-1", "\x00", "é", "\ud800", "0x", ",,", 'type="OSDev"', 'name="nvml0"',
     'nodeset="0x3"', 'version="3.0"', 'bridge_type="0-1"', "<object>", "</object>", "OSDev:100 "]
)  # fmt: skip


VALUES = st.one_of(
    st.sampled_from(["", "0", "1", "-1", "0x3", "0000:01:00.0", "0302 [10de:20b5] [0:0] a1", "0-1", "1-1", "nvml0",
                     "mlx5_0", "opencl0d0", "cuda1", "GPUMemory", "48", "3"]),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8),
)  # fmt: skip
NAMES = ["os_index", "cpuset", "nodeset", "gp_index", "name", "osdev_type", "subtype", "bridge_type", "pci_busid",
         "pci_type", "local_memory"]  # fmt: skip


@st.composite
def made_up(draw: st.DrawFn) -> str:
    """A well-formed file of the right elements with any values."""

    def objects(depth: int) -> str:
        made = []
        for _ in range(draw(st.integers(0, 3))):
            kind = draw(
                st.sampled_from(
                    ["PCIDev", "OSDev", "OSDev", "Bridge", "NUMANode", "Package", "Machine"]
                )
            )
            names = draw(st.sets(st.sampled_from(NAMES), max_size=6))
            told = "".join(f" {name}={quoteattr(draw(VALUES))}" for name in sorted(names))
            made.append(
                f'<object type="{kind}"{told}>{objects(depth - 1) if depth else ""}</object>'
            )
        return "".join(made)

    version = draw(st.sampled_from(["1", "2.0", "3.0", "x"]))
    return f'<topology version="{version}"><object>{objects(2)}</object></topology>'


@settings(max_examples=examples(75), deadline=None)
@given(st.one_of(damaged([WHOLE], PIECES), made_up(), st.text(max_size=50)))
def test_no_text_makes_it_raise_anything_but_its_own_errors(text: str) -> None:
    told_machine(parse, text)
