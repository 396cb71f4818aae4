"""What can be measured on this node: GPUs and the paths between them, or processes without GPUs."""

from collections.abc import Mapping
from dataclasses import dataclass

from gantree.model.cluster import Machine
from gantree.model.errors import BadInput, Unreachable, Unsupported
from gantree.telemetry.measuring.launch import HOW, Launch
from gantree.telemetry.measuring.measure import visible_gpus
from gantree.telemetry.measuring.plan import Together, gpu_sets, processes_of_host
from gantree.telemetry.nvml import driver as nvml
from gantree.text.words import plural


@dataclass(frozen=True, slots=True)
class Gpus:
    """Usable GPUs of this node. uuids and links (classes between them) are empty if unknown."""

    count: int
    uuids: tuple[str, ...] = ()
    links: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Share:
    """What this command does of a node: so many processes, on these GPUs; sets are of the whole node."""

    processes: int
    in_node: tuple[Together, ...]
    gpu_uuids: tuple[str, ...] = ()


def gpus_here(wished: int | None, machine: Machine | None, env: Mapping[str, str]) -> Gpus:
    """Return the first `wished` GPUs that this process may use (None: all).

    The driver tells them; where none answers (other makes have another), only a wish says that there are any, and
    `machine`, if given, how they are joined. Raises BadInput where fewer are there than wished.
    """
    try:
        uuids, links = nvml.uuids(), nvml.detect().machine.links
    except Unreachable:
        links = machine.links if machine else ()
        known = links if wished is not None and wished <= len(links) else ()
        return Gpus(wished or 0, (), _among(known, range(wished or 0)))
    visible = visible_gpus(uuids, env)
    if wished is not None and wished > len(visible):
        raise BadInput(f"--gpus {wished}: {plural(len(visible), 'GPU')} may be used here")
    used = visible if wished is None else visible[:wished]
    return Gpus(len(used), tuple(uuids[gpu] for gpu in used), _among(links, used))


def _among(
    links: tuple[tuple[str, ...], ...], gpus: range | tuple[int, ...]
) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(links[a][b] for b in gpus) for a in gpus) if links else ()


def share_of(kind: str, gpus: Gpus, processes: int | None, launch: Launch | None) -> Share:
    """Return what this command does with a backend: all of its node, or one of several shares of it.

    Raises Unsupported or BadInput where that leaves nothing to time.
    """
    shares = launch.local_count if launch else 1
    if kind == "gloo":
        mine = processes or (1 if launch else 2)
        share = Share(mine, processes_of_host(mine * shares))
    elif launch and shares > 1:
        links = gpus.links if len(gpus.links) >= shares else ()
        own = gpus.uuids[launch.local_index % len(gpus.uuids)] if gpus.uuids else None
        share = Share(1, gpu_sets(links, range(shares)), (own,) if own else ())
    else:
        share = Share(gpus.count, gpu_sets(gpus.links, range(gpus.count)), gpus.uuids)
    if launch is None and not share.in_node:
        alone = "one process" if kind == "gloo" else "one GPU"
        wrong = BadInput if kind == "gloo" else Unsupported
        raise wrong(f"{alone} alone has nothing to send to; to measure across nodes, {HOW}")
    return share
