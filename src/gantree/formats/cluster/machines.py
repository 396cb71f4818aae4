"""The `machines:` entry of a cluster file to and from a `Machine`."""

import json
import re
from collections.abc import Iterable, Sequence, Sized

from gantree.formats.cluster.form import MAX_GPUS_OF_A_MACHINE, MAX_NICS_OF_A_MACHINE, MachineForm
from gantree.model.cluster import Machine, Nic
from gantree.model.errors import Problem
from gantree.text.words import plural
from gantree.topology.hardware import catalog

MAX_KEY = 900
"""Longer keys are written with "? ": YAML takes no longer ones otherwise."""


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
        peer=tuple(tuple(row) for row in form.peer),
        devices=tuple(form.devices.items()),
        numa_memory_GBps=form.numa_memory_GBps,
    )


def _nics(name: str, form: MachineForm) -> tuple[Nic, ...]:
    if form.nics is None:
        return ()
    if isinstance(form.nics, int):
        return catalog.plain(name, form.gpus, nics=form.nics).nics
    return tuple(
        Nic(nic.name, tuple(nic.near), nic.rail, nic.bandwidth_GBps, nic.path) for nic in form.nics
    )


def machine_problems(form: MachineForm) -> list[Problem]:
    """Return what is wrong between the fields of a machine."""
    if form.gpus > MAX_GPUS_OF_A_MACHINE:
        allowed = f"at most {MAX_GPUS_OF_A_MACHINE} GPUs in one machine"
        return [form.problem("gpus", f"`{form.gpus}`", allowed)]
    return [
        *_link_problems(form),
        *_numa_problems(form),
        *_nic_problems(form),
        *_peer_problems(form),
    ]


def _shape_problems(form: MachineForm, field: str, matrix: Sequence[Sized]) -> list[Problem]:
    """Return where a matrix has not a row and a column for each GPU."""
    if len(matrix) != form.gpus:
        allowed = f"{plural(form.gpus, 'row')}, one for each GPU"
        return [form.problem(field, f"{plural(len(matrix), 'row')}", allowed)]
    allowed = f"{plural(form.gpus, 'column')}, one for each GPU"
    return [
        form.problem(field, f"{len(row)} columns", allowed, at=(a,))
        for a, row in enumerate(matrix)
        if len(row) != form.gpus
    ]


def _peer_problems(form: MachineForm) -> list[Problem]:
    if not form.peer or "gpus" in form.lost or form.any_lost("peer"):
        return []
    return _shape_problems(form, "peer", form.peer) or [
        form.problem("peer", "`false`", "true, from a GPU to itself", at=(a, a))
        for a in range(form.gpus)
        if not form.peer[a][a]
    ]


def _link_problems(form: MachineForm) -> list[Problem]:
    links, gpus = form.links, form.gpus
    if not links or "gpus" in form.lost or form.any_lost("links"):
        return []
    return _shape_problems(form, "links", links) or [
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


def write_machines(machines: Iterable[Machine]) -> str:
    """Return a `machines:` section with these machines in full; read back, it gives the same machines."""
    lines = [line for machine in machines for line in machine_lines(machine)]
    return "\n".join(["machines:", *lines]) + "\n"


def machine_lines(machine: Machine) -> list[str]:
    """Return the entry of a machine below `machines:`, line by line."""
    lines = [f"  {word(machine.name)}:", f"    gpus: {machine.gpus}"]
    if machine.gpu is not None:
        lines.append(f"    gpu: {word(machine.gpu)}")
    lines += _matrix_lines("links", [[link or "null" for link in row] for row in machine.links])
    if machine.numa:
        numbers = ", ".join("null" if node is None else str(node) for node in machine.numa)
        lines.append(f"    numa: [{numbers}]")
    lines += _nics_lines(machine)
    if machine.cpus is not None:
        lines.append(f"    cpus: {amount(machine.cpus)}")
    if machine.memory_GiB is not None:
        lines.append(f"    memory_GiB: {amount(machine.memory_GiB)}")
    if machine.devices:
        lines += ["    devices:", *(f"      {key(name)}: {n}" for name, n in machine.devices)]
    if machine.numa_memory_GBps is not None:
        lines.append(f"    numa_memory_GBps: {amount(machine.numa_memory_GBps)}")
    return lines + _matrix_lines(
        "peer", [[yes_no(is_peer) for is_peer in row] for row in machine.peer]
    )


def _matrix_lines(field: str, rows: list[list[str]]) -> list[str]:
    """Return the matrix, a row a line, in columns."""
    if not rows:
        return []
    width = max(len(cell) for row in rows for cell in row)
    cells = [", ".join(cell.rjust(width) for cell in row) for row in rows]
    return [f"    {field}:", *(f"      - [{row}]" for row in cells)]


def _nics_lines(machine: Machine) -> list[str]:
    if not machine.nics:
        return ["    nics: 0"] if machine.nics_counted else []
    return ["    nics:", *(f"      - {_nic(nic)}" for nic in machine.nics)]


def _nic(nic: Nic) -> str:
    near = ", ".join(str(gpu) for gpu in nic.near)
    rail = "" if nic.rail is None else f", rail: {nic.rail}"
    rate = "" if nic.bandwidth_GBps is None else f", bandwidth_GBps: {amount(nic.bandwidth_GBps)}"
    path = f", path: {nic.path}" if nic.path else ""
    return f"{{name: {word(nic.name)}, near: [{near}]{rail}{rate}{path}}}"


_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def word(text: str) -> str:
    """Write text so that YAML reads the same text: quoted unless it is a plain word."""
    plain = (
        text.isascii() and text.replace("-", "").replace("_", "").isalnum() and text[0].isalpha()
    )
    if plain and text.lower() not in {"true", "false", "null"}:
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return _ESCAPED.sub(lambda sign: f"\\u{ord(sign[0]):04x}", quoted)


def key(text: str) -> str:
    """Write text so that YAML reads it as a key before a `:`."""
    written = word(text)
    return f"? {written} " if len(written) > MAX_KEY else written


def amount(value: float) -> str:
    """Write a number so that it reads back the same."""
    return str(int(value)) if value == int(value) else repr(value)


def yes_no(value: bool) -> str:
    """Write a truth as YAML 1.2 does."""
    return "true" if value else "false"
