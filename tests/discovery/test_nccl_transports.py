"""Reading what NCCL uses from its log. The samples are lines of published logs, with host names shortened."""

import pytest

from gantree.topology.discovery.logs.nccl_transports import NcclTransports, read_transports

IB_GDR = """\
gpu0008:207007:207007 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB bond0:10.0.0.8<0>
gpu0008:207007:207007 [0] NCCL INFO Using network IB
gpu0008:207012:207012 [5] NCCL INFO Channel 13/0 : 6[6] -> 13[5] [receive] via NET/IB/5/GDRDMA
gpu0008:207010:207010 [3] NCCL INFO Channel 02/0 : 10[2] -> 1[1] [send] via NET/IB/2/GDRDMA/Shared
gpu0008:207007:208313 [0] NCCL INFO [Proxy Progress] Device 0 CPU core 45
gpu0008:207007:207007 [0] NCCL INFO Channel 00/0 : 8[0] -> 15[7] via P2P/IPC
gpu0008:207007:207007 [0] NCCL INFO Channel 01/0 : 8[0] -> 15[7] via P2P/IPC
"""
FELL_BACK = """\
3767c65d25c4:880:887 [0] NCCL INFO P2P plugin IBext_v8
3767c65d25c4:880:887 [0] NCCL INFO NET/IB : No device found.
3767c65d25c4:880:887 [0] NCCL INFO NET/Socket : Using [0]eth0:172.17.0.2<0>
3767c65d25c4:880:887 [0] NCCL INFO Using network Socket
head:919:1150 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [receive] via NET/Socket/0
head:919:1150 [0] NCCL INFO Channel 04/0 : 8[0] -> 0[0] [send] via NET/Socket/0
head:920:1145 [1] NCCL INFO Channel 04/0 : 9[1] -> 10[2] via P2P/IPC/read
"""
EFA = """\
[1,0]<stdout>:test-nccl-efa-worker-0:21:21 [0] NCCL INFO NET/OFI Selected Provider is efa (found 1 nics)
[1,0]<stdout>:test-nccl-efa-worker-0:21:21 [0] NCCL INFO Using network AWS Libfabric
[1,0]<stdout>:NCCL version 2.12.7+cuda11.4
[1,0]<stdout>:efa-worker-0:21:30 [0] NCCL INFO Channel 00/0 : 1[1b0] -> 0[1b0] [receive] via NET/AWS Libfabric/0/GDRDMA
"""
ONE_NODE = """\
lab:1425048:1425048 [0] NCCL INFO NET/IB : No device found.
lab:1425048:1425048 [0] NCCL INFO NET/IB : Using [RO]; OOB enp129s0:128.114.59.195<0>
lab:1425048:1425048 [0] NCCL INFO Using network Socket
lab:1425048:1425060 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
lab:1425049:1425061 [1] NCCL INFO Channel 00 : 1[1] -> 0[0] via SHM/direct/direct
"""


def test_rdma_with_gpudirect_is_told_from_nvlink() -> None:
    found = read_transports(IB_GDR)
    assert found == NcclTransports(
        networks=("IB",),
        channels=(("NET/IB", 2), ("P2P", 2)),
        gdr=2,
        ib_devices=("mlx5_0", "mlx5_1"),
    )
    assert not found.is_over_sockets
    assert found.sentence == "channels over NET/IB (2), P2P (2); 2 with GDR"


def test_a_fallback_to_sockets_is_seen_by_the_channels() -> None:
    found = read_transports(FELL_BACK)
    assert found.is_over_sockets
    assert found.no_ib_device
    assert dict(found.channels) == {"NET/Socket": 2, "P2P": 1}


def test_sockets_that_no_channel_uses_are_no_fallback() -> None:
    found = read_transports(ONE_NODE)
    assert found.networks == ("Socket",)
    assert dict(found.channels) == {"P2P": 1, "SHM": 1}
    assert not found.is_over_sockets


def test_where_no_channel_is_named_the_network_counts() -> None:
    assert read_transports("h:1:1 [0] NCCL INFO Using network Socket\n").is_over_sockets
    assert not read_transports("h:1:1 [0] NCCL INFO Using network IB\n").is_over_sockets


def test_networks_of_plug_ins_are_named_as_they_name_themselves() -> None:
    found = read_transports(EFA)
    assert found.networks == ("AWS Libfabric",)
    assert (found.channels, found.gdr) == ((("NET/AWS Libfabric", 1),), 1)
    assert not found.is_over_sockets


@pytest.mark.parametrize(
    "text", ["", "NCCL INFO Channel 00/0 : 0[0] -> ", "x" * 100_000, "\0\n\xff"]
)
def test_other_text_says_nothing(text: str) -> None:
    assert read_transports(text) == NcclTransports()
    assert read_transports(text).sentence == ""
