"""What the kernel's messages say of GPUs: lines of several driver versions and of several writers of logs."""

import pytest

from gantree.telemetry.kernel_log import KernelFault, address_of, fault_in
from gantree.topology.hardware.xids import lost_gpus_in, tells_of_lost_gpu

LINES = {
    "of /dev/kmsg": (
        "3,4471,3023054882,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.",
        KernelFault(None, "0000:3b:00", 79),
    ),
    "of dmesg, pid and name unknown": (
        "[171657.328] NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        KernelFault(None, "0000:05:00", 79),
    ),
    "of journalctl, forwarded": (
        "Oct 06 17:59:27 balrog kernel: NVRM: Xid (PCI:0000:01:00): 79, pid=1122, GPU has fallen off the bus.",
        KernelFault("balrog", "0000:01:00", 79),
    ),
    "of rsyslog, RFC 3339": (
        "2026-11-28T03:06:37.123456+00:00 n7 kernel: [  12.3] NVRM: Xid (PCI:0000:C1:00): 119, pid=7, name=python",
        KernelFault("n7", "0000:c1:00", 119),
    ),
    "of RFC 5424": (
        "<3>1 2026-11-28T03:06:37Z n7.example.org kernel - - - NVRM: Xid (PCI:0000:3b:00): 95, Uncontained",
        KernelFault("n7.example.org", "0000:3b:00", 95),
    ),
    "with a function": (
        "NVRM: Xid (PCI:0000:b3:00.0): 79, pid=12345, GPU has fallen off the bus.",
        KernelFault(None, "0000:b3:00", 79),
    ),
    "of a MIG instance": (
        "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No",
        KernelFault(None, "0000:01:00", 94),
    ),
    "of drivers before 2013": (
        "May 10 22:25:01 jambi kernel: [176830.774761] NVRM: Xid (0000:03:00): 13, 0003 00000000 00008297",
        KernelFault("jambi", "0000:03:00", 13),
    ),
    "a domain of eight digits": (
        "NVRM: Xid (PCI:00010000:3b:00): 48, pid=1",
        KernelFault(None, "10000:3b:00", 48),
    ),
    "without an XID": (
        "NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.",
        KernelFault(None, "0000:01:00", 79),
    ),
    "without an XID, in other words": (
        "NVRM: GPU at PCI:0000:01:00.0 has fallen off the bus.",
        KernelFault(None, "0000:01:00", 79),
    ),
    "at the load of a driver": (
        "NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:26b5) installed in this system has fallen off the bus and is"
        " not responding to commands.",
        KernelFault(None, "0000:b3:00", 79),
    ),
    "of AMD": (
        "Mar 03 14:14:04 kernel: amdgpu 0000:83:00.0: amdgpu: device lost from bus!",
        KernelFault(None, "0000:83:00", 79),
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_a_line_tells_which_gpu_of_which_host_fails(name: str) -> None:
    line, found = LINES[name]
    assert fault_in(line) == found


@pytest.mark.parametrize(
    "line",
    [
        "",
        "eth0: link up",
        "NVRM: Xid (PCI:0000:3b:00): 7900000, pid=1",
        "NVRM: Xid (PCI:0000:3b): 79",
        "NVRM: GPU at PCI:0000:3b:00: GPU-cbb2b1f6-0000-0000-0000-000000000000",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86.15",
        "amdgpu 0000:83:00.0: amdgpu: GPU reset begin!. Source:  3",
        "python[12]: the words NVRM and Xid are in this line, 79",
        "NVRM: Xid (PCI:0000:3b:0",
    ],
)
def test_any_other_line_is_no_fault(line: str) -> None:
    assert fault_in(line) is None


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:3B:00.0", "0000:3b:00"),
        ("0000:3b:00.0", "0000:3b:00"),
        ("00010000:3B:00.0", "10000:3b:00"),
    ],
)
def test_addresses_of_nvml_sysfs_and_the_kernel_are_one(text: str, address: str) -> None:
    assert address_of(text) == address


@pytest.mark.parametrize(
    ("text", "is_lost"),
    [
        (
            "ErrorCode:79 PCI:0000:ef:00 GPU_UUID:GPU-b5f2 MESSAGE=NVRM: Xid (PCI:0000:ef:00): 79, GPU has fallen off"
            " the bus. Recommended Action=RESTART_BM;",
            True,
        ),
        ("ErrorCode:79 gpu:0 XID error occured Recommended Action=NODE_REBOOT;", True),
        ("Xid79: fell off the bus", True),
        ("XID 95 (uncontained ECC error)", True),
        ("NVRM: Xid (PCI:0000:3b:00): 119, pid=79", False),
        ("ErrorCode:119 PCI:0079:00:00 Recommended Action=COMPONENT_RESET", False),
        ("XID 790", False),
        ("", False),
    ],
)
def test_a_message_of_a_monitor_tells_whether_a_gpu_is_lost(text: str, is_lost: bool) -> None:
    assert tells_of_lost_gpu(text) is is_lost


def test_a_reason_names_the_lost_gpus_alone() -> None:
    reason = "GPU 3: XID 79 (GPU has fallen off the bus); GPU 5: XID 48 (double-bit ECC error); GPU 0: XID 95 (x)"
    assert lost_gpus_in(reason) == (0, 3)
    assert lost_gpus_in("GPU 5: XID 48 (double-bit ECC error)") is None
