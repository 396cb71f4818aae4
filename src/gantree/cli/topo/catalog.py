"""`gantree topo catalog`: machine and GPU models of the catalogue: links, MIG profiles, prices."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from gantree import formats
from gantree.cli.input.files import read_text, source_of
from gantree.cli.options import JsonOption, ListPricesOption
from gantree.cli.output.errors import warn
from gantree.cli.output.figures import dollars
from gantree.cli.output.prices import MARKETS, unknown_gpu_warnings
from gantree.cli.output.printing import columns, print_json
from gantree.model.cluster import Machine
from gantree.model.errors import BadInput
from gantree.text.words import did_you_mean, shortened
from gantree.topology.hardware.catalog import MACHINES
from gantree.topology.hardware.gpu_models import GPU_MODELS, GpuModel
from gantree.topology.hardware.mig import MigProfile, mig_table
from gantree.topology.hardware.prices import LIST_PRICES, PriceList, Quote

UNKNOWN = "?"
OF_SITE = "*"
"""Marks a price that is not the catalogue's."""


def topo_catalog(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A machine or GPU model. [default: all]")
    ] = None,
    prices: ListPricesOption = None,
    as_json: JsonOption = False,
) -> None:
    """List machine and GPU models with links, MIG profiles and prices."""
    known = formats.read_prices(read_text(prices), source_of(prices)) if prices else LIST_PRICES
    machines, gpus = _chosen(name)
    for warning in unknown_gpu_warnings(known):
        warn(warning)
    if as_json:
        machines_json = [_machine_json(machine) for machine in machines]
        print_json({"machines": machines_json, "gpus": [_gpu_json(gpu, known) for gpu in gpus]})
        return
    typer.echo("\n\n".join(_tables(machines, gpus, known, detailed=name is not None)))


def _chosen(name: str | None) -> tuple[Sequence[Machine], Sequence[GpuModel]]:
    """A machine comes with its GPU. BadInput names what is near."""
    if name is None:
        return list(MACHINES.values()), list(GPU_MODELS.values())
    if name in MACHINES:
        machine = MACHINES[name]
        gpu = GPU_MODELS.get(machine.gpu or "")
        return [machine], [gpu] if gpu else []
    if name in GPU_MODELS:
        return [machine for machine in MACHINES.values() if machine.gpu == name], [GPU_MODELS[name]]
    raise BadInput(f"no machine or GPU model {shortened(name)!r}. {_likely(name)}")


def _likely(name: str) -> str:
    """Models that begin with a name, else the nearest one, else where they are listed."""
    names = [*MACHINES, *GPU_MODELS]
    longer = [each for each in names if name and each.lower().startswith(name.lower())]
    if len(longer) > 1:
        return f"Models with this prefix: {', '.join(longer)}."
    return did_you_mean(name, names) or "`gantree topo catalog` lists all models."


def _tables(
    machines: Sequence[Machine], gpus: Sequence[GpuModel], known: PriceList, detailed: bool
) -> list[str]:
    tables = []
    if machines:
        head = ["MACHINE", "GPUS", "GPU", "LINKS", "NICS", "CPUS", "MEMORY"]
        tables.append(columns(head, [_machine_row(machine) for machine in machines]))
    if gpus:
        head = ["GPU", "MEMORY", "ARCHITECTURE", "LINKS", "PCIE", "MIG", "ON DEMAND", "SPOT"]
        note = f"\n{OF_SITE} site price" if any(_of_site(q) for q in known.quotes) else ""
        tables.append(columns(head, [_gpu_row(gpu, known) for gpu in gpus]) + note)
    return tables + (_details(gpus, known) if detailed else [])


def _machine_row(machine: Machine) -> list[str]:
    links = {link for row in machine.links for link in row} - {"X"}
    return [
        machine.name,
        str(machine.gpus),
        machine.gpu or "-",
        " ".join(sorted(link or UNKNOWN for link in links)) or "-",
        str(len(machine.nics)) if machine.nics_counted else UNKNOWN,
        UNKNOWN if machine.cpus is None else f"{machine.cpus:g}",
        UNKNOWN if machine.memory_GiB is None else f"{machine.memory_GiB:g} GiB",
    ]


def _gpu_row(gpu: GpuModel, known: PriceList) -> list[str]:
    rate = UNKNOWN if gpu.link_GBps is None else f"{gpu.link_GBps:g} GB/s"
    links = UNKNOWN if gpu.links is None else gpu.links
    table = mig_table(gpu.name)
    return [
        gpu.name,
        UNKNOWN if gpu.memory_GiB is None else f"{gpu.memory_GiB:g} GiB",
        gpu.architecture,
        f"{links} x {gpu.link}, {rate}" if gpu.link else "-",
        UNKNOWN if gpu.pcie_generation is None else f"gen {gpu.pcie_generation}",
        f"{len(table.profiles)} profiles" if table else "-",
        *(_price(known.quote(gpu.name, market)) for market in MARKETS),
    ]


def _price(quote: Quote | None) -> str:
    if quote is None:
        return "-"
    return f"{dollars(quote.USD_per_hour)}/h{OF_SITE if _of_site(quote) else ''}"


def _of_site(quote: Quote) -> bool:
    return quote not in LIST_PRICES.quotes


def _quotes(gpu: GpuModel, known: PriceList) -> list[Quote]:
    """Of a GPU, however the site writes its name."""
    found = (known.quote(gpu.name, market) for market in MARKETS)
    return [quote for quote in found if quote is not None]


def _details(gpus: Sequence[GpuModel], known: PriceList) -> list[str]:
    """MIG profiles with the memory slices they may start at, and where prices are from."""
    details = []
    for gpu in gpus:
        table = mig_table(gpu.name)
        if table:
            head = ["MIG PROFILE", "COMPUTE", "MEMORY SLICES", "STARTS", "MOST"]
            places = (
                "\nStarts are inferred from a GPU with the same fractions."
                if table.places_inferred
                else ""
            )
            details.append(columns(head, [_mig_row(each) for each in table.profiles]) + places)
        quotes = _quotes(gpu, known)
        details += ["\n".join(_quote_line(quote) for quote in quotes)] if quotes else []
    return details


def _mig_row(profile: MigProfile) -> list[str]:
    starts = ",".join(map(str, profile.starts))
    return [
        profile.name,
        str(profile.compute_slices),
        str(profile.memory_slices),
        starts,
        str(profile.most),
    ]


def _quote_line(quote: Quote) -> str:
    where = f" ({quote.region})" if quote.region else ""
    market = quote.market.replace("_", " ")
    whose = "site price, " if _of_site(quote) else ""
    return f"{market} ${quote.USD_per_hour:g}/h: {whose}{quote.source}{where}, {quote.date}"


def _machine_json(machine: Machine) -> dict[str, Any]:
    return {
        "name": machine.name,
        "gpus": machine.gpus,
        "gpu": machine.gpu,
        "nics": [
            {
                "name": nic.name,
                "near": list(nic.near),
                "rail": nic.rail,
                "bandwidth_GBps": nic.bandwidth_GBps,
            }
            for nic in machine.nics
        ],
        "cpus": machine.cpus,
        "memory_GiB": machine.memory_GiB,
    }


def _gpu_json(gpu: GpuModel, known: PriceList) -> dict[str, Any]:
    table = mig_table(gpu.name)
    return {
        "name": gpu.name,
        "memory_GiB": gpu.memory_GiB,
        "architecture": gpu.architecture,
        "link": gpu.link or None,
        "links": gpu.links,
        "link_GBps": gpu.link_GBps,
        "pcie_generation": gpu.pcie_generation,
        "mig": [_mig_json(profile) for profile in table.profiles] if table else [],
        "prices": [
            {"market": quote.market, "USD_per_hour": quote.USD_per_hour, "date": quote.date,
             "source": quote.source, "region": quote.region or None, "of_site": _of_site(quote)}
            for quote in _quotes(gpu, known)
        ],
    }  # fmt: skip


def _mig_json(profile: MigProfile) -> dict[str, Any]:
    return {
        "profile": profile.name,
        "compute_slices": profile.compute_slices,
        "memory_slices": profile.memory_slices,
        "starts": list(profile.starts),
        "most": profile.most,
    }
