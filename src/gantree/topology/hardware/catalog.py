"""The catalogue: machine models by name. The machines themselves are in `machine_models`, GPUs in `gpu_models`.

What a site writes itself is read by `formats`; what a driver prints is read by `topology.discovery`. Words for links
are those of `link_classes`, handed on here because who asks for a machine reads its links.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType

from gantree.model.cluster import Machine, Nic
from gantree.model.errors import BadInput
from gantree.topology.hardware.link_classes import (
    PATH_CLASSES,
    SELF,
    bonded_links,
    is_link_class,
    link_GBps,
    weakness,
)
from gantree.topology.hardware.machine_models import ALL_MACHINES

__all__ = [
    "MACHINES",
    "PATH_CLASSES",
    "SELF",
    "bonded_links",
    "is_link_class",
    "link_GBps",
    "machine",
    "plain",
    "weakness",
]

MACHINES: Mapping[str, Machine] = MappingProxyType({model.name: model for model in ALL_MACHINES})
"""All machine models by name."""


def machine(name: str) -> Machine:
    """Return the machine model of that name. BadInput names the nearest ones."""
    if name in MACHINES:
        return MACHINES[name]
    near = get_close_matches(name.lower(), MACHINES, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(sorted(MACHINES))}"
    raise BadInput(f"no machine model {name!r}; {hint}")


def plain(
    name: str,
    gpus: int,
    gpu: str | None = None,
    cpus: float | None = None,
    memory_GiB: float | None = None,
    nics: int = 0,
) -> Machine:
    """Return a machine of which only counts are known. BadInput for negative ones.

    Its links are unknown and therefore equal; its NICs are mlx5_0, mlx5_1... on rails of their own, spread evenly
    over the GPUs.
    """
    if min(gpus, nics, cpus or 0, memory_GiB or 0) < 0:
        raise BadInput(f"machine {name!r} has a negative count")
    return Machine(
        name,
        gpus,
        gpu if gpus else None,
        nics=_spread(nics, gpus),
        cpus=cpus,
        memory_GiB=memory_GiB,
    )


def _spread(nics: int, gpus: int) -> tuple[Nic, ...]:
    """Name NICs and share the GPUs out among them, or, where there are more NICs, the NICs among the GPUs."""

    def near(nic: int) -> tuple[int, ...]:
        return tuple(g for g in range(gpus) if g * nics // gpus == nic or nic * gpus // nics == g)

    return tuple(Nic(f"mlx5_{nic}", near(nic), rail=nic) for nic in range(nics))
