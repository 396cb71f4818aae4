"""The `machines:` entry of a cluster file to and from a `Machine`."""

import json

from gantree.formats.cluster_form import MAX_GPUS_OF_A_MACHINE, MAX_NICS_OF_A_MACHINE, MachineForm
from gantree.model.cluster import NO_LINK, Machine, Nic
from gantree.model.errors import Problem
from gantree.topology import catalog


def machine_of(name: str, form: MachineForm) -> Machine:
    """Return the machine of a form that `machine_problems` found nothing against.

    A mere count of NICs gets the names and places that `catalog.plain` assumes.
    """
    return Machine(
        name=name,
        gpus=form.gpus,
        gpu=form.gpu,
        links=tuple(tuple(row) for row in form.links),
        numa=tuple(form.numa),
        nics=_nics(name, form),
        cpus=form.cpus,
        memory_GiB=form.memory_GiB,
        nics_counted=form.nics is not None,
    )


def _nics(name: str, form: MachineForm) -> tuple[Nic, ...]:
    if form.nics is None:
        return ()
    if isinstance(form.nics, int):
        return catalog.plain(name, form.gpus, nics=form.nics).nics
    return tuple(Nic(nic.name, tuple(nic.near), nic.rail) for nic in form.nics)


def machine_problems(form: MachineForm) -> list[Problem]:
    """Return what is wrong between the fields of a machine."""
    if form.gpus > MAX_GPUS_OF_A_MACHINE:
        allowed = f"at most {MAX_GPUS_OF_A_MACHINE} GPUs in one machine"
        return [form.problem("gpus", f"`{form.gpus}`", allowed)]
    return [*_link_problems(form), *_numa_problems(form), *_nic_problems(form)]


def _link_problems(form: MachineForm) -> list[Problem]:
    links, gpus = form.links, form.gpus
    if not links or "gpus" in form.lost or form.any_lost("links"):
        return []
    if len(links) != gpus:
        return [form.problem("links", f"{len(links)} rows", f"{gpus} rows, one for each GPU")]
    found = [
        form.problem("links", f"{len(row)} columns", f"{gpus} columns, one for each GPU", at=(a,))
        for a, row in enumerate(links)
        if len(row) != gpus
    ]
    return found or [
        form.problem("links", f"`{links[a][b] or 'null'}`", _link_rule(links, a, b), at=(a, b))
        for a in range(gpus)
        for b in range(gpus)
        if (links[a][b] == catalog.SELF) != (a == b) or links[a][b] != links[b][a]
    ]


def _link_rule(links: list[list[str]], a: int, b: int) -> str:
    if a == b:
        return "X, from a GPU to itself"
    if links[a][b] == catalog.SELF:
        return "a link class; X stands on the diagonal only"
    return f"`{links[b][a] or 'null'}`, as from GPU {b} to GPU {a}"


def _numa_problems(form: MachineForm) -> list[Problem]:
    lost = "gpus" in form.lost or form.any_lost("numa")
    if not form.numa or len(form.numa) == form.gpus or lost:
        return []
    allowed = f"{form.gpus} numbers, one for each GPU"
    return [form.problem("numa", f"{len(form.numa)} numbers", allowed)]


def _nic_problems(form: MachineForm) -> list[Problem]:
    nics = form.nics or 0
    count = nics if isinstance(nics, int) else len(nics)
    if count > MAX_NICS_OF_A_MACHINE:
        allowed = f"at most {MAX_NICS_OF_A_MACHINE} NICs in one machine"
        return [form.problem("nics", f"{count} NICs", allowed)]
    if isinstance(nics, int):
        return []
    found: list[Problem] = []
    names: set[str] = set()
    for index, nic in enumerate(nics):
        if nic.name in names:
            found.append(
                form.problem("nics", f"`{nic.name}` again", "each NIC once", at=(index, "name"))
            )
        names.add(nic.name)
        found += [
            nic.problem("near", f"GPU `{gpu}`", _gpu_range(form.gpus), at=(place,))
            for place, gpu in enumerate(nic.near)
            if gpu >= form.gpus and "gpus" not in form.lost
        ]
    return found


def _gpu_range(gpus: int) -> str:
    return f"GPUs 0 to {gpus - 1}" if gpus else "none; the machine has no GPU"


def write_machine(machine: Machine) -> str:
    """Return a `machines:` section with this machine in full; read back, it gives the same machine."""
    lines = ["machines:", f"  {_word(machine.name)}:", f"    gpus: {machine.gpus}"]
    if machine.gpu is not None:
        lines.append(f"    gpu: {_word(machine.gpu)}")
    lines += _links_lines(machine)
    if machine.numa:
        numbers = ", ".join("null" if node is None else str(node) for node in machine.numa)
        lines.append(f"    numa: [{numbers}]")
    lines += _nics_lines(machine)
    if machine.cpus is not None:
        lines.append(f"    cpus: {_number(machine.cpus)}")
    if machine.memory_GiB is not None:
        lines.append(f"    memory_GiB: {_number(machine.memory_GiB)}")
    return "\n".join(lines) + "\n"


def _links_lines(machine: Machine) -> list[str]:
    """Return the matrix, a row a line, in columns."""
    if not machine.links:
        return []
    rows = [["null" if link == NO_LINK else link for link in row] for row in machine.links]
    width = max(len(link) for row in rows for link in row)
    cells = [", ".join(link.rjust(width) for link in row) for row in rows]
    return ["    links:", *(f"      - [{row}]" for row in cells)]


def _nics_lines(machine: Machine) -> list[str]:
    if not machine.nics:
        return ["    nics: 0"] if machine.nics_counted else []
    return ["    nics:", *(f"      - {_nic(nic)}" for nic in machine.nics)]


def _nic(nic: Nic) -> str:
    rail = "" if nic.rail is None else f", rail: {nic.rail}"
    near = ", ".join(str(gpu) for gpu in nic.near)
    return f"{{name: {_word(nic.name)}, near: [{near}]{rail}}}"


def _word(text: str) -> str:
    """Write text so that YAML reads the same text: quoted unless it is a plain word."""
    plain = (
        text.isascii() and text.replace("-", "").replace("_", "").isalnum() and text[0].isalpha()
    )
    words = {"true", "false", "null"}
    return text if plain and text.lower() not in words else json.dumps(text, ensure_ascii=False)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
