"""Whether a kubelet takes a pod that was bound to its node: what it refuses, and in whose words.

A kubelet checks what a scheduler has checked already, against the pods that it has taken and that have not ended:
devices first, then resources, ports, and the taints that would drive the pod out again. A pod that it refuses is Failed
for good. What its node does not tell of is
not checked.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction

from support.kubernetes.server.statuses import Json

SUFFIXES: dict[str, Fraction | int] = {
    "m": Fraction(1, 1000), "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50,
}  # fmt: skip
ALL_ADDRESSES = "0.0.0.0"
NO_PORTS = "node(s) didn't have free ports for the requested pod ports"
NOT_TOLERATED = "node(s) had taints that the pod didn't tolerate"
Amounts = Counter[str]
Port = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Refused:
    """Why a pod was not taken: the reason and the message of its status."""

    reason: str
    message: str


def refusal(node: Json, taken: Iterable[Json], pod: Json) -> Refused | None:
    """Why a node's kubelet does not take a pod beside those that it has; None: it does."""
    others = list(taken)
    told = (*_devices(node, others, pod), *_resources(node, others, pod))
    return next(iter((*told, *_ports(others, pod), *_taints(node, pod))), None)


def _devices(node: Json, others: list[Json], pod: Json) -> Iterator[Refused]:
    """Of device plugins, whose resources have a domain in their names."""
    for name, asked, used, there in _short(node, others, pod):
        if "/" in name:
            told = f"requested number of devices unavailable for {name}"
            amounts = f"Requested: {asked}, Available: {max(there - used, 0)}"
            message = f"Allocate failed due to {told}. {amounts}, which is unexpected"
            yield Refused("UnexpectedAdmissionError", message)


def _resources(node: Json, others: list[Json], pod: Json) -> Iterator[Refused]:
    for name, asked, used, there in _short(node, others, pod):
        amounts = f"requested: {asked}, used: {used}, capacity: {there}"
        yield Refused(f"OutOf{name}", f"Node didn't have enough resource: {name}, {amounts}")


def _short(node: Json, others: list[Json], pod: Json) -> Iterator[tuple[str, int, int, int]]:
    """(resource, asked for, used, there) of those that a pod would have too much of."""
    there = _allocatable(node)
    used = sum((requests(each) for each in others), Counter())
    asked = requests(pod)
    for name in ("pods", *(each for each in asked if each != "pods")):
        if name in there and asked[name] and used[name] + asked[name] > there[name]:
            yield name, asked[name], used[name], there[name]


def _allocatable(node: Json) -> Amounts:
    """What a node has for pods, as far as it is told in numbers."""
    there: Amounts = Counter()
    for name, told in (node["status"].get("allocatable") or {}).items():
        with suppress(ValueError):
            there[name] = amount(name, told)
    return there


def requests(pod: Json) -> Amounts:
    """What a pod asks for: all its containers, or more where a container that runs before them asks for more."""
    spec = pod["spec"]
    running: Amounts = sum((_asked(each) for each in spec["containers"]), Counter())
    beside, most = Counter[str](), Counter[str]()
    for each in spec.get("initContainers") or ():
        if each.get("restartPolicy") == "Always":
            beside += _asked(each)
            most |= beside
        else:
            most |= beside + _asked(each)
    total = (running + beside) | most
    for name, told in (spec.get("resources") or {}).get("requests", {}).items():
        total[name] = amount(name, told)
    for name, told in (spec.get("overhead") or {}).items():
        total[name] += amount(name, told)
    return total + Counter(pods=1)


def _asked(container: Json) -> Amounts:
    told = (container.get("resources") or {}).get("requests") or {}
    return Counter({name: amount(name, each) for name, each in told.items()})


def amount(name: str, told: object) -> int:
    """A quantity as a number: of cpu in thousandths."""
    text = str(told)
    number = text.rstrip("mkKMGTPi")
    value = Fraction(number) * SUFFIXES.get(text[len(number) :], 1)
    return int(value * 1000) if name == "cpu" else int(value)


def _ports(others: list[Json], pod: Json) -> Iterator[Refused]:
    held = {port for each in others for port in _host_ports(each)}
    if any(_clash(mine, theirs) for mine in _host_ports(pod) for theirs in held):
        yield Refused("NodePorts", f"Predicate NodePorts failed: {NO_PORTS}")


def _host_ports(pod: Json) -> Iterator[Port]:
    for container in pod["spec"]["containers"]:
        for each in container.get("ports") or ():
            if each.get("hostPort"):
                address = each.get("hostIP") or ALL_ADDRESSES
                yield address, each.get("protocol", "TCP"), each["hostPort"]


def _clash(one: Port, other: Port) -> bool:
    addresses = {one[0], other[0]}
    return one[1:] == other[1:] and (len(addresses) == 1 or ALL_ADDRESSES in addresses)


def _taints(node: Json, pod: Json) -> Iterator[Refused]:
    """Only those that would drive it out again: what keeps pods from being bound is the scheduler's matter."""
    taints = node["spec"].get("taints") or ()
    tolerations = pod["spec"].get("tolerations") or ()
    for taint in taints:
        if taint["effect"] == "NoExecute" and not any(_bears(t, taint) for t in tolerations):
            yield Refused("TaintToleration", f"Predicate TaintToleration failed: {NOT_TOLERATED}")


def _bears(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    is_there = toleration.get("operator") == "Exists"
    return is_there or toleration.get("value", "") == taint.get("value", "")
