"""An imported machine as a matrix, or an imported fabric as tiers, for people. The command prints warnings."""

from collections import Counter
from collections.abc import Iterable, Iterator

from gantree.cli.output.printing import columns
from gantree.text.words import plural
from gantree.topology.discovery.fabrics import FabricReading
from gantree.topology.discovery.gpus import GpuTopology


def description_of_machine(topology: GpuTopology) -> str:
    """The links as a matrix, then per GPU its CPU node and NICs, then the islands that the GPUs' own links make."""
    head = ["", *(f"GPU{gpu}" for gpu in range(topology.gpus)), "NUMA", "NEAREST NICS"]
    rows = [
        [
            f"GPU{gpu}",
            *(link or "?" for link in topology.links[gpu]),
            "?" if topology.numa[gpu] is None else str(topology.numa[gpu]),
            ",".join(_devices(topology, topology.nearest_nics()[gpu])) or "any",
        ]
        for gpu in range(topology.gpus)
    ]
    islands = [",".join(str(gpu) for gpu in island) for island in topology.nvlink_islands()]
    islands_line = (
        f"{_kind_of_links(topology)} islands: {'; '.join(islands)}"
        if islands
        else "No NVLink or xGMI."
    )
    models = Counter(model for model in topology.model_of_gpu if model)
    named = ", ".join(f"{count} x {model}" for model, count in models.items())
    head_line = plural(topology.gpus, "GPU") + (f": {named}" if named else "")
    return "\n".join([head_line, columns(head, rows), islands_line, *topology.inferred])


def _devices(topology: GpuTopology, nics: Iterable[str]) -> list[str]:
    """NICs by their devices, where a legend tells them."""
    return [topology.device_of_nic.get(nic, nic) for nic in nics]


def _kind_of_links(topology: GpuTopology) -> str:
    links = {link or "" for row in topology.links for link in row}
    return "xGMI" if any(link.startswith("XGMI") for link in links) else "NVLink"


def description_of_fabric(reading: FabricReading) -> str:
    """How many nodes, the tiers with how many domains of how many nodes, then what lies beside the tree."""
    lines = [plural(len(reading.nodes), "node")]
    if reading.tiers and reading.nodes:
        rows = [_tier_row(reading, number) for number in range(len(reading.tiers))]
        lines.append(columns(["TIER", "DOMAINS", "NODES EACH", "FOR EXAMPLE"], rows))
    lines += _beside(reading)
    return "\n".join([*lines, *reading.inferred])


def _tier_row(reading: FabricReading, number: int) -> list[str]:
    sizes = Counter(node.at[: number + 1] for node in reading.nodes)
    least, most = min(sizes.values(), default=0), max(sizes.values(), default=0)
    each = str(most) if least == most else f"{least} to {most}"
    example = "/".join(next(iter(sizes), ()))
    return [reading.tiers[number], str(len(sizes)), each, example]


def _beside(reading: FabricReading) -> Iterator[str]:
    partitions: dict[str, set[str]] = {}
    for node in reading.nodes:
        for partition, domain in node.partitions:
            partitions.setdefault(partition, set()).add(domain)
    for partition, domains in partitions.items():
        yield f"partition {partition}: {plural(len(domains), 'domain')}"
    for torus in reading.tori:
        yield f"torus {torus.name}: {' x '.join(map(str, torus.dims))}, {plural(len(torus.nodes), 'node')}"
    rails = {nic.rail for node in reading.nodes for nic in node.nics if nic.rail is not None}
    if rails:
        yield f"rails: {len(rails)}"
