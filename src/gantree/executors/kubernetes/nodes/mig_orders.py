"""The order to give a node another MIG config, as the node itself says how far it is.

Annotations say what gantree wants, labels what it has asked of the manager and what came of it. So whoever leads next
goes on where the last one stopped. A node with an order, or one that failed, is cordoned in gantree by their reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gantree.executors.kubernetes.apiserver.objects import Node
from gantree.executors.kubernetes.nodes.mig_layouts import (
    CONFIG,
    FAILED,
    STATE,
    SUCCESS,
    Offer,
    offers,
)

WANTED, FOR = "gantree.io/mig-config", "gantree.io/mig-config-for"
"""The config that a node is to get, and the job that it is for."""
SINCE, WRONG = "gantree.io/mig-config-since", "gantree.io/mig-config-failed"
"""When the label was written, in seconds since 1970; and why the last order came to nothing."""
CORDONED = "MIG: "
"""Reasons of cordons that orders make begin so; others are operators'."""
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
    told, labels = node.metadata.annotations, node.metadata.labels
    config = told.get(WANTED)
    if not config:
        return None
    is_asked = labels.get(CONFIG) == config
    since = _moment(told.get(SINCE, "")) if is_asked else None
    return MigOrder(node.metadata.name, config, told.get(FOR, ""), since, labels.get(STATE, ""))


def marks_of(node: Node) -> Marks:
    """What a node says of its order."""
    told, labels = node.metadata.annotations, node.metadata.labels
    annotations = (told.get(name) for name in (WANTED, FOR, SINCE, WRONG))
    return (*annotations, labels.get(CONFIG), labels.get(STATE))


def begin(config: str, job: str) -> Mapping[str, object]:
    """The patch of a node that begins an order."""
    return _patch({WANTED: config, FOR: job, SINCE: None, WRONG: None})


def ask(config: str, now: float) -> Mapping[str, object]:
    """The patch that asks the manager. The state of before is taken away, or it would be taken for the answer."""
    return _patch({SINCE: f"{now:.3f}"}, {CONFIG: config, STATE: None})


def end(reason: str = "") -> Mapping[str, object]:
    """The patch that ends an order, with why it failed. The job that it was for stays beside a failure."""
    job: Changes = {} if reason else {FOR: None}
    return _patch({WANTED: None, SINCE: None, WRONG: reason or None, **job})


def outcome(
    order: MigOrder, node: Node, offer: Offer | None, now: float, within_s: float
) -> str | None:
    """What has come of an order that was asked: "" if it is done, why it failed, or None while it goes on."""
    assert order.since is not None
    if order.state == SUCCESS and offer is not None and offers(node, offer):
        return ""
    if order.state == FAILED:
        return f"the manager could not apply config {order.config}: see its log on this node"
    if now < order.since + within_s:
        return None
    if order.state == SUCCESS:
        return f"the device plugin does not offer what config {order.config} makes"
    return f"the manager did not apply config {order.config} within {within_s:g} s: {order.stage}"


def cordon_of(node: Node) -> str | None:
    """The reason for which a node is kept free by its order, or by one that failed; None for none."""
    order, wrong = order_of(node), node.metadata.annotations.get(WRONG)
    if order is not None:
        return f"{CORDONED}it gets config {order.config}"
    return (
        f"{CORDONED}{wrong}; to use it as it is, remove its annotation {WRONG}" if wrong else None
    )


def said_of(node: Node) -> str:
    """How far the order of a node is, or why it failed, as a part of a sentence."""
    order, wrong = order_of(node), node.metadata.annotations.get(WRONG, "")
    if order is not None:
        return f"node {order.node} gets MIG config {order.config} ({order.stage})"
    return f"node {node.metadata.name} got no other MIG config: {wrong}"


def _patch(annotations: Changes, labels: Changes | None = None) -> Mapping[str, object]:
    told: dict[str, object] = {"annotations": annotations}
    return {"metadata": told | ({} if labels is None else {"labels": labels})}


def _moment(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
