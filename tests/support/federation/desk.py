"""A front whose calls a test answers by hand."""

from dataclasses import dataclass, field
from typing import Any

from gantree.federation.calls import Call, CallKind
from gantree.federation.front import Front
from gantree.federation.jobs.choice import Offer
from gantree.federation.jobs.federated_job import FederatedJob, Stage
from gantree.federation.jobs.store import Store
from support.federation.lives import federation

KINDS = {kind.name.lower(): kind for kind in CallKind}


@dataclass
class Desk:
    """A front whose calls the test answers by hand."""

    store: Store = field(default_factory=lambda: Store(":memory:"))
    now: float = 0.0
    sent: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.sent.clear()
        self.front = Front(federation("a", "b"), self.store, self.now, lambda: self.now)

    def pass_s(self, seconds: float) -> None:
        self.now += seconds
        self.sent += self.front.calls(self.now)

    def take(self, kind: str, cluster: str) -> Call:
        """The oldest call of a kind to a cluster that was not answered."""
        self.pass_s(0.0)
        call = next(
            each for each in self.sent if each.kind is KINDS[kind] and each.cluster == cluster
        )
        self.sent.remove(call)
        return call

    def has(self, kind: str, cluster: str) -> bool:
        self.pass_s(0.0)
        return any(each.kind is KINDS[kind] and each.cluster == cluster for each in self.sent)

    def lease(
        self,
        cluster: str,
        *rows: tuple[str, str],
        call: Call | None = None,
        by: str = "members",
        service: bool = False,
        phase: str = "running",
    ) -> None:
        """The cluster answers a renewal; rows are (its job, assignment)."""
        call = call or self.take("lease", cluster)
        assert call.renewal is not None
        answer = {
            "granted": call.renewal.stamp is not None,
            "stamp": {"boot": cluster, "at_s": self.now},
            "enforced_by": by,
            "jobs": [
                {
                    "job": job,
                    "assignment": told,
                    "phase": phase,
                    "service": service,
                    "held": False,
                    "attempt": int(phase != "pending"),
                }
                for job, told in rows
            ],
        }
        self.front.answered(call, answer, self.now)

    def join(self, *clusters: str) -> None:
        for cluster in clusters:
            self.lease(cluster)
            self.pass_s(0.1)
            self.lease(cluster)

    def submit(self, name: str = "j", to: str = "a", **fields: Any) -> FederatedJob:
        job = FederatedJob(name, name, {}, **fields)
        (taken,) = self.front.submit([(job, [Offer(to, 0.0)])])
        return taken

    def place(self, name: str = "j", to: str = "a", **fields: Any) -> FederatedJob:
        job = self.submit(name, to, **fields)
        self.front.answered(self.take("submit", to), {"jobs": [{"job": f"{name}@{to}"}]}, self.now)
        assert job.stage is Stage.PLACED
        return job

    def keep(self, cluster: str, seconds: float, *rows: tuple[str, str]) -> None:
        """Let time pass in which one cluster answers."""
        for _ in range(int(seconds)):
            self.pass_s(1.0)
            if self.has("lease", cluster):
                self.lease(cluster, *rows)

    def offer(self, cluster: str, starts_at: float | None = None) -> None:
        """The cluster answers a question: it starts the job at once, or then."""
        call = self.take("forecast", cluster)
        start = None if starts_at is None else {"starts_at": starts_at}
        forecast = {"refused": None, "start": start, "cost_USD": None, "now": start is None}
        self.front.answered(call, {"asked_at": 0.0, "forecast": forecast}, self.now)
