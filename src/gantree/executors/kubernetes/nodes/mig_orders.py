"""The order to give a node another MIG config, or GPU config profile, as the node itself says how far it is.

Annotations say what gantree wants, labels what it has asked of the manager and what came of it. So whoever leads next
goes on where the last one stopped. A node with an order, or one that failed, is cordoned in gantree by their reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gantree.executors.kubernetes.apiserver.objects import Node, NodeTaint
from gantree.executors.kubernetes.nodes.mig_layouts import Offer, offers
from gantree.executors.kubernetes.nodes.partition_managers import (
    is_prepared,
    manager_of,
    taints_with,
    taints_without,
)

WANTED, FOR = "gantree.io/mig-config", "gantree.io/mig-config-for"
"""The config that a node is to get, and the job that it is for."""
SINCE, WRONG = "gantree.io/mig-config-since", "gantree.io/mig-config-failed"
"""When the label was written, in seconds since 1970; and why the last order came to nothing."""
Changes = dict[str, str | None]
Marks = tuple[str | None, ...]
"""What of a node orders read and write."""


@dataclass(frozen=True, slots=True)
class MigOrder:
    """A node is to get a config. since: when the manager was asked, None before that. state: the manager's answer."""

    node: str
    config: str
    job: str
    since: float | None
    state: str

    @property
    def stage(self) -> str:
        """How far it is, in a few words."""
        if self.since is None:
            return "pods with GPUs leave it first"
        return f"the manager says {self.state}" if self.state else "the manager has not answered"


def order_of(node: Node) -> MigOrder | None:
    """The order of a node; None for none."""
    told, labels, manager = node.metadata.annotations, node.metadata.labels, manager_of(node)
    config = told.get(WANTED)
    if not config:
        return None
    is_asked = labels.get(manager.config) == config
    since = _moment(told.get(SINCE, "")) if is_asked else None
    state = labels.get(manager.state, "")
    return MigOrder(node.metadata.name, config, told.get(FOR, ""), since, state)


def marks_of(node: Node) -> Marks:
    """What a node says of its order."""
    told, labels, manager = node.metadata.annotations, node.metadata.labels, manager_of(node)
    annotations = (told.get(name) for name in (WANTED, FOR, SINCE, WRONG))
    taint = "prepared" if is_prepared(node) else None
    return (*annotations, labels.get(manager.config), labels.get(manager.state), taint)


def begin(config: str, job: str) -> Mapping[str, object]:
    """The patch of a node that begins an order."""
    return _patch({WANTED: config, FOR: job, SINCE: None, WRONG: None})


def ask(config: str, now: float, node: Node) -> Mapping[str, object]:
    """The patch that asks the manager. The state of before is taken away, or it would be taken for the answer."""
    manager = manager_of(node)
    patch = _patch({SINCE: f"{now:.3f}"}, {manager.config: config, manager.state: None})
    return patch if manager.taint is None else _tainted(patch, node, taints_with(node))


def release(node: Node) -> Mapping[str, object]:
    """The patch that lets the pods of the manager's operator return."""
    return _tainted({"metadata": {}}, node, taints_without(node))


def end(node: Node, reason: str = "") -> Mapping[str, object]:
    """The patch that ends an order, with why it failed. The job that it was for stays beside a failure."""
    job: Changes = {} if reason else {FOR: None}
    patch = _patch({WANTED: None, SINCE: None, WRONG: reason or None, **job})
    return _tainted(patch, node, taints_without(node)) if is_prepared(node) else patch


def outcome(
    order: MigOrder,
    node: Node,
    offer: Offer | None,
    now: float,
    within_s: float,
    failure_within_s: float,
) -> str | None:
    """What has come of an order that was asked: "" if it is done, why it failed, or None while it goes on.

    failure_within_s: so long a manager that tries again may say that it failed.
    """
    assert order.since is not None
    manager = manager_of(node)
    if order.state == manager.success and offer is not None and offers(node, offer):
        return ""
    is_final = not manager.retries or now >= order.since + failure_within_s
    if order.state == manager.failed and is_final:
        return f"the manager could not apply config {order.config}: see its log on this node"
    if now < order.since + within_s:
        return None
    if order.state == manager.success:
        return f"the device plugin does not offer what config {order.config} makes"
    return f"the manager did not apply config {order.config} within {within_s:g} s: {order.stage}"


def cordon_of(node: Node) -> str | None:
    """The reason for which a node is kept free by its order, or by one that failed; None for none."""
    order, wrong = order_of(node), node.metadata.annotations.get(WRONG)
    cordoned = manager_of(node).cordoned
    if order is not None:
        return f"{cordoned}it gets config {order.config}"
    return (
        f"{cordoned}{wrong}; to use it as it is, remove its annotation {WRONG}" if wrong else None
    )


def said_of(node: Node) -> str:
    """How far the order of a node is, or why it failed, as a part of a sentence."""
    order, wrong = order_of(node), node.metadata.annotations.get(WRONG, "")
    what = manager_of(node).what
    if order is not None:
        return f"node {order.node} gets {what} {order.config} ({order.stage})"
    return f"node {node.metadata.name} got no other {what}: {wrong}"


def _patch(annotations: Changes, labels: Changes | None = None) -> Mapping[str, object]:
    told: dict[str, object] = {"annotations": annotations}
    return {"metadata": told | ({} if labels is None else {"labels": labels})}


def _tainted(
    patch: Mapping[str, object], node: Node, taints: Sequence[NodeTaint]
) -> Mapping[str, object]:
    """The same patch with all taints of a node, which one list holds: it fails where the node has changed since."""
    metadata = patch["metadata"]
    assert isinstance(metadata, dict)
    rows = [
        {
            "key": each.key,
            "effect": each.effect,
            **({"value": each.value} if each.value else {}),
            **({"timeAdded": each.time_added} if each.time_added else {}),
        }
        for each in taints
    ]
    version = {"resourceVersion": node.metadata.resource_version}
    return {"metadata": metadata | version, "spec": {"taints": rows}}


def _moment(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
