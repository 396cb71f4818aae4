"""A federation: clusters behind one front, what moving data between them costs, and leases on the jobs it hands out.

Each cluster has a daemon of its own, which decides about all of its jobs. The front chooses the cluster of a job; an
`Assignment` is one such choice.
"""

from dataclasses import dataclass, field
from enum import Enum

ASSIGNMENT_SEPARATOR = "/"


class ChooseBy(Enum):
    """What decides between clusters that can run a job: the earliest start or the lowest price, data included."""

    START = "start"
    COST = "cost"


class EnforcedBy(Enum):
    """Who stops a leased job at the end of the lease: the shims of its members, or only the daemon, while it runs."""

    MEMBERS = "members"
    DAEMON = "daemon"


@dataclass(frozen=True, slots=True)
class Regions:
    """The regions in which a service of a federation runs: so many of them, those of these names, or else all."""

    count: int | None = None
    names: tuple[str, ...] = ()


ONE_REGION = Regions(count=1)


@dataclass(frozen=True, slots=True)
class Assignment:
    """The choice of a cluster for a job of a federation; number counts the choices for the job from 1.

    lease is the number of the cluster's lease that it was made under: the cluster takes it under no other.
    """

    federation: str
    job: str
    number: int
    lease: int = 0

    def __str__(self) -> str:
        return ASSIGNMENT_SEPARATOR.join((self.federation, self.job, str(self.number)))


def assignment_of(text: str) -> Assignment:
    """The assignment that `str` made this of, without its lease."""
    federation, job, number = text.split(ASSIGNMENT_SEPARATOR)
    return Assignment(federation, job, int(number))


@dataclass(frozen=True, slots=True)
class Stamp:
    """A moment on the clock of one boot of a machine, which cannot be set and goes on while the machine sleeps."""

    boot: str
    at_s: float


@dataclass(frozen=True, slots=True)
class Renewal:
    """What a front asks of a cluster: to hold lease `number` for lease_s seconds from a stamp of the cluster's own.

    Without a stamp nothing is renewed; the answer has the stamp of the next renewal.
    """

    federation: str
    number: int
    lease_s: float
    stamp: Stamp | None = None


@dataclass(frozen=True, slots=True)
class FederatedCluster:
    """A cluster of a federation. data are the data sets that are there; price_factor multiplies its own prices.

    storage are directories that are the same on each cluster that names them: checkpoints below them are there after
    a move.
    """

    name: str
    url: str
    token: str | None = field(repr=False)
    region: str
    data: frozenset[str] = frozenset()
    storage: tuple[str, ...] = ()
    price_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class RegionLink:
    """What moving data from one region to another costs, and how fast it is."""

    source: str
    target: str
    USD_per_GiB: float = 0.0
    bandwidth_GBps: float = 1.0


@dataclass(frozen=True, slots=True)
class Federation:
    """lease_s: how long a cluster may be out of touch with the front until its jobs are started elsewhere.

    margin_s is what the front waits beyond that. heartbeat_s: how often leases are renewed. lost_after_s: a cluster
    that has not answered for so long gets no new jobs, and its services are started elsewhere. move_waiting_s: a job
    that has only waited for so long goes to a cluster that starts it at once; 0: it stays.
    """

    name: str
    clusters: tuple[FederatedCluster, ...]
    links: tuple[RegionLink, ...] = ()
    choose: ChooseBy = ChooseBy.START
    lease_s: float = 300.0
    margin_s: float = 15.0
    heartbeat_s: float = 5.0
    lost_after_s: float = 30.0
    move_waiting_s: float = 900.0

    def cluster(self, name: str) -> FederatedCluster:
        """The cluster of this name."""
        return next(each for each in self.clusters if each.name == name)

    @property
    def regions(self) -> tuple[str, ...]:
        """Those of the clusters, in the order of the file."""
        return tuple(dict.fromkeys(each.region for each in self.clusters))

    def link(self, source: str, target: str) -> RegionLink:
        """How data goes from a region to another; inside a region at no cost, and in no time."""
        if source == target:
            return RegionLink(source, target, 0.0, float("inf"))
        pairs = {(each.source, each.target): each for each in self.links}
        return pairs.get((source, target)) or RegionLink(source, target)
