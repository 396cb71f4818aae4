"""What NCCL says in its log that it moves data over: NVLink, memory, InfiniBand, sockets.

With NCCL_DEBUG=INFO each communicator states its network ("Using network IB"), and each channel how one rank reaches
the next ("Channel 00/0 : 1[1] -> 8[0] [receive] via NET/IB/0/GDRDMA"). NCCL does not fail where it finds no RDMA
device: it goes on over sockets, many times slower. This module reads those lines; prefixes of launchers, unknown lines
and torn ones are passed over. The format is that of NCCL 2.4 to 2.30 and RCCL (src/transport, src/init.cc).
"""

import re
from collections import Counter
from dataclasses import dataclass

IB, SOCKET = "IB", "Socket"
MAX_LINE_CHARS = 4000
"""A longer line is none of these."""

_NETWORK = re.compile(r"NCCL INFO Using network (\S[^\r\n]{0,99})")
_CHANNEL = re.compile(
    r"NCCL INFO (?:Channel|Ring) [0-9]{1,4}(?:/[0-9]{1,4})? : "
    r"[0-9]{1,7}\[[0-9a-f]{1,8}\] -> [0-9]{1,7}\[[0-9a-f]{1,8}\](?: \[(?:send|receive)\])? via ([^\r\n]{1,100})"
)
_DEVICES = re.compile(r"NCCL INFO NET/IB ?: Using (\[0\]\S[^\r\n]{0,2000})")
_DEVICE = re.compile(r"\[[0-9]{1,3}\]([^\s:\[\]]{1,64}):[0-9]{1,3}/")
_NO_DEVICE = re.compile(r"NCCL INFO NET/IB ?: No device found")


@dataclass(frozen=True, slots=True)
class NcclTransports:
    """What one log, of one rank or of many, says.

    networks are the words after "Using network", in order, each once. channels counts connections by transport ("P2P",
    "SHM", "NET/IB", "NET/Socket", or "NET/" and a plug-in's name); gdr are those of "NET/..." with GPUDirect RDMA.
    ib_devices are the RDMA devices that NCCL uses, no_ib_device whether it says that it found none.
    """

    networks: tuple[str, ...] = ()
    channels: tuple[tuple[str, int], ...] = ()
    gdr: int = 0
    ib_devices: tuple[str, ...] = ()
    no_ib_device: bool = False

    @property
    def is_over_sockets(self) -> bool:
        """Whether any data goes through TCP sockets: by its channels, or, where none is named, by its network."""
        of_network = {name for name, _ in self.channels if name.startswith("NET/")}
        return f"NET/{SOCKET}" in of_network or (not self.channels and SOCKET in self.networks)

    @property
    def sentence(self) -> str:
        """What is used, for people; "" where the log says nothing."""
        used = [f"{name} ({count})" for name, count in self.channels]
        if not used:
            return f"network {', '.join(self.networks)}" if self.networks else ""
        return f"channels over {', '.join(used)}" + (f"; {self.gdr} with GDR" if self.gdr else "")


def read_transports(text: str) -> NcclTransports:
    """Return what a log says; an empty answer for a log without a line of it."""
    networks: dict[str, None] = {}
    channels: Counter[str] = Counter()
    devices: dict[str, None] = {}
    gdr, no_device = 0, False
    for line in text.splitlines():
        if len(line) > MAX_LINE_CHARS:
            continue
        if match := _NETWORK.search(line):
            networks[match[1].strip()] = None
        elif match := _CHANNEL.search(line):
            channels[_transport(match[1])] += 1
            gdr += "/GDRDMA" in match[1]
        elif match := _DEVICES.search(line):
            devices.update(dict.fromkeys(_DEVICE.findall(match[1])))
        elif _NO_DEVICE.search(line):
            no_device = True
    return NcclTransports(
        tuple(networks), tuple(sorted(channels.items())), gdr, tuple(devices), no_device
    )


def _transport(via: str) -> str:
    """Return "NET/IB" of NET/IB/0/GDRDMA, "P2P" of P2P/CUMEM, "SHM" of SHM/direct/direct."""
    parts = via.split("/")
    return "/".join(parts[:2]) if parts[0] == "NET" else parts[0]
