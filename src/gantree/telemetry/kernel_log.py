"""Parses messages of the kernel about GPUs that fail. Pure: `control.nodes` judges what was found.

A line is a record of /dev/kmsg, or a line that dmesg, journalctl or syslog wrote; a host name that syslog put into it
names the node. What is read of it:

    NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.       drivers of today
    NVRM: Xid (PCI:0000:01:00 GPU-I:05): 95, pid=7194, ...                                   of a MIG instance
    NVRM: Xid (0000:03:00): 48, ...                                                          drivers before 2013
    NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.                                      beside the XID, or alone
    NVRM: GPU at PCI:0000:3b:00.0 has fallen off the bus.
    NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:26b5) ... fallen off the bus and is not responding to commands.
    amdgpu 0000:83:00.0: amdgpu: device lost from bus!                                       AMD

A GPU is told by its PCI address, domain:bus:device in hexadecimal digits. A number that is too long, or any other
text, is no fault.
"""

import re
from dataclasses import dataclass

from gantree.topology.hardware.xids import OFF_THE_BUS

_ADDRESS = r"(?:PCI:)?(?P<address>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-7])?"
_XID = re.compile(rf"NVRM: Xid \({_ADDRESS}(?: GPU-I:[0-9a-fA-F]+)?\): (?P<xid>\d{{1,3}})(?!\d)")
_NVIDIA_LOST = re.compile(rf"NVRM: .*?GPU (?:at )?{_ADDRESS}\b.*?fallen off the bus")
_AMD_LOST = re.compile(rf"amdgpu {_ADDRESS}: (?:amdgpu: )?device lost from bus")
_HOST = re.compile(
    r"(?:<\d{1,3}>1? ?)?"
    r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[0-9:.]+(?:Z|[+-]\d\d:?\d\d))"
    r" (?P<host>[A-Za-z0-9][A-Za-z0-9._-]{0,252}) kernel\b"
)
MARKS = ("NVRM:", "amdgpu")
"""A line without any of these is about no GPU."""
DIGITS_OF_DOMAIN = 4


@dataclass(frozen=True, slots=True)
class KernelFault:
    """A message about a GPU: its PCI address (0000:3b:00), an XID, or lost from the bus; host: None where unnamed."""

    host: str | None
    address: str
    xid: int


def fault_in(line: str) -> KernelFault | None:
    """Return what a line says of a GPU that fails; None for any other line."""
    xid = _XID.search(line)
    found = xid or _NVIDIA_LOST.search(line) or _AMD_LOST.search(line)
    if found is None:
        return None
    host = _HOST.match(line)
    number = OFF_THE_BUS if xid is None else int(xid["xid"])
    return KernelFault(None if host is None else host["host"], address_of(found["address"]), number)


def address_of(text: str) -> str:
    """A PCI address as all sources are compared by: domain of four digits or more, no function, lower case."""
    domain, _, rest = text.strip().lower().partition(":")
    return f"{domain.lstrip('0').rjust(DIGITS_OF_DOMAIN, '0')}:{rest.partition('.')[0]}"
