"""The shape of a pod: its amounts (`pod_amounts`), node rules, and parts of its spec that are not honoured."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gantree.executors.kubernetes.apiserver.objects import (
    Claimed,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    Toleration,
)
from gantree.executors.kubernetes.pods.checkpoint_protocol import invalid_annotations
from gantree.executors.kubernetes.pods.hived import shape_of
from gantree.executors.kubernetes.pods.pod_amounts import Amounts, amounts_of
from gantree.executors.kubernetes.pods.ports import exclusive_devices
from gantree.executors.kubernetes.pods.self_affinity import self_affinity_devices
from gantree.executors.kubernetes.pods.templates import once_per_template
from gantree.model import node_rules
from gantree.model.jobs import CLAIMED_GPUS, GPU_RESOURCES, Shape

PODS = "pods"
"""A node takes so many pods at most: each counts as one device of this name."""
OF_SELECTOR = "devices-"
"""Before a digest of the selector by which claims count devices (`devices.device_capacity`)."""
OF_COMPUTE_DOMAINS = (
    "resource.nvidia.com/computeDomain",
    "resource.nvidia.com/computeDomain.cliqueID",
)
"""Labels that NVIDIA's driver writes onto nodes for as long as pods of a ComputeDomain are there. They change with
every gang, so they are no labels of the site: where pods may be that select by them is a bar (`channels.asked`)."""
_NATIVE = frozenset({"cpu", "memory", "ephemeral-storage"})
_OPERATORS = {
    "In": "in",
    "NotIn": "notin",
    "Exists": "exists",
    "DoesNotExist": "absent",
    "Gt": ">",
    "Lt": "<",
}
_RULES = frozenset({node_rules.NODES_LABEL, node_rules.TOLERATES_LABEL})
_MEBI = 2.0**20


@dataclass(frozen=True, slots=True)
class PodRequest:
    """The shape of a pod, and what it asks for that is not honoured, each as a short text for an event."""

    shape: Shape
    unknown: tuple[str, ...] = ()


def held_by(pod: Pod) -> Amounts:
    """Return the resources that a pod requests of its node, with exclusive and counter devices."""
    alone, kin = exclusive_devices(pod), self_affinity_devices(pod)
    return {**amounts_of(pod.spec), **dict.fromkeys((*alone, *kin), 1.0)}


@once_per_template
def pod_request(pod: Pod) -> PodRequest:
    """The shape of a pod."""
    amounts = held_by(pod)
    claimed = pod.claimed or Claimed()
    gpus = sum(int(amounts.get(name, 0)) for name in GPU_RESOURCES) + claimed.gpus
    amounts |= dict(claimed.counted)
    if claimed.gpus and not claimed.counted:
        amounts[CLAIMED_GPUS] = claimed.gpus
    unknown = [*_unknown_amounts(amounts), *invalid_annotations(pod)]
    shape = Shape(
        gpus=gpus,
        cpus=amounts.get("cpu", 0.0),
        memory_GiB=amounts.get("memory", 0.0) / 2**30,
        labels=_pinned(dict(labels_of(pod.spec)), claimed),
        devices=tuple(sorted(devices_of(amounts).items(), key=_of_selector_last)),
    )
    shape, of_hived = shape_of(pod, shape)
    return PodRequest(shape, (*unknown, *of_hived))


def _of_selector_last(told: tuple[str, int]) -> tuple[bool, str]:
    """A refusal names the first that is short."""
    return told[0].startswith(OF_SELECTOR), told[0]


def devices_of(amounts: Mapping[str, float]) -> dict[str, int]:
    """What is counted by name; storage in MiB. A pod counts as one of `PODS`."""
    counted = {
        name: int(amount) for name, amount in amounts.items() if amount > 0 and is_counted(name)
    }
    if amounts.get("ephemeral-storage"):
        counted["ephemeral-storage"] = -int(-amounts["ephemeral-storage"] // _MEBI)
    return {**counted, PODS: 1}


def is_counted(resource: str) -> bool:
    """Whether a resource is counted as devices of its name, as every extended resource is.

    GPUs are counted twice: as GPUs of the machine, which have positions and links, and as what its plugin allocates.
    """
    return resource not in _NATIVE and resource != PODS


def labels_of(spec: PodSpec) -> Iterator[tuple[str, str]]:
    """Labels that a node must have, and the rules on nodes and taints, as `model.node_rules` writes them.

    No node has labels of the keys that rules have here: who selects by those would give himself tolerations.
    """
    told = spec.node_selector.items()
    asked = {key: value for key, value in told if key not in OF_COMPUTE_DOMAINS}
    selector = {key: value for key, value in asked.items() if key not in _RULES}
    yield from sorted(selector.items())
    affinity = spec.affinity.node_affinity if spec.affinity else None
    rule = "" if len(selector) < len(asked) else _rule(affinity)
    if rule is not None:
        yield node_rules.NODES_LABEL, rule
    if spec.tolerations:
        yield (
            node_rules.TOLERATES_LABEL,
            ", ".join(sorted({_toleration(t) for t in spec.tolerations} - {""})),
        )


def _pinned(labels: dict[str, str], claimed: Claimed) -> tuple[tuple[str, str], ...]:
    """The same labels, on those nodes alone where devices are that the pod has already."""
    for nodes in claimed.nodes:
        there = node_rules.read_rule(_rule(NodeAffinity(nodes)) or "")
        told = labels.get(node_rules.NODES_LABEL)
        before = ((),) if told is None else node_rules.read_rule(told)
        both = tuple((*one, *other) for one in before for other in there)
        labels[node_rules.NODES_LABEL] = node_rules.rule_text(both)
    return tuple(labels.items())


def _rule(affinity: NodeAffinity | None) -> str | None:
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    return None if required is None else node_rules.rule_text(alternatives_of(required))


def alternatives_of(selector: NodeSelector) -> node_rules.Alternatives:
    """What a node selector asks, as rules have it."""
    terms = [_term(term) for term in selector.node_selector_terms]
    return tuple(term for term in terms if term)


def _term(term: NodeSelectorTerm) -> tuple[node_rules.Requirement, ...]:
    """A term without expressions, or with one that means nothing, matches no node: it stands for no alternative."""
    told = [_requirement(each) for each in (*term.match_expressions, *term.match_fields)]
    known = tuple(each for each in told if each is not None)
    return known if len(known) == len(told) else ()


def _requirement(each: NodeSelectorRequirement) -> node_rules.Requirement | None:
    """A requirement as rules have it; None for one that no rule says, as `Gt` of what is no number."""
    operator = _OPERATORS.get(each.operator, "")
    values = () if operator in ("exists", "absent") else each.values
    found = node_rules.Requirement(each.key, operator, values)
    is_countable = operator not in (">", "<") or len(values) == 1
    try:
        is_said = is_countable and node_rules.read_rule(str(found)) == ((found,),)
    except ValueError:
        return None
    return found if is_said else None


def _toleration(told: Toleration) -> str:
    """A toleration as rules have it; "" for one that no taint can be like."""
    value = told.value if told.operator == "Equal" and told.key else None
    text = str(node_rules.Toleration(told.key or "*", value, told.effect or None))
    try:
        return text if len(node_rules.read_tolerations(text)) == 1 else ""
    except ValueError:
        return ""


def _unknown_amounts(amounts: Amounts) -> Iterator[str]:
    kinds = [name for name in GPU_RESOURCES if amounts.get(name)]
    if len(kinds) > 1:
        yield f"{' and '.join(kinds)} in one pod: they are added up"


def matches_labels(asked: Mapping[str, str], node: Node) -> bool:
    """Whether a node is as labels and rules ask (`labels_of`), taints aside."""
    labels = node.metadata.labels
    rule = asked.get(node_rules.NODES_LABEL)
    return (rule is None or node_rules.satisfies(node.metadata.name, labels, rule)) and all(
        labels.get(key) == value for key, value in asked.items() if key not in _RULES
    )


def tolerates_taints(asked: Mapping[str, str], node: Node) -> bool:
    """Return whether these labels and rules tolerate all taints of a node that keep pods away."""
    taints = (node_rules.Taint(t.key, t.value, t.effect) for t in node.spec.taints)
    return node_rules.tolerates(tuple(taints), asked.get(node_rules.TOLERATES_LABEL, ""))
