"""What a pod takes of its node, by resource, in units of the API (cores, bytes, devices).

It is what the kubelet counts: the sum over containers and sidecars, or what an init container needs while it runs
beside the sidecars before it, whichever is more; for CPU, memory and huge pages what the pod as a whole requests, if it
does; and the overhead of the runtime class. A bound pod may be resized: until its kubelet has done so the largest of
what is wanted, admitted and in use counts (upstream's `PodRequests`, k8s.io/component-helpers/resource).
"""

from collections.abc import Iterable, Mapping

from gantree.executors.kubernetes.apiserver.objects import (
    Container,
    ContainerState,
    ContainerStatus,
    Pod,
    PodSpec,
    Resources,
)
from gantree.executors.kubernetes.pods.templates import once_per_template
from gantree.topology.discovery.listings.kubernetes_nodes import quantity

Amounts = dict[str, float]
Quantities = Mapping[str, str | float]
HUGE_PAGES = "hugepages-"


def amounts_of(pod: PodSpec) -> Amounts:
    """What a pod asks for."""
    return _total(pod, {each.name: _asked(each) for each in _containers(pod)}, _of_pod(pod))


@once_per_template
def _amounts(pod: Pod) -> Amounts:
    return amounts_of(pod.spec)


def bound_amounts_of(pod: Pod) -> Amounts:
    """What a pod that is on a node takes there."""
    status, spec = pod.status, pod.spec
    told = (*status.container_statuses, *status.init_container_statuses)
    statuses = {each.name: each for each in told if each.resources is not None}
    if not statuses and status.resources is None:
        return _amounts(pod)
    is_infeasible = any(
        each.type == "PodResizePending" and each.reason == "Infeasible"
        for each in status.conditions
    )
    asked = {
        each.name: _effective(_asked(each), statuses.get(each.name), is_infeasible)
        for each in _containers(spec)
    }
    of_pod = _of_pod(spec)
    if of_pod and status.resources is not None:
        as_one = ContainerStatus("", ContainerState(), status.resources, status.allocated_resources)
        effective = _effective(of_pod, as_one, is_infeasible)
        of_pod = {name: effective.get(name, 0.0) for name in of_pod}
    return _total(spec, asked, of_pod)


def _containers(pod: PodSpec) -> tuple[Container, ...]:
    return (*pod.containers, *pod.init_containers)


def _asked(container: Container) -> Amounts:
    """What a container asks for: its requests, and limits of what has no request of its own."""
    return _read({**container.resources.limits, **container.resources.requests})


def _of_pod(pod: PodSpec) -> Amounts:
    """What a pod as a whole requests."""
    told = (pod.resources or Resources()).requests
    return _read({name: text for name, text in told.items() if _may_be_of_pod(name)})


def _may_be_of_pod(resource: str) -> bool:
    return resource in ("cpu", "memory") or resource.startswith(HUGE_PAGES)


def _effective(asked: Amounts, status: ContainerStatus | None, is_infeasible: bool) -> Amounts:
    """What counts while it is resized; a size that its kubelet has refused for good does not."""
    if status is None or status.resources is None:
        return asked
    found = _read(status.resources.requests)
    _raise(found, _read(status.allocated_resources))
    if not is_infeasible:
        _raise(found, asked)
    return found


def _total(pod: PodSpec, asked: Mapping[str, Amounts], of_pod: Amounts) -> Amounts:
    """The amounts of a pod whose containers take these, by name."""
    running = _sum(asked[each.name] for each in pod.containers)
    sidecars, most = Amounts(), Amounts()
    for container in pod.init_containers:
        if container.restart_policy == "Always":
            sidecars = _sum((sidecars, asked[container.name]))
            _raise(most, sidecars)
        else:
            _raise(most, _sum((sidecars, asked[container.name])))
    running = _sum((running, sidecars))
    _raise(running, most)
    return _sum(({**running, **of_pod}, _read(pod.overhead)))


def _read(told: Quantities) -> Amounts:
    return {name: quantity(str(text)) or 0.0 for name, text in told.items()}


def _sum(amounts: Iterable[Amounts]) -> Amounts:
    found = Amounts()
    for each in amounts:
        for name, amount in each.items():
            found[name] = found.get(name, 0.0) + amount
    return found


def _raise(amounts: Amounts, least: Amounts) -> None:
    for name, amount in least.items():
        amounts[name] = max(amounts.get(name, 0.0), amount)
