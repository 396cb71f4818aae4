"""Facts about nodes and links: whether they may be used, how healthy they are, their labels."""

from dataclasses import dataclass
from typing import ClassVar

from gantree.model.cluster import LinkId
from gantree.model.facts import Fact, Owner
from gantree.model.repairs import RepairState


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMarked(Fact):
    """A node became usable or unusable."""

    OWNER: ClassVar[Owner] = "cluster"
    node: str
    usable: bool
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCordoned(Fact):
    """A node was cordoned: nothing new starts there. Replaces an earlier cordon.

    drain: gangs leave it; those without a place elsewhere at deadline_at, None: at once.
    """

    node: str
    reason: str = ""
    drain: bool = False
    deadline_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUncordoned(Fact):
    """A node was uncordoned."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHealthNoted(Fact):
    """A source reported a fault of a node, or "" for none; replaces its earlier report. Nothing new starts there.

    forgiven: an operator lets it be used all the same, until the source says something else. kept: why it stays in use
    although the source reports the fault, such as that too many nodes are out already; "": it does not. lost_gpus as
    in `HealthObserved`: gangs there that hold one are stopped without saving.
    """

    node: str
    source: str
    reason: str = ""
    forgiven: bool = False
    kept: str = ""
    lost_gpus: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkHealthNoted(Fact):
    """A source reported which share of its rate a link carries, 1 for all, and its load; replaces its earlier report.

    forgiven: an operator counts it as whole and idle all the same, until the source reports something else.
    """

    link: LinkId
    source: str
    health: float = 1.0
    reason: str = ""
    forgiven: bool = False
    load: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRepairNoted(Fact):
    """The repair of a node has come so far, as `RepairObserved` says; replaces what was noted of it before."""

    node: str
    state: RepairState
    sign: str
    steps: tuple[str, ...]
    step: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLabelled(Fact):
    """A label of a node was set, overriding the cluster file; None removes it."""

    node: str
    key: str
    value: str | None
