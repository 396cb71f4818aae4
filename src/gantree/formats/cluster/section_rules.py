"""Rules on the further sections of a cluster file: partitions, domains, NICs, tori, data and spares.

Like `rules`, a rule looks only at what could be read, and names the line of what breaks it.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from math import prod

from gantree.formats.cluster.form import (
    ClusterForm,
    DataSetForm,
    DomainForm,
    NicFactsForm,
    TorusForm,
)
from gantree.formats.cluster.rules import (
    INNER_TIERS,
    LAST_TIER,
    MAX_NAMES_FOR_A_HINT,
    MAX_NODES,
)
from gantree.model.cluster import Machine
from gantree.model.errors import Problem
from gantree.model.placements import FABRIC_TIER
from gantree.text.hostlists import BadHostlist, count_nodes, expand
from gantree.text.words import did_you_mean, plural

MachineOfNode = Mapping[str, Machine | None]
"""The machine of each node; None where it could not be read."""

DomainsOfTier = dict[str, dict[str, None]]
"""The paths of the domains of each outer tier, in the order of the file."""


def fact_problems(form: ClusterForm, machine_of_node: MachineOfNode) -> Iterator[Problem]:
    """Yield what is wrong with partitions, domains, NICs, tori, data and spares."""
    known = None if form.any_lost("tiers") or form.any_lost("nodes") else _names_of_domains(form)
    yield from _partition_problems(form)
    yield from _domain_problems(form, machine_of_node, known)
    yield from _nic_problems(form, machine_of_node)
    yield from _tori_problems(form, machine_of_node)
    yield from _data_problems(form, machine_of_node, known)
    yield from _spares_problems(form)


def _partition_problems(form: ClusterForm) -> Iterator[Problem]:
    taken = {*form.tiers, *INNER_TIERS, FABRIC_TIER}
    for node in form.nodes:
        for name in node.partitions:
            if name in taken:
                allowed = "a name that is no tier"
                yield node.problem("partitions", f"the tier `{name}`", allowed, at=(name,))


# ----- domains and NICs


def _domain_problems(
    form: ClusterForm, machine_of_node: MachineOfNode, known: DomainsOfTier | None
) -> Iterator[Problem]:
    seen: set[tuple[str, str]] = set()
    for domain in form.domains:
        if known is not None:
            names = machine_of_node if domain.tier == LAST_TIER else known.get(domain.tier)
            yield from _unknown_domain(domain, names, form.tiers)
        if (domain.tier, domain.name) in seen:
            yield domain.problem("name", f"`{domain.name}` again", "each domain once")
        seen.add((domain.tier, domain.name))


def _names_of_domains(form: ClusterForm) -> DomainsOfTier:
    outer = form.tiers[:-1]
    names: DomainsOfTier = {tier: {} for tier in outer}
    for node in form.nodes:
        path: list[str] = []
        for tier in outer:
            path.append(node.at.get(tier, ""))
            names[tier]["/".join(path)] = None
    return names


def _unknown_domain(
    domain: DomainForm, names: Mapping[str, object] | None, tiers: list[str]
) -> Iterator[Problem]:
    if names is None:
        allowed = f"a tier of this cluster ({', '.join(tiers)})"
        hint = did_you_mean(domain.tier, tiers)
        yield domain.problem("tier", f"the unknown tier `{domain.tier}`", allowed, hint)
    elif domain.name not in names:
        shown = list(islice(names, MAX_NAMES_FOR_A_HINT))
        found = f"the unknown {domain.tier} `{domain.name}`"
        allowed = f"a {domain.tier} of this cluster, such as {shown[0]}" if shown else "none"
        yield domain.problem("name", found, allowed, did_you_mean(domain.name, shown))


def _nic_problems(form: ClusterForm, machine_of_node: MachineOfNode) -> Iterator[Problem]:
    seen: set[tuple[str, str]] = set()
    nics_of_machine: dict[str, dict[str, None]] = {}
    for facts in form.nics:
        machine = machine_of_node.get(facts.node)
        if machine is not None:
            if machine.name not in nics_of_machine:
                nics_of_machine[machine.name] = dict.fromkeys(nic.name for nic in machine.nics)
            yield from _unknown_nic(facts, machine, nics_of_machine[machine.name])
        elif facts.node in machine_of_node:
            continue
        elif not form.any_lost("nodes"):
            yield _unknown_node(facts, "node", facts.node, machine_of_node)
        if (facts.node, facts.nic) in seen:
            found = f"`{facts.nic}` of {facts.node} again"
            yield facts.problem("nic", found, "each NIC once")
        seen.add((facts.node, facts.nic))


def _unknown_nic(
    facts: NicFactsForm, machine: Machine, known: Mapping[str, object]
) -> Iterator[Problem]:
    if facts.nic not in known:
        names = ", ".join(known)
        allowed = f"a NIC of {machine.name} ({names})" if names else "none; it has no NIC"
        hint = did_you_mean(facts.nic, known)
        yield facts.problem("nic", f"the unknown NIC `{facts.nic}`", allowed, hint)


def _unknown_node(
    form: NicFactsForm | TorusForm, field: str, node: str, known: MachineOfNode
) -> Problem:
    hint = did_you_mean(node, islice(known, MAX_NAMES_FOR_A_HINT))
    return form.problem(field, f"the unknown node `{node}`", "a node of this cluster", hint)


# ----- tori


def host_of(torus: TorusForm) -> list[int]:
    """Return the GPUs of one node along each axis; left out, a node is one point of the grid."""
    return torus.host or [1] * len(torus.dims)


def names_of_torus(torus: TorusForm) -> list[str]:
    """Return the names of the nodes of a torus, in order."""
    return [name for text in torus.nodes for name in expand(text)]


def _tori_problems(form: ClusterForm, machine_of_node: MachineOfNode) -> Iterator[Problem]:
    torus_of_node: dict[str, str] = {}
    seen: set[str] = set()
    count = 0
    for torus in form.tori:
        if torus.name in seen:
            yield torus.problem("name", f"`{torus.name}` again", "each torus once")
        seen.add(torus.name)
        count += sum(count_nodes(text) for text in torus.nodes)
        if count > MAX_NODES:  # never expanded
            yield torus.problem("nodes", "too many nodes", f"at most {MAX_NODES} nodes in all tori")
            return
        shape = list(_axis_problems(torus))
        yield from shape
        yield from _member_problems(form, torus, machine_of_node, torus_of_node, not shape)


def _axis_problems(torus: TorusForm) -> Iterator[Problem]:
    axes = len(torus.dims)
    if torus.any_lost("dims") or torus.any_lost("host"):
        return
    allowed = f"{axes} numbers, one for each of dims"
    if len(host_of(torus)) != axes:
        yield torus.problem("host", f"{len(host_of(torus))} numbers", allowed)
        return
    if torus.wrap is not None and len(torus.wrap) != axes and not torus.any_lost("wrap"):
        allowed = f"{axes} of true or false, one for each of dims"
        yield torus.problem("wrap", f"{len(torus.wrap)} of them", allowed)
    for axis, (size, each) in enumerate(zip(torus.dims, host_of(torus), strict=True)):
        if size % each:
            yield torus.problem("dims", f"`{size}`", f"a multiple of host, {each}", at=(axis,))
    yield from _slice_problems(torus)
    yield from _cube_problems(torus)


def _slice_problems(torus: TorusForm) -> Iterator[Problem]:
    for place, box in enumerate(torus.slices):
        if torus.any_lost("slices"):
            return
        if len(box) != len(torus.dims):
            allowed = f"{len(torus.dims)} numbers, one for each of dims"
            yield torus.problem("slices", f"{len(box)} numbers", allowed, at=(place,))
            continue
        for axis, (size, most) in enumerate(zip(box, torus.dims, strict=True)):
            if size > most and torus.cube is None:  # joined cubes may stand in a longer row
                allowed = f"at most {most}, as dims"
                yield torus.problem("slices", f"`{size}`", allowed, at=(place, axis))


def _cube_problems(torus: TorusForm) -> Iterator[Problem]:
    """Cubes are made of whole hosts, and the torus of whole cubes."""
    cube = torus.cube
    if cube is None or torus.any_lost("cube"):
        return
    if len(cube) != len(torus.dims):
        allowed = f"{len(torus.dims)} numbers, one for each of dims"
        yield torus.problem("cube", f"{len(cube)} numbers", allowed)
        return
    for axis, (size, most, host) in enumerate(zip(cube, torus.dims, host_of(torus), strict=True)):
        if most % size or size % host:
            allowed = f"a multiple of host, {host}, that divides dims, {most}"
            yield torus.problem("cube", f"`{size}`", allowed, at=(axis,))


def _member_problems(
    form: ClusterForm,
    torus: TorusForm,
    machine_of_node: MachineOfNode,
    torus_of_node: dict[str, str],
    axes_are_right: bool,
) -> Iterator[Problem]:
    names = names_of_torus(torus)
    each = prod(host_of(torus))
    for name in names:
        if name in torus_of_node:
            found = f"`{name}`, which is in {torus_of_node[name]}"
            yield torus.problem("nodes", found, "each node once, in one torus")
        torus_of_node[name] = torus.name
        if name not in machine_of_node and not form.any_lost("nodes"):
            yield _unknown_node(torus, "nodes", name, machine_of_node)
        machine = machine_of_node.get(name)
        if axes_are_right and machine is not None and each not in (1, machine.gpus):
            found = f"{plural(each, 'GPU')} of a node ({name} has {machine.gpus})"
            yield torus.problem("host", found, f"{machine.gpus} in all, or 1 along each axis")
    points = prod(torus.dims) // each
    if axes_are_right and points != len(names):
        found = f"{plural(len(names), 'node')}"
        yield torus.problem("nodes", found, f"{points}, as many as dims / host")


# ----- data and spares


def places_of(data: DataSetForm) -> Iterator[tuple[str, str]]:
    """Yield (tier, domain) of a data set in the order of the file, hostlists of nodes expanded."""
    for tier, domains in data.at.items():
        for domain in domains:
            names = expand(domain) if tier == LAST_TIER else [domain]
            yield from ((tier, name) for name in names)


def _data_problems(
    form: ClusterForm, machine_of_node: MachineOfNode, known: DomainsOfTier | None
) -> Iterator[Problem]:
    seen: set[tuple[str, str, str]] = set()
    count = 0
    for data in form.data:
        if not data.at and not data.any_lost("at"):
            yield data.problem("at", "no domain", "a tier, and domains of it or nodes")
        hostlist_problems = list(_hostlist_problems(data))
        yield from hostlist_problems
        if hostlist_problems:
            continue
        count += sum(map(count_nodes, data.at.get(LAST_TIER, ())))
        if count > MAX_NODES:  # never expanded
            yield data.problem("at", "too many nodes", f"at most {MAX_NODES} nodes in all data")
            return
        for tier, domain in places_of(data):
            if (data.name, tier, domain) in seen:
                found = f"{data.name} in {tier} {domain} again"
                yield data.problem("at", found, "each place once", at=(tier,))
            seen.add((data.name, tier, domain))
            if known is not None:
                names = machine_of_node if tier == LAST_TIER else known.get(tier)
                yield from _unknown_place(data, tier, domain, names, form.tiers)


def _hostlist_problems(data: DataSetForm) -> Iterator[Problem]:
    for hostlist in data.at.get(LAST_TIER, ()):
        try:
            count_nodes(hostlist)
        except BadHostlist as error:
            yield data.problem("at", f"`{hostlist}`", str(error), at=(LAST_TIER,))


def _unknown_place(
    data: DataSetForm, tier: str, domain: str, names: Mapping[str, object] | None, tiers: list[str]
) -> Iterator[Problem]:
    if names is None:
        allowed = f"tiers of this cluster ({', '.join(tiers)})"
        yield data.problem("at", "an unknown tier", allowed, did_you_mean(tier, tiers), at=(tier,))
    elif domain not in names:
        shown = list(islice(names, MAX_NAMES_FOR_A_HINT))
        allowed = f"a {tier} of this cluster, such as {shown[0]}" if shown else "none"
        hint = did_you_mean(domain, shown)
        yield data.problem("at", f"the unknown {tier} `{domain}`", allowed, hint, at=(tier,))


def _spares_problems(form: ClusterForm) -> Iterator[Problem]:
    """Spare nodes are held back in domains of several nodes."""
    outer = form.tiers[:-1]
    for tier in form.spares:
        if tier not in outer and not form.any_lost("tiers"):
            allowed = f"a tier above {LAST_TIER} ({', '.join(outer) or 'there is none'})"
            yield form.problem(
                "spares", f"`{tier}`", allowed, did_you_mean(tier, outer), at=(tier,)
            )
