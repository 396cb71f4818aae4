"""Bandwidth of GPUs out of their machine: the NICs they use, and the rate. Links beyond the node are in `paths`.

A GPU uses the NICs that it is near to; if none is, all that are near to some other GPU of the machine (reached over
that GPU, or over the link between sockets); if no NIC is near to any, all. The GPUs of a gang use each other's NICs
over NVLink (NCCL's PXN), so a set of GPUs has the NICs of all its members. Each NIC counts with the least of its rate
and its path, which ends in the best PCIe port of the GPUs near to it, and the GPUs' own ports bound the sum. NICs that
GPUs outside the set use at the same time are shared in proportion to the GPUs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gantree.model.cluster import Machine, Nic
from gantree.topology.hardware.catalog import link_GBps
from gantree.topology.hardware.constants import NIC_ON_CPU_SHARE, traits
from gantree.topology.hardware.masks import gpus_of, mask_of

_OFF_THE_SWITCH = frozenset({"PHB", "NODE", "SYS"})


@dataclass(frozen=True, slots=True)
class NicEgress:
    """What GPUs of a machine can send out of it. Build it with `NicEgress.of`.

    GBps_of_nic is what each NIC carries with what is left of it, users_of_nic the mask of GPUs that use it when they
    send alone; near_of_gpu and else_nics that from the GPU's side; port_GBps_of_gpu the GPUs' PCIe ports. A machine of
    which no NIC is known has one for each GPU.
    """

    GBps_of_nic: tuple[float, ...]
    users_of_nic: tuple[int, ...]
    near_of_gpu: tuple[int, ...]
    else_nics: int
    port_GBps_of_gpu: tuple[float, ...]
    alone_GBps: float

    @classmethod
    def of(
        cls,
        machine: Machine,
        residual_of_nic: Mapping[str, float],
        least_nic_GBps: float = 0.0,
        residual_of_port: Mapping[int, float] = MappingProxyType({}),
    ) -> "NicEgress":
        """Gather them. residual_of_nic is by name, 1 where not told; least_nic_GBps what a NIC whose rate is not told
        has at least, because the site's links say so; residual_of_port what is left of GPUs' PCIe ports.
        """
        default_GBps = max(traits(machine.gpu).nic_GBps, least_nic_GBps)
        port = link_GBps("PIX", machine.gpu)
        near = [mask_of(nic.near) for nic in machine.nics]
        near_of_gpu = tuple(
            mask_of(nic for nic, gpus in enumerate(near) if gpus >> gpu & 1)
            for gpu in range(machine.gpus)
        )
        with_near = mask_of(nic for nic, gpus in enumerate(near) if gpus)
        else_nics = with_near or mask_of(range(len(near)))
        ports = tuple(port * residual_of_port.get(gpu, 1.0) for gpu in range(machine.gpus))
        used = [own or else_nics for own in near_of_gpu]
        return cls(
            GBps_of_nic=tuple(
                min(
                    _nic_GBps(nic, port, default_GBps) * residual_of_nic.get(nic.name, 1.0),
                    max((ports[gpu] for gpu in nic.near), default=port),
                )
                for nic in machine.nics
            ),
            users_of_nic=tuple(
                mask_of(gpu for gpu, nics in enumerate(used) if nics >> nic & 1)
                for nic in range(len(near))
            ),
            near_of_gpu=near_of_gpu,
            else_nics=else_nics,
            port_GBps_of_gpu=ports,
            alone_GBps=min(port, default_GBps),
        )

    def out_GBps(self, mask: int, busy: int) -> float:
        """What the GPUs of a mask send out of the node while all of `busy` (them and others of the gang) send too."""
        gpus = gpus_of(mask)
        if not self.GBps_of_nic:
            return sum(min(self.alone_GBps, self.port_GBps_of_gpu[gpu]) for gpu in gpus)
        nics = 0
        for gpu in gpus:
            nics |= self.near_of_gpu[gpu] or self.else_nics
        total = sum(self._share(nic, mask, busy) for nic in gpus_of(nics))
        return min(total, sum(self.port_GBps_of_gpu[gpu] for gpu in gpus))

    def _share(self, nic: int, mask: int, busy: int) -> float:
        """What a set has of a NIC beside others that use it too: in proportion, one GPU one part."""
        users = self.users_of_nic[nic] & busy
        part = (users & mask).bit_count() / users.bit_count() if users else 1.0
        return self.GBps_of_nic[nic] * part


def _nic_GBps(nic: Nic, port_GBps: float, default_GBps: float) -> float:
    """The least of a NIC's rate and its path to the GPUs."""
    off_the_switch = nic.path in _OFF_THE_SWITCH or not nic.near
    path_GBps = port_GBps * NIC_ON_CPU_SHARE if off_the_switch else port_GBps
    rate = default_GBps if nic.bandwidth_GBps is None else nic.bandwidth_GBps
    return min(rate, path_GBps)
