"""A cluster as files: nodes, holdings and pending gangs; input of the simulator, `gantree place` and `what-if`.

    cluster.yaml         the site, with what every pod holds now
    cluster-empty.yaml   the same with only what is held by pods that ask for no GPU: where a trace is replayed
    waiting.yaml         the gangs that wait, as job files
    trace.csv            all gangs with GPUs, waiting or running, as a trace

What is read of pods has no environment, command, image or secret in it, and nothing else is written. How long a gang
will run nobody knows: in the trace it is its deadline where it has one, else as long as it has run by now, or as the
gangs that run have done in the mean, and an hour where none does.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from statistics import fmean
from typing import Any

import yaml

from gantree.executors.kubernetes.apiserver.client import Client, Resource
from gantree.executors.kubernetes.apiserver.connection import Connection
from gantree.executors.kubernetes.apiserver.objects import Group, Node, Pod
from gantree.executors.kubernetes.controllers.allocator import Allocator
from gantree.executors.kubernetes.nodes.site import SiteReading, site_of
from gantree.executors.kubernetes.nodes.topologies import TOPOLOGY_KINDS, read_topologies
from gantree.executors.kubernetes.pods.gang_spec import GroupKind
from gantree.executors.kubernetes.pods.pod_amounts import amounts_of
from gantree.executors.kubernetes.pods.shapes import PODS as POD_COUNT
from gantree.executors.kubernetes.pods.shapes import pod_request
from gantree.executors.kubernetes.tools.shadow_tally import gpus_of
from gantree.executors.kubernetes.watch.api_thread import NODES, OF_DEVICES, TYPE_OF_KIND
from gantree.executors.kubernetes.watch.discovery import has_devices, served
from gantree.executors.kubernetes.workloads.gang_labels import gang_spec_of_group
from gantree.executors.kubernetes.workloads.gangs import Gang, gang_of, job_of
from gantree.executors.kubernetes.workloads.keys import Key, Keys
from gantree.executors.kubernetes.writes.writes import PODS
from gantree.formats import write_cluster
from gantree.model.cluster import Allocation, Cluster
from gantree.model.jobs import Job, Role, Shape, TopologySpec
from gantree.model.placements import MemberPlacement

AN_HOUR_S = 3600.0
LONGEST_NAME = 63
OF_CLAIMS = "claims"
"""Who holds devices that cannot be had, and that no pod of the file has."""
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]")
_TRACE = (
    "job_id", "submit_s", "duration_s", "members", "gpus_per_member", "queue", "user", "priority", "cpus_per_member",
    "preemptible",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Seen:
    """What was listed, at a moment: nodes and pods with what drivers and claims tell of devices (`allocator`)."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    keys: Keys
    topologies: Mapping[tuple[GroupKind, str], Group]
    allocator: Allocator
    at: float


async def seen(connection: Connection, node_selector: str = "") -> Seen:
    """List everything once. Raises Unreachable, ApiError."""
    client = Client(connection)
    try:
        chosen = {"labelSelector": node_selector} if node_selector else {}
        nodes = (await client.list(replace(NODES, selectors=chosen))).objects
        pods = (await client.list(PODS)).objects
        allocator = await _devices(client, nodes, pods)
        keys, topologies = Keys(), {}
        for kind, version in (await served(client)).items():
            shape = TYPE_OF_KIND.get(kind, Group)
            for group in (await client.list(Resource(kind.path(version), shape))).objects:
                if kind in TOPOLOGY_KINDS:
                    topologies[kind, group.metadata.name] = group
                    continue
                gang_spec = gang_spec_of_group(kind, group)
                if gang_spec is not None:
                    meta = group.metadata
                    keys.groups.set((meta.namespace, meta.name, kind.key_word), gang_spec)
    finally:
        await client.close()
    return Seen(
        tuple(map(allocator.equipped, nodes)),
        tuple(map(allocator.read, pods)),
        keys,
        topologies,
        allocator,
        datetime.now(UTC).timestamp(),
    )


async def _devices(client: Client, nodes: Sequence[Node], pods: Sequence[Pod]) -> Allocator:
    """What devices there are, and what all pods ask of them. Raises Unreachable, ApiError."""
    listed: list[tuple[str, Any, Any, Any]] = [("pod", None, None, pod) for pod in pods]
    listed += [("node", ("", node.metadata.name), None, node) for node in nodes]
    for noun, resource in OF_DEVICES if await has_devices(client) else ():
        found = (await client.list(resource)).objects
        listed += [
            (noun, (each.metadata.namespace, each.metadata.name), None, each) for each in found
        ]
    allocator = Allocator()
    allocator.read_all(listed)
    return allocator


def files_of(
    told: Seen, name: str, levels: Sequence[str] = ()
) -> tuple[dict[str, str], tuple[str, ...]]:
    """The files by name, and what of the cluster they cannot say. Raises BadInput for no node at all."""
    reading = site_of(name, told.nodes, levels, read_topologies(told.topologies, told.nodes))
    cluster, warnings = _plain(reading)
    alive = [pod for pod in told.pods if not pod.has_ended]
    gangs = [
        gang_of(key, told.keys.spec_of(key), pods)
        for key, pods in _by_gang(alive, told.keys).items()
    ]
    with_gpus = [gang for gang in gangs if any(map(_gpus_of, gang.pods)) and not gang.blocked]
    waiting = [gang for gang in with_gpus if not any(pod.spec.node_name for pod in gang.pods)]
    known = {node.name for node in cluster.nodes}
    held = [pod for pod in alive if pod.spec.node_name in known]
    without = [pod for pod in held if not _gpus_of(pod)]
    full = _with_held(cluster, held, told, told.allocator.taken.of_node)
    empty = _with_held(cluster, without, told, told.allocator.taken.barred)
    files = {
        "cluster.yaml": write_cluster(full),
        "cluster-empty.yaml": write_cluster(empty),
        "waiting.yaml": _pending(waiting, reading),
        "trace.csv": _trace(with_gpus, reading, told.at),
    }
    odd = [gang for gang in gangs if gang.blocked and not _runs(gang)]
    lost = (
        f"gang {gang.key[1]} is left out: {gang.blocked.blocked}" for gang in odd if gang.blocked
    )
    return files, (*warnings, *lost)


def _gpus_of(pod: Pod) -> int:
    """How many GPUs a pod asks for, by resources and by claims."""
    return gpus_of(pod) + (pod.claimed.gpus if pod.claimed else 0)


def _plain(reading: SiteReading) -> tuple[Cluster, tuple[str, ...]]:
    """The site as a file can say it: without taints."""
    tainted = [node.name for node in reading.cluster.nodes if node.taints]
    nodes = tuple(replace(node, taints=()) for node in reading.cluster.nodes)
    lost = [f"taints of {len(tainted)} nodes are left out, as of {tainted[0]}"] if tainted else []
    return replace(reading.cluster, nodes=nodes), (*reading.warnings, *lost)


def _by_gang(pods: Iterable[Pod], keys: Keys) -> dict[Key, list[Pod]]:
    found: dict[Key, list[Pod]] = defaultdict(list)
    for pod in pods:
        found[keys.of(pod)].append(pod)
    return found


Lost = Callable[[str], MemberPlacement | None]
"""Devices of a node that are in use, by any holder."""


def _with_held(cluster: Cluster, pods: Sequence[Pod], told: Seen, lost: Lost) -> Cluster:
    """The cluster with what pods hold, and with devices that are lost beside that."""
    by_node: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        by_node[pod.spec.node_name].append(pod)
    allocations: list[Allocation] = []
    for node in cluster.nodes:
        machine = cluster.machines[node.machine]
        taking = _Taking(machine.gpus, dict(machine.devices), lost(node.name))
        allocations += (taking.by_pod(pod, told) for pod in by_node[node.name])
        allocations += taking.rest(node.name)
    return replace(cluster, allocations=tuple(allocations))


class _Taking:
    """What is left of a node while pods take theirs; what is asked beyond its end is not counted.

    GPUs of claims are those that they have, those that a kubelet gave out are counted from the first that is left.
    """

    def __init__(self, gpus: int, devices: dict[str, int], lost: MemberPlacement | None) -> None:
        self._of_claims = dict.fromkeys(lost.gpus if lost else ())
        self._lost = dict(lost.devices) if lost else {}
        self._free = [gpu for gpu in range(gpus) if gpu not in self._of_claims]
        self._devices = devices

    def by_pod(self, pod: Pod, told: Seen) -> Allocation:
        own = [gpu for gpu in told.allocator.gpus_of(pod) if gpu in self._of_claims]
        for gpu in own:
            del self._of_claims[gpu]
        count = min(gpus_of(pod), len(self._free))
        counted, self._free = self._free[:count], self._free[count:]
        namespace, name, _ = told.keys.of(pod)
        amounts = amounts_of(pod.spec)
        return Allocation(
            _name(namespace, name),
            pod.spec.node_name,
            tuple(sorted((*own, *counted))),
            cpus=amounts.get("cpu", 0.0),
            memory_GiB=amounts.get("memory", 0.0) / 2**30,
            devices=self._given(dict(pod_request(pod).shape.devices)),
        )

    def rest(self, node: str) -> Iterator[Allocation]:
        """Devices that are lost for another reason than these pods."""
        devices = self._given({name: amount for name, amount in self._lost.items() if amount > 0})
        if self._of_claims or devices:
            yield Allocation(OF_CLAIMS, node, tuple(self._of_claims), devices=devices)

    def _given(self, asked: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
        given = {name: min(amount, self._devices.get(name, 0)) for name, amount in asked.items()}
        for name, amount in given.items():
            self._devices[name] = self._devices.get(name, 0) - amount
            self._lost[name] = self._lost.get(name, 0) - amount
        return tuple(sorted((name, amount) for name, amount in given.items() if amount))


def _pending(gangs: Sequence[Gang], reading: SiteReading) -> str:
    documents = [_document(job_of(gang, reading.tier, gang.key[0])[0]) for gang in gangs]
    if not documents:
        return "# no gang waits\n"
    return yaml.safe_dump_all(
        documents, sort_keys=False, default_flow_style=None, allow_unicode=True
    )


def _document(job: Job) -> dict[str, object]:
    namespace, _, name = job.name.partition("/")
    document: dict[str, object] = {
        "name": _name(namespace, name),
        "queue": job.queue,
        "priority": job.priority,
        "gang": [_role(role) for role in job.roles],
        "user": namespace,
        "preemptible": job.preemptible,
    }
    topology = _topology(job.topology)
    if topology:
        document["topology"] = topology
    if job.time_limit_s is not None:
        document["time_limit"] = f"{job.time_limit_s:g}s"
    return document


def _role(role: Role) -> dict[str, object]:
    return {"role": role.name, "members": role.members, "each": _each(role.shape), "run": ["true"]}


def _each(shape: Shape) -> dict[str, object]:
    each: dict[str, object] = {"cpus": shape.cpus, "memory_GiB": shape.memory_GiB}
    if shape.gpus:
        each["gpus"] = shape.gpus
    devices = {name: count for name, count in shape.devices if name != POD_COUNT}
    if devices:
        each["devices"] = devices
    return each


def _topology(topology: TopologySpec) -> dict[str, object]:
    told: dict[str, object] = {}
    if topology.required:
        told["required"] = topology.required
    if topology.preferred:
        told["preferred"] = topology.preferred
    if topology.slices:
        told["slices"] = [
            {"members": each.members, "required": each.required} for each in topology.slices
        ]
    return told


def _trace(gangs: Sequence[Gang], reading: SiteReading, now: float) -> str:
    """A row a gang that a trace can say: all its members with one number of GPUs."""
    jobs = [(gang, job_of(gang, reading.tier, gang.key[0])[0]) for gang in gangs]
    submitted = [min(map(_created_at, gang.pods), default=now) for gang, _ in jobs]
    first = min(submitted, default=now)
    ran = [now - at for (gang, _), at in zip(jobs, submitted, strict=True) if _runs(gang)]
    usual_s = fmean(ran) if ran else AN_HOUR_S
    since = (at - first for at in submitted)
    rows = sorted(zip(since, jobs, strict=True), key=lambda row: row[0])
    lines = [",".join(_TRACE)]
    for submit_s, (gang, job) in rows:
        ran_s = now - first - submit_s if _runs(gang) else usual_s
        lines.append(",".join(_row(job, submit_s, max(1.0, job.time_limit_s or ran_s))))
    return "\n".join(lines) + "\n"


def _row(job: Job, submit_s: float, duration_s: float) -> tuple[str, ...]:
    namespace, _, name = job.name.partition("/")
    members = sum(role.members for role in job.roles)
    gpus = max(role.shape.gpus for role in job.roles)
    cpus = max(role.shape.cpus for role in job.roles)
    return (
        _name(namespace, name), f"{submit_s:.3f}", f"{duration_s:.3f}", str(members), str(gpus), job.queue, namespace,
        str(job.priority), f"{cpus:g}", "yes" if job.preemptible else "no",
    )  # fmt: skip


def _runs(gang: Gang) -> bool:
    return any(pod.spec.node_name for pod in gang.pods)


def _created_at(pod: Pod) -> float:
    told = pod.metadata.creation_timestamp or ""
    return datetime.fromisoformat(told).timestamp() if told else 0.0


def _name(namespace: str, name: str) -> str:
    return _NO_NAME.sub("-", f"{namespace}.{name}")[:LONGEST_NAME].rstrip("._-")
