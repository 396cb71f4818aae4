"""Checks the active NVLinks of `nvidia-smi nvlink -s` against the links of a matrix.

A GPU with k links up has at most k to another GPU. Where its links go straight to GPUs, those to all others make k
together; where they go to NVSwitches, each pair has all k. So a pair that bonds more than k names links that are
down, and a k that is neither leaves links that lead out of the machine, or nowhere.
"""

from collections.abc import Iterator

from gantree.model.errors import BadInput
from gantree.text.words import plural
from gantree.topology.discovery.gpus import GpuTopology
from gantree.topology.discovery.machines.nvidia.nvlink_status import NvlinkStatus
from gantree.topology.hardware.catalog import bonded_links


def nvlink_warnings(source: str, status: NvlinkStatus, machine: GpuTopology) -> Iterator[str]:
    """Yield what does not fit. GPUs are matched by UUID where both give UUIDs, else by number.

    BadInput where the print is of a GPU that the machine does not have.
    """
    for at, number in enumerate(status.gpus):
        gpu = _gpu(source, number, status.uuid_of_gpu[at], machine)
        active, links = status.active_of_gpu[at], status.links_of_gpu[at]
        widths = [bonded_links(link) for link in machine.links[gpu] if link]
        given = [width for width in widths if width]
        if active is None:
            continue
        up = f"{active} of {links} links active" if links else f"{plural(active, 'link')} active"
        if given and max(given) > active:
            yield f"GPU{gpu}: {up} ({source}), but its widest link is NV{max(given)}"
        elif given and active not in (max(given), sum(given)) and None not in machine.links[gpu]:
            yield (
                f"GPU{gpu}: {up} ({source}), but those to other GPUs are {sum(given)}: "
                "the rest lead out of this machine, or to a GPU that is not seen"
            )
        elif active and not given and len(machine.links) > 1 and None not in machine.links[gpu]:
            yield f"GPU{gpu}: {up} ({source}), but no NVLink leads to another GPU of this machine"


def _gpu(source: str, number: int, uuid: str | None, machine: GpuTopology) -> int:
    if uuid and uuid in machine.uuid_of_gpu:
        return machine.uuid_of_gpu.index(uuid)
    known = machine.uuid_of_gpu and all(machine.uuid_of_gpu)
    if number >= machine.gpus or (uuid and known):
        name = f"GPU {number}" + (f" ({uuid})" if uuid else "")
        raise BadInput(
            f"{source}: {name} is none of the {plural(machine.gpus, 'GPU')} of the other readings; "
            "give readings of one machine"
        )
    return number
