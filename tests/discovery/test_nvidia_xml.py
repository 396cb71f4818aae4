"""Reading `nvidia-smi -q -x`: recorded machines against their verdicts, logs cut to what is read, and fuzz."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.errors import BadFields, BadInput, GantreeError
from gantree.topology.discovery.gpus import GpuTopology, machine_from
from gantree.topology.discovery.machines.nvidia.nvidia_xml import parse
from support.examples import examples

SHARED = Path(__file__).parents[3] / "shared" / "data" / "topology" / "nvidia-smi-xml"
CLUSTER = "5cd30dc8-0000-4000-8000-000000000001"
ZEROS = "00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    ("name", "model", "bus_ids", "cliques"),
    [
        ("qx-a100", "A100-40GB", ["0000:06:00.0"], ()),
        ("qx-l40s", "L40S-48GB", ["0000:30:00.0"], ()),
        ("qx-t4", "T4-16GB", ["0000:00:1e.0"], ()),
        ("qx-h100", "H100-80GB", [f"0000:{bus}:00.0" for bus in ["53", "64", "75", "86", "97", "a8", "b9", "ca"]],
         (None,) * 8),
        ("qx-gb200", "GB200-186GB", [f"0000:{bus}:00.0" for bus in ["29", "3f", "9c", "b2"]],
         ("00000001-0000-0000-0000-000000000001.2",) * 4),
    ],
)  # fmt: skip
def test_each_collected_log_gets_its_verdict(
    name: str, model: str, bus_ids: list[str], cliques: tuple[str | None, ...]
) -> None:
    path = SHARED / f"{name}.xml"
    if not path.exists():
        pytest.skip("needs ../shared/data/topology, whose logs carry no licence")
    found = parse(path.read_text(), name)
    assert found.model_of_gpu == (model,) * len(bus_ids)
    assert list(found.bus_id_of_gpu) == bus_ids
    assert found.clique_of_gpu == cliques
    assert len(set(found.uuid_of_gpu)) == found.gpus == len(bus_ids)
    assert found.warnings == ()
    assert set(found.numa) == {None}


def test_the_module_number_does_not_reorder_gpus_and_is_told() -> None:
    path = SHARED / "qx-gb200.xml"
    if not path.exists():
        pytest.skip("needs ../shared/data/topology, whose logs carry no licence")
    assert "module_id of GPU0, GPU1...: 2, 1, 4, 3" in "\n".join(
        parse(path.read_text(), "f").inferred
    )


def fabric(state: str, status: str, clique: str, cluster: str, more: str = "") -> str:
    return (
        f"<fabric><state>{state}</state><status>{status}</status><cliqueId>{clique}</cliqueId>"
        f"<clusterUuid>{cluster}</clusterUuid>{more}</fabric>"
    )


def gpu(
    number: int = 0, *more: str, product: str = "NVIDIA H200", total: str = "143771 MiB"
) -> str:
    return (
        f'<gpu id="00000000:{number + 16:X}:00.0"><product_name>{product}</product_name>'
        f"<uuid>GPU-0000000{number}-aaaa</uuid><minor_number>{number}</minor_number>"
        f"<fb_memory_usage><total>{total}</total></fb_memory_usage>{''.join(more)}</gpu>\n"
    )


def log(*gpus: str, attached: int | None = None) -> str:
    count = len(gpus) if attached is None else attached
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n'
        f"<nvidia_smi_log>\n<attached_gpus>{count}</attached_gpus>\n{''.join(gpus)}</nvidia_smi_log>\n"
    )


def notes(found: GpuTopology) -> str:
    return "\n".join((*found.inferred, *found.warnings))


@pytest.mark.parametrize(
    ("text", "cliques", "told"),
    [
        (fabric("Completed", "Success", "32766", CLUSTER), (f"{CLUSTER}.32766",), "one clique share"),
        (fabric("Completed", "Success", "0", CLUSTER.upper()), (f"{CLUSTER}.0",), "one clique share"),
        (fabric("Completed", "Success", "0", ZEROS), (None,), "fabric ends at this node"),
        (fabric("In Progress", "N/A", "2", CLUSTER), (None,), "is not set up (In Progress, N/A)"),
        (fabric("Completed", "Invalid State", "2", CLUSTER), (None,), "is not set up"),
        (fabric("Completed", "Success", "N/A", CLUSTER), (None,), "names no clique"),
        (fabric("N/A", "N/A", "N/A", "N/A"), (), ""),
        ("<fabric><state>N/A</state><status>N/A</status></fabric>", (), ""),
        ("<fabric><state>In Progress</state></fabric>", (), "its fabric is not set up"),
        ("", (), ""),
        (f"<fabric><state>Completed</state><status>Success</status><cluster_uuid>{CLUSTER}</cluster_uuid>"
         "<cliques><clique_entry><clique_id>7</clique_id></clique_entry></cliques></fabric>",
         (f"{CLUSTER}.7",), "one clique share"),
        (f"<fabric><state>Completed</state><status>Success</status><clusterUuid>{CLUSTER}</clusterUuid>"
         "<cliques><clique_entry><clique_id>7</clique_id></clique_entry>"
         "<clique_entry><clique_id>8</clique_id></clique_entry></cliques></fabric>",
         (None,), "names no clique"),
    ],
)  # fmt: skip
def test_a_clique_is_told_by_a_fabric_that_is_set_up_and_has_a_cluster(
    text: str, cliques: tuple[str | None, ...], told: str
) -> None:
    found = parse(log(gpu(0, text)), "f")
    assert found.clique_of_gpu == cliques
    assert told in notes(found)
    assert bool(told) == bool(notes(found))


def test_a_fabric_that_is_not_healthy_is_warned_of() -> None:
    health = (
        "<health><summary>Unhealthy</summary><bandwidth>Degraded</bandwidth><route_unhealthy>True</route_unhealthy>"
        "<access_timeout_recovery>False</access_timeout_recovery><incorrect_configuration>N/A</incorrect_configuration>"
        "</health>"
    )
    found = parse(log(gpu(0, fabric("Completed", "Success", "1", CLUSTER, health))), "f")
    assert found.warnings == (
        "GPU0: its fabric is not healthy: summary Unhealthy, bandwidth Degraded, route_unhealthy True",
    )


MIG = "<mig_mode><current_mig>{}</current_mig><pending_mig>{}</pending_mig></mig_mode><mig_devices>{}</mig_devices>"
INSTANCE = "<mig_device><index>{}</index><fb_memory_usage><total>{} MiB</total></fb_memory_usage></mig_device>"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (MIG.format("Disabled", "Disabled", "None"), ""),
        (MIG.format("N/A", "N/A", "None"), ""),
        (MIG.format("Enabled", "Enabled", INSTANCE.format(0, 40448) + INSTANCE.format(1, 40448)),
         "GPU0 is cut by MIG into instances: 2 of 40448 MiB; it has no NVLink or P2P to others"),
        (MIG.format("Enabled", "Enabled", INSTANCE.format(0, 9856) + INSTANCE.format(1, "?")),
         "into instances: 1 of 9856 MiB, 1;"),
        (MIG.format("Enabled", "Enabled", "None"), "GPU0 is cut by MIG on, without instances"),
        (MIG.format("Disabled", "Enabled", "None"), "GPU0: MIG becomes Enabled at its next reset"),
    ],
)  # fmt: skip
def test_mig_is_told(text: str, told: str) -> None:
    found = parse(log(gpu(0, text)), "f")
    assert (told in "\n".join(found.warnings)) and bool(told) == bool(found.warnings)
    assert found.model_of_gpu == ("H200-141GB",)


@pytest.mark.parametrize(
    ("text", "memory", "told"),
    [
        (log(gpu(total="GPU is lost")), None, "GPU0: no product name and memory size, so no model (NVIDIA H200)"),
        (log(gpu(product="N/A")), 143771, "no product name"),
        (log(gpu(total="6143 MB", product="Tesla K20c")), 6143, ""),
        (log(gpu(), attached=8), 143771, "8 GPUs are attached, 1 are described"),
        (log(gpu().replace(' id="00000000:10:00.0"', ' id="GPU-x"')), 143771, "GPU0: no PCI address"),
    ],
)  # fmt: skip
def test_what_a_log_lacks_stays_open_and_is_named(text: str, memory: int | None, told: str) -> None:
    found = parse(text, "f")
    assert found.memory_MiB_of_gpu == (memory,)
    assert told in notes(found) and bool(told) == bool(found.warnings)


def test_the_address_in_the_pci_element_is_read_where_the_id_is_none() -> None:
    text = log(
        gpu(0, "<pci><pci_bus_id>00000009:01:00.0</pci_bus_id></pci>").replace(
            "00000000:10:00.0", "GPU-x"
        )
    )
    assert parse(text, "f").bus_id_of_gpu == ("0009:01:00.0",)


def test_device_files_in_another_order_are_told() -> None:
    text = log(gpu(0), gpu(1)).replace("<minor_number>0", "<minor_number>7")
    assert "/dev/nvidiaN of GPU0, GPU1...: 7, 1" in notes(parse(text, "f"))


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + log(gpu(0), gpu(1)),
        "$ nvidia-smi -q -x\n"
        + log(gpu(0), gpu(1))
        + "WARNING: infoROM is corrupted at gpu 0000:10:00.0\n$\n",
        log(gpu(0), gpu(1)).replace("\n", "\r\n"),
        log(gpu(0), gpu(1)).split("\n", 2)[2],
        log("<!-- driver_version is deprecated -->", gpu(0), gpu(1), attached=2),
    ],
    ids=["bom", "prompt-and-warning", "crlf", "no-declaration", "comment"],
)
def test_the_same_log_is_read_however_it_was_saved(text: str) -> None:
    found = parse(text, "f")
    assert found.bus_id_of_gpu == ("0000:10:00.0", "0000:11:00.0")
    assert found.links == (("X", None), (None, "X"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (log(gpu(0), gpu(0)), "f:6: GPU1, uuid: found GPU-00000000-aaaa, which GPU0 has; allowed: each GPU once"),
        (log(gpu(0), gpu(0)), "f:6: GPU1, pci_bus_id: found 0000:10:00.0, which GPU0 has"),
        (log(gpu(0, "<pci><pci_bus_id>00000000:99:00.0</pci_bus_id></pci>")),
         "f:5: GPU0, pci_bus_id: found 0000:99:00.0; allowed: 0000:10:00.0, its id"),
        (log(gpu(0), gpu(1), attached=1), "attached_gpus: found 1, but the log describes 2 GPUs"),
        (log(gpu(0))[:-60], "f:"),
    ],
)  # fmt: skip
def test_contradictions_are_refused_with_their_lines(text: str, told: str) -> None:
    with pytest.raises(BadFields) as caught:
        parse(text, "f")
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the text is empty; give the print of `nvidia-smi -q -x`"),
        ("<topology version='2.0'>", "it looks like hwloc's XML"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "cannot reach"),
        (log(), ""),
        (log(gpu()) + log(gpu()), "a second log from line 9 on"),
        (log().replace("<attached_gpus>0</attached_gpus>", ""), "the log names no GPU"),
        (log(*(gpu() for _ in range(513))), "513 GPUs; at most 512"),
    ],
)  # fmt: skip
def test_what_is_no_log_is_named(text: str, told: str) -> None:
    if not told:
        assert parse(text, "f").gpus == 0
        return
    with pytest.raises(BadInput) as caught:
        parse(text, "f")
    assert told in str(caught.value)


def test_names_of_processes_may_be_no_xml() -> None:
    name = "<processes><process_info><process_name>a --b=c&d <e \x01</process_name></process_info></processes>"
    text = log(gpu(0, name), gpu(1, name))
    assert parse(text, "f").model_of_gpu == ("H200-141GB",) * 2
    assert parse(text.replace("\n", ""), "f").gpus == 2


def test_entities_are_never_expanded() -> None:
    text = log(gpu(product="NVIDIA &a;")).replace(
        '"nvsmi_device_v13.dtd"', '"x.dtd" [<!ENTITY a "H200">]'
    )
    with pytest.raises(BadFields, match="a"):
        parse(text, "f")


WHOLE = log(
    gpu(0, fabric("Completed", "Success", "2", CLUSTER), MIG.format("Enabled", "Enabled", INSTANCE.format(0, 40448))),
    gpu(1, fabric("In Progress", "N/A", "N/A", "N/A"), "<platformInfo><module_id>3</module_id></platformInfo>"),
)  # fmt: skip


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_a_damaged_log_is_refused_or_read(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(WHOLE)))
    end = data.draw(st.integers(start, len(WHOLE)))
    middle = data.draw(st.one_of(st.just(""), st.just(WHOLE[start:end] * 2), st.text(max_size=20)))
    check_no_stranger_error(WHOLE[:start] + middle + WHOLE[end:])


@settings(max_examples=examples(100), deadline=None)
@given(st.text())
def test_no_text_makes_it_raise_anything_but_its_own_errors(text: str) -> None:
    check_no_stranger_error(text)
    check_no_stranger_error(f"<nvidia_smi_log>{text}</nvidia_smi_log>")


def check_no_stranger_error(text: str) -> None:
    try:
        found = parse(text, "fuzz")
    except GantreeError as error:
        assert "fuzz" in str(error)
    else:
        json.dumps(found.as_json())
        assert machine_from(found, "m").gpus == found.gpus
