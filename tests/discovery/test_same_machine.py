"""Readings of one machine put together: what fills in what, what is reordered, and what is refused."""

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.errors import BadInput
from gantree.topology.discovery.gpus import GpuTopology, machine_from
from gantree.topology.discovery.machines import slurmd_gres
from gantree.topology.discovery.machines.merge.same_machine import joined
from gantree.topology.discovery.machines.nvidia import (
    nvidia_smi,
    nvidia_xml,
    nvlink_status,
    peer_matrix,
)
from gantree.topology.discovery.machines.nvidia.nvlink_status import NvlinkStatus
from support.examples import examples

SHARED = Path(__file__).parents[3] / "shared" / "data" / "topology"


def shared(name: str) -> str:
    path = SHARED / name
    if not path.exists():
        pytest.skip("needs ../shared/data/topology, whose prints carry no licence")
    return path.read_text()


def matrix(gpus: int, link: str | None = None) -> tuple[tuple[str | None, ...], ...]:
    return tuple(tuple("X" if a == b else link for b in range(gpus)) for a in range(gpus))


def machine(gpus: int, link: str | None = None, **more: object) -> GpuTopology:
    told = {"links": matrix(gpus, link), "nic_links": ((),) * gpus, "numa": (None,) * gpus} | more
    return GpuTopology(**told)  # type: ignore[arg-type] # fields by name, each test gives its own


def with_nics(gpus: int, *nics: str, link: str = "PIX", **more: object) -> GpuTopology:
    told = {"nics": nics, "nic_links": ((link,) * len(nics),) * gpus} | more
    return machine(gpus, None, **told)


def buses(*numbers: int) -> tuple[str, ...]:
    return tuple(f"0000:{number:02x}:00.0" for number in numbers)


def uuids(*numbers: int) -> tuple[str, ...]:
    return tuple(f"GPU-{number}" for number in numbers)


def test_one_reading_is_given_back_as_it_is() -> None:
    alone = machine(2, "NV4", warnings=("w",))
    assert joined([("a", alone)]) is alone


def test_each_reading_fills_in_what_the_others_do_not_tell() -> None:
    links = machine(2, "NV4", numa=(0, 1), cpu_sets=(((0, 3),), ((4, 7),)))
    peers = machine(2, peer=((True, True), (True, True)))
    log = machine(
        2,
        bus_id_of_gpu=buses(1, 2),
        uuid_of_gpu=uuids(1, 2),
        model_of_gpu=("H100-80GB",) * 2,
        memory_MiB_of_gpu=(81559,) * 2,
        clique_of_gpu=("u.1",) * 2,
    )
    host = machine(2, hostname="n1", cpus=8.0, memory_GiB=64.0)
    found = joined([("m", links), ("p", peers), ("q", log), ("h", host)])
    assert found.links == links.links
    assert (found.numa, found.cpu_sets) == (links.numa, links.cpu_sets)
    assert found.peer == peers.peer
    assert found.bus_id_of_gpu == log.bus_id_of_gpu
    assert (found.model_of_gpu, found.clique_of_gpu) == (log.model_of_gpu, log.clique_of_gpu)
    assert (found.hostname, found.cpus, found.memory_GiB) == ("n1", 8.0, 64.0)
    assert found.warnings == ()


def test_every_field_that_a_reading_may_tell_comes_through() -> None:
    full = GpuTopology(
        links=matrix(2, "NV4"),
        nic_links=(("PIX",), ("NODE",)),
        numa=(0, 1),
        one_numa_node=False,
        cpu_sets=(((0, 3),), ((4, 7),)),
        nics=("NIC0",),
        device_of_nic={"NIC0": "mlx5_0"},
        hostname="n1",
        model_of_gpu=("H100-80GB",) * 2,
        memory_MiB_of_gpu=(81559,) * 2,
        uuid_of_gpu=uuids(1, 2),
        bus_id_of_gpu=buses(1, 2),
        clique_of_gpu=("u.1",) * 2,
        peer=((True, False), (False, True)),
        GBps_of_nic=(50.0,),
        guid_of_nic=("0" * 15 + "1",),
        cpus=8.0,
        memory_GiB=64.0,
    )
    nothing = machine(2)
    notes = {"inferred", "warnings"}
    for order in ([("a", full), ("b", nothing)], [("b", nothing), ("a", full)]):
        found = joined(order)
        for field in fields(GpuTopology):
            if field.name not in notes:
                assert getattr(found, field.name) == getattr(full, field.name), field.name


def test_gpus_in_another_order_are_matched_by_their_addresses() -> None:
    smi = machine(
        3, "NV4", numa=(0, 0, 1), bus_id_of_gpu=buses(1, 2, 3), uuid_of_gpu=uuids(1, 2, 3)
    )
    other = machine(3, bus_id_of_gpu=buses(3, 1, 2), model_of_gpu=("C", "A", "B"))
    for order in ([("smi", smi), ("nccl", other)], [("nccl", other), ("smi", smi)]):
        found = joined(order)
        assert found.model_of_gpu == ("A", "B", "C")
        assert found.numa == (0, 0, 1)
        assert "nccl orders GPUs otherwise: its GPU0, GPU1... are 2, 0, 1" in found.inferred


def test_pairs_are_reordered_with_their_gpus() -> None:
    links = (("X", "NV1", "NV2"), ("NV1", "X", "SYS"), ("NV2", "SYS", "X"))
    other = GpuTopology(
        links=links,
        nic_links=(("PIX",), ("NODE",), ("SYS",)),
        numa=(None,) * 3,
        nics=("mlx5_0",),
        bus_id_of_gpu=buses(3, 1, 2),
        peer=((True, False, True), (None,) * 3, (None,) * 3),
    )
    found = joined([("m", machine(3)), ("nccl", other)])
    assert found.links == (("X", "SYS", "NV1"), ("SYS", "X", "NV2"), ("NV1", "NV2", "X"))
    assert found.nic_links == (("NODE",), ("SYS",), ("PIX",))
    assert found.peer[2] == (False, True, True)
    assert (
        "m tells no PCI addresses; GPUs are numbered as nvidia-smi numbers them" in found.inferred
    )


def test_the_order_of_nvidia_smi_counts_where_it_is_not_that_of_the_addresses() -> None:
    smi = machine(2, bus_id_of_gpu=buses(9, 1), uuid_of_gpu=uuids(1, 2), numa=(0, 1))
    other = machine(2, bus_id_of_gpu=buses(1, 9), model_of_gpu=("at1", "at9"))
    found = joined([("nccl", other), ("smi", smi)])
    assert found.bus_id_of_gpu == buses(9, 1)
    assert found.model_of_gpu == ("at9", "at1")


def test_gpus_are_matched_by_uuid_where_addresses_are_not_told_twice() -> None:
    a = machine(2, uuid_of_gpu=uuids(1, 2), numa=(0, 1))
    b = machine(2, uuid_of_gpu=uuids(2, 1), bus_id_of_gpu=buses(8, 7))
    found = joined([("a", a), ("b", b)])
    assert dict(zip(found.uuid_of_gpu, found.numa, strict=True)) == {"GPU-1": 0, "GPU-2": 1}
    assert dict(zip(found.uuid_of_gpu, found.bus_id_of_gpu, strict=True)) == {
        "GPU-1": "0000:07:00.0",
        "GPU-2": "0000:08:00.0",
    }


def test_a_reading_of_some_gpus_fills_in_theirs() -> None:
    whole = machine(3, "NV4", bus_id_of_gpu=buses(1, 2, 3))
    one = machine(1, bus_id_of_gpu=buses(2), clique_of_gpu=("u.1",))
    assert joined([("a", whole), ("b", one)]).clique_of_gpu == (None, "u.1", None)


NV4, PIX = machine(2, "NV4"), machine(2, "PIX")


@pytest.mark.parametrize(
    ("a", "b", "told"),
    [
        (NV4, machine(2, "NV12"), "a and b contradict each other: link of GPU0 and GPU1: NV4 and NV12"),
        (PIX, machine(2, "SYS"), "link of GPU0 and GPU1: PIX and SYS"),
        (machine(2, "NVB"), NV4, "link of GPU0 and GPU1: NVB and NV4"),
        (machine(2, numa=(0, 1)), machine(2, numa=(0, 0)), "GPU1, numa: 1 and 0"),
        (machine(2, model_of_gpu=("A", "A")), machine(2, model_of_gpu=("A", "B")), "GPU1, model: A and B"),
        (machine(1, memory_MiB_of_gpu=(81559,)), machine(1, memory_MiB_of_gpu=(40960,)), "GPU0, memory_MiB"),
        (machine(1, uuid_of_gpu=uuids(1), bus_id_of_gpu=buses(1)),
         machine(1, uuid_of_gpu=uuids(2), bus_id_of_gpu=buses(1)), "GPU0, uuid: GPU-1 and GPU-2"),
        (machine(1, uuid_of_gpu=uuids(1), bus_id_of_gpu=buses(1)), machine(1, bus_id_of_gpu=buses(2)),
         "GPU0 of b has the PCI address 0000:02:00.0, which a does not have"),
        (machine(1, uuid_of_gpu=uuids(1)), machine(1, uuid_of_gpu=uuids(2)), "GPU0 of b has the UUID GPU-2"),
        (machine(1, clique_of_gpu=("u.1",)), machine(1, clique_of_gpu=("u.2",)), "GPU0, clique: u.1 and u.2"),
        (machine(2, peer=((True, True), (True, True))), machine(2, peer=((True, False), (False, True))),
         "peer of GPU0 and GPU1: True and False"),
        (machine(2), machine(3), "gpus: "),
        (machine(1, hostname="n1"), machine(1, hostname="n2"), "hostname: n1 and n2"),
        (with_nics(1, "mlx5_0"), with_nics(1, "mlx5_0", link="SYS"), "link of GPU0 and mlx5_0: PIX and SYS"),
        (with_nics(1, "mlx5_0", GBps_of_nic=(50.0,)), with_nics(1, "mlx5_0", GBps_of_nic=(25.0,)),
         "mlx5_0, rate in GB/s: 50.0 and 25.0"),
        (with_nics(1, "mlx5_0", guid_of_nic=("1",)), with_nics(1, "mlx5_0", guid_of_nic=("2",)), "mlx5_0, guid"),
    ],
)  # fmt: skip
def test_contradictions_are_refused_with_both_sources_and_the_field(
    a: GpuTopology, b: GpuTopology, told: str
) -> None:
    with pytest.raises(BadInput) as caught:
        joined([("a", a), ("b", b)])
    assert told in str(caught.value)
    assert "a " in str(caught.value) and "contradict each other" in str(caught.value)


@pytest.mark.parametrize(
    ("a", "b", "link"),
    [
        ("PXB", "PIX", "PXB"),
        ("NODE", "PHB", "NODE"),
        ("SYS", "NVB", "SYS"),
        ("NVB", "NODE", "NVB"),
        ("NV2", "NV2", "NV2"),
    ],
)
def test_classes_between_which_tools_draw_no_same_line_are_those_of_the_first(
    a: str, b: str, link: str
) -> None:
    assert joined([("a", machine(2, a)), ("b", machine(2, b))]).links[0][1] == link


def test_nvlinks_count_before_the_pci_path_that_another_source_tells_with_a_warning() -> None:
    for order in ([("m", NV4), ("nccl", PIX)], [("nccl", PIX), ("m", NV4)]):
        found = joined(order)
        assert found.links == NV4.links
        assert found.warnings == (
            "m tells NVLinks of 1 pairs of GPUs for which nccl tells the PCI path only: they count",
        )


@pytest.mark.parametrize(
    ("a", "b", "told"),
    [
        (machine(2, cpu_sets=(((0, 3),), ((4, 7),))), machine(2, cpu_sets=(((0, 1),), ((2, 3),))), ""),
        (machine(2, cpu_sets=(((0, 3),), ((4, 7),))), machine(2, cpu_sets=(((0, 7),), ((0, 7),))),
         "a and b group GPUs by CPUs in different ways (GPU0 and GPU1)"),
        (machine(1, cpus=64.0), machine(1, cpus=128.0), "a and b differ in cpus: 64 and 128"),
        (machine(2, one_numa_node=True), machine(2, numa=(0, 1)), "there is but one NUMA node"),
        (machine(1, memory_MiB_of_gpu=(81559,)), machine(1, memory_MiB_of_gpu=(81920,)), ""),
        (machine(1, hostname="n1"), machine(1, hostname="N1.site.org"), ""),
    ],
)  # fmt: skip
def test_what_may_differ_is_that_of_the_first_with_a_warning_where_it_matters(
    a: GpuTopology, b: GpuTopology, told: str
) -> None:
    found = joined([("a", a), ("b", b)])
    assert told in "\n".join(found.warnings) and bool(told) == bool(found.warnings)
    assert (found.cpu_sets, found.cpus) == (a.cpu_sets or b.cpu_sets, a.cpus)


def test_one_numa_node_gives_way_to_a_number() -> None:
    alone, numbered = machine(1, one_numa_node=True), machine(1, numa=(1,))
    assert joined([("a", alone), ("b", numbered)]).one_numa_node is False
    assert joined([("a", alone), ("b", machine(1))]).one_numa_node is True


def test_nics_are_matched_by_device_name_or_guid_and_others_are_added() -> None:
    a = with_nics(1, "NIC0", "NIC1", device_of_nic={"NIC0": "mlx5_0", "NIC1": "ibp1"})
    b = with_nics(1, "mlx5_0", "mlx5_9", guid_of_nic=("aa", "bb"), GBps_of_nic=(50.0, 25.0))
    c = with_nics(1, "ib9", link="SYS", guid_of_nic=("bb",))
    with pytest.raises(BadInput, match="mlx5_9: PIX and SYS"):
        joined([("a", a), ("b", b), ("c", c)])
    found = joined([("a", a), ("b", b), ("c", replace(c, nic_links=(("PXB",),)))])
    assert found.nics == ("NIC0", "NIC1", "mlx5_9")
    assert found.GBps_of_nic == (50.0, None, 25.0)
    assert found.device_of_nic == {"NIC0": "mlx5_0", "NIC1": "ibp1"}


def test_nameless_nics_are_the_named_ones_in_their_order_if_there_are_as_many() -> None:
    nameless = with_nics(1, "NIC0", "NIC1", link="NODE")
    named = with_nics(1, "mlx5_0", "mlx5_1", link="NODE", GBps_of_nic=(50.0, 25.0))
    for order in ([("a", nameless), ("b", named)], [("b", named), ("a", nameless)]):
        found = joined(order)
        assert [nic.name for nic in machine_from(found, "m").nics] == ["mlx5_0", "mlx5_1"]
        assert found.GBps_of_nic == (50.0, 25.0)
        assert "in the same order" in "\n".join(found.inferred)
    few = joined([("a", nameless), ("b", with_nics(1, "mlx5_0", link="NODE"))])
    assert few.nics == ("NIC0", "NIC1")
    assert "b: its 1 NIC is left out" in "\n".join(few.warnings)


def test_notes_of_all_sources_are_kept_with_their_sources() -> None:
    found = joined([("a", machine(1, warnings=("cut",))), ("b", machine(1, inferred=("told",)))])
    assert found.warnings == ("a: cut",)
    assert found.inferred == ("b: told",)


def status(*active: int | None, links: int = 18, numbers: tuple[int, ...] = ()) -> NvlinkStatus:
    gpus = numbers or tuple(range(len(active)))
    nothing = (None,) * len(active)
    return NvlinkStatus(
        gpus, (links,) * len(active), active, nothing, nothing, ("H100",) * len(active)
    )


@pytest.mark.parametrize(
    ("links", "active", "told"),
    [
        (matrix(4, "NV18"), (18, 18, 18, 18), ""),
        (matrix(4, "NV6"), (18, 18, 18, 18), ""),
        (matrix(2, "NV12"), (12, 12), ""),
        (matrix(4, "NV18"), (18, 12, 18, 18), "GPU1: 12 of 18 links active (s), but its widest link is NV18"),
        (matrix(2, "NV4"), (6, 6), "GPU0: 6 of 18 links active (s), but those to other GPUs are 4"),
        (matrix(2, "PIX"), (4, 4), "GPU0: 4 of 18 links active (s), but no NVLink leads to another GPU"),
        (matrix(2, "PIX"), (0, 0), ""),
        (matrix(2), (12, 12), ""),
        (matrix(2, "NV4"), (None, 4), ""),
    ],
)  # fmt: skip
def test_links_that_are_up_are_held_against_the_matrix(
    links: tuple[tuple[str | None, ...], ...], active: tuple[int | None, ...], told: str
) -> None:
    told_of = machine(len(links), links=links)
    found = joined([("m", told_of), ("s", status(*active))])
    assert found.links == links
    assert told in "\n".join(found.warnings) and bool(told) == bool(found.warnings)


def test_a_status_is_matched_by_uuid_before_number() -> None:
    known = machine(2, "NV4", uuid_of_gpu=uuids(1, 2))
    one = replace(status(2, links=4, numbers=(0,)), uuid_of_gpu=uuids(2))
    assert joined([("m", known), ("s", one)]).warnings == (
        "GPU1: 2 of 4 links active (s), but its widest link is NV4",
    )
    with pytest.raises(BadInput, match=r"s: GPU 0 \(GPU-7\) is none of the 2 GPUs"):
        joined([("m", known), ("s", replace(one, uuid_of_gpu=uuids(7)))])
    with pytest.raises(BadInput, match="s: GPU 5 is none of the 2 GPUs"):
        joined([("m", machine(2, "NV4")), ("s", status(4, numbers=(5,)))])


def test_counts_of_links_alone_make_no_machine() -> None:
    with pytest.raises(BadInput, match="add `nvidia-smi topo -m`"):
        joined([("s", status(18))])
    with pytest.raises(BadInput):
        joined([])


def test_a_recorded_h100_is_put_together_of_three_prints() -> None:
    links = nvidia_smi.parse(shared("nvidia-smi-topo/h100-8gpu-8nic-mlx5.txt"), "m")
    peers = peer_matrix.parse(shared("nvidia-smi-topo/h100-8gpu-p2p-r.txt"), "p")
    log = nvidia_xml.parse(shared("nvidia-smi-xml/qx-h100.xml"), "q")
    up = nvlink_status.parse(shared("nvlink-status/h100-pcie-bridge-nvlink-s-gpu0.txt"), "s")
    found = joined([("m", links), ("p", peers), ("q", log)])
    assert found.links == links.links
    assert found.nearest_nics() == links.nearest_nics()
    assert machine_from(found, "m").gpu == "H100-80GB"
    assert machine_from(found, "m").peer == ()
    json.dumps(found.as_json())
    with pytest.raises(BadInput, match="GPU-6968dfc2"):  # the status is of another machine
        joined([("m", links), ("q", log), ("s", up)])
    assert "GPU0: 12 of 18 links active" in "\n".join(joined([("m", links), ("s", up)]).warnings)


def test_slurm_and_nvidia_smi_tell_the_same_of_one_recorded_host() -> None:
    links = nvidia_smi.parse(shared("nvidia-smi-topo/rtx-a6000-8gpu-nvlink-bridge-pairs.txt"), "m")
    gres = slurmd_gres.parse(shared("slurm/slurmd-G-a6000-nvml-links.txt"), "g")
    for order in ([("m", links), ("g", gres)], [("g", gres), ("m", links)]):
        assert joined(order).links == links.links
        assert joined(order).numa == links.numa


@settings(max_examples=examples(100), deadline=None)
@given(st.permutations(range(6)), st.permutations(range(6)))
def test_however_two_sources_order_gpus_the_result_is_the_same_machine(
    order: list[int], other: list[int]
) -> None:
    def seen(by: list[int]) -> GpuTopology:
        links = tuple(
            tuple("X" if a == b else f"NV{1 + min(a, b) * 7 + max(a, b)}" for b in by) for a in by
        )
        return machine(6, links=links, bus_id_of_gpu=buses(*by), numa=tuple(n // 3 for n in by))

    assert joined([("a", seen(order)), ("b", seen(other))]).links == seen(list(range(6))).links
