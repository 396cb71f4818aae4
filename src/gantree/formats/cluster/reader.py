"""cluster.yaml to a `Cluster`: the whole file, or an error that lists all of its problems."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from gantree.formats.cluster.form import (
    CUT_BY,
    AllocationForm,
    ClusterForm,
    InstanceForm,
    MigForm,
    NodeForm,
    SharePartForm,
    TorusForm,
)
from gantree.formats.cluster.gpu_part_rules import mig_gpus, part_problems
from gantree.formats.cluster.machines import machine_of, machine_problems
from gantree.formats.cluster.rules import allocation_problems, cluster_problems, names_of_nodes
from gantree.formats.cluster.section_rules import fact_problems, host_of, names_of_torus, places_of
from gantree.formats.validation.forms import MAX_PROBLEMS, only_document, read_form, refuse
from gantree.model.cluster import (
    Allocation,
    Cluster,
    DataSet,
    DomainFacts,
    Link,
    Machine,
    Mig,
    NicFacts,
    Node,
    Torus,
)
from gantree.model.errors import Problem
from gantree.model.placements import MigPart, SharePart
from gantree.text.document import read_documents
from gantree.topology.hardware.catalog import MACHINES


def read_cluster(text: str, source: str) -> Cluster:
    """Read the text of a cluster file. source names it in errors. Raises BadFields."""
    problems: list[Problem] = []
    documents = read_documents(text, source, problems)
    document = only_document(ClusterForm, documents, problems)
    form = read_form(ClusterForm, document, problems) if document else None
    machines: dict[str, Machine] = {}
    names: list[list[str]] = []
    if form is not None:
        machines = _machines(form)
        names = names_of_nodes(form)
        machine_of_node = {
            name: machines.get(node.machine)
            for node, own in zip(form.nodes, names, strict=True)
            for name in own
        }
        problems += islice(cluster_problems(form, names), MAX_PROBLEMS)
        problems += islice(allocation_problems(form, machine_of_node), MAX_PROBLEMS)
        problems += islice(part_problems(form, names, machines), MAX_PROBLEMS)
        problems += islice(fact_problems(form, machine_of_node), MAX_PROBLEMS)
    refuse(problems, source)
    assert form is not None
    return _cluster(form, names, machines)


def _machines(form: ClusterForm) -> dict[str, Machine]:
    """Return the machines of the file that are whole, and those of the catalogue that its nodes name."""
    own = {
        name: machine_of(name, machine)
        for name, machine in form.machines.items()
        if not machine_problems(machine)
    }
    named = {node.machine for node in form.nodes} - form.machines.keys()
    named -= form.names_lost("machines")
    return own | {name: MACHINES[name] for name in sorted(named) if name in MACHINES}


def _cluster(form: ClusterForm, names: list[list[str]], machines: dict[str, Machine]) -> Cluster:
    outer = form.tiers[:-1]
    return Cluster(
        name=form.name,
        tiers=tuple(form.tiers),
        machines=machines,
        nodes=tuple(
            node
            for node_form, own in zip(form.nodes, names, strict=True)
            for node in _nodes(node_form, own, outer)
        ),
        links={
            tier: Link(link.bandwidth_GBps, link.latency_us, link.uplink_GBps)
            for tier, link in form.links.items()
        },
        allocations=tuple(_allocation(allocation) for allocation in form.allocations),
        domains=tuple(
            DomainFacts(each.tier, each.name, each.uplink_GBps, each.health, each.load)
            for each in form.domains
        ),
        nics=tuple(NicFacts(each.node, each.nic, each.health, each.load) for each in form.nics),
        tori=tuple(_torus(torus) for torus in form.tori),
        data=tuple(DataSet(data.name, *place) for data in form.data for place in places_of(data)),
        spares=dict(form.spares),
    )


def _nodes(form: NodeForm, names: list[str], outer: list[str]) -> Iterator[Node]:
    pattern = Node(
        name="{node}",
        machine=form.machine,
        at=tuple(form.at[tier] for tier in outer),
        labels=tuple(form.labels.items()),
        partitions=tuple(form.partitions.items()),
        mig=_mig(form.mig) if form.mig else (),
        mig_by=form.mig.by if form.mig else CUT_BY[0],
        shares=tuple(form.share.modes),
        tenants=form.share.tenants,
        time_slice=form.share.time_slice,
        spot=form.spot.per_day if form.spot else None,
    )
    for name in names:
        launch = tuple(word.replace("{node}", name) for word in form.launch)
        address = form.address.replace("{node}", name)
        yield replace(pattern, name=name, launch=launch, address=address)


def _mig(form: MigForm) -> tuple[Mig, ...]:
    instances: dict[int, list[tuple[str, int]]] = {gpu: [] for gpu in mig_gpus(form)}
    for instance in form.instances:
        instances[instance.gpu].append((instance.profile, instance.start))
    return tuple(Mig(gpu, tuple(own)) for gpu, own in instances.items())


def _torus(form: TorusForm) -> Torus:
    return Torus(
        form.name,
        tuple(form.dims),
        tuple(host_of(form)),
        tuple(names_of_torus(form)),
        (True,) * len(form.dims) if form.wrap is None else tuple(form.wrap),
        tuple(tuple(box) for box in form.slices),
        tuple(form.cube or ()),
    )


def _allocation(form: AllocationForm) -> Allocation:
    return Allocation(
        job=form.job,
        node=form.node,
        gpus=tuple(form.gpus),
        cpus=form.cpus,
        memory_GiB=form.memory_GiB,
        nics=form.nics,
        mig=tuple(map(_instance, form.mig)),
        shares=tuple(map(_share, form.shares)),
        devices=tuple(form.devices.items()),
    )


def _instance(form: InstanceForm) -> MigPart:
    return MigPart(form.gpu, form.profile, form.start)


def _share(form: SharePartForm) -> SharePart:
    return SharePart(form.gpu, form.compute, form.memory_GiB, form.isolation, form.alone)
