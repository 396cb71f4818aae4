"""The cluster as its file describes it, and what operators and health sources report about its nodes."""

from dataclasses import dataclass, field, replace

from gantree.model.cluster import Cluster, Node
from gantree.model.placements import MemberPlacement

Labels = dict[str, str | None]
"""Label values by key as an operator has them; None: the node has no label of that key."""


@dataclass(frozen=True, slots=True)
class Cordon:
    """Why nothing new starts on a node, and since when. drain, deadline_at: as `facts.NodeCordoned` says.

    unwell: what is told to be wrong with the node, "" for nothing: gangs that can save leave it if they have a place.
    """

    reason: str
    since: float
    drain: bool = False
    deadline_at: float | None = None
    unwell: str = ""


@dataclass(frozen=True, slots=True)
class Illness:
    """What one source says is wrong with a node, since when, and whether an operator uses it all the same."""

    reason: str
    since: float
    forgiven: bool = False


@dataclass(slots=True)
class Site:
    """The cluster as its file describes it, and what operators say of its nodes instead.

    cordoned is what follows from both: from asked, the cordons that somebody asked for, and from unwell, what is wrong
    with nodes by who says so.
    labels are those alone in which an operator differs from the file. version grows with every word of an operator.
    others are who holds something that gantree did not start, with each what it is said to hold, one member a node;
    short those of them of whom less is counted, for the rest was not free.
    """

    described: Cluster | None = None
    cordoned: dict[str, Cordon] = field(default_factory=dict)
    labels: dict[str, Labels] = field(default_factory=dict)
    version: int = 0
    others: dict[str, tuple[MemberPlacement, ...]] = field(default_factory=dict)
    short: dict[str, None] = field(default_factory=dict)
    asked: dict[str, Cordon] = field(default_factory=dict)
    unwell: dict[str, dict[str, Illness]] = field(default_factory=dict)

    def with_labels(self) -> Cluster:
        """The cluster as it is now."""
        assert self.described is not None, "no cluster was observed yet"
        nodes = tuple(
            labelled(node, self.labels.get(node.name, {})) for node in self.described.nodes
        )
        return replace(self.described, nodes=nodes) if self.labels else self.described


def labelled(node: Node, labels: Labels) -> Node:
    """A node with these labels instead of its own of these keys."""
    if not labels:
        return node
    now = {**dict(node.labels), **labels}
    return replace(
        node, labels=tuple((key, value) for key, value in now.items() if value is not None)
    )
