"""Moves of jobs that only wait: one that has waited for long goes to another cluster if that starts it at once. Pure.

A job is moved before its first start alone, and by the same rule as any other: its cluster ends it first. The cluster
is asked to cancel it only if nothing has become of it since it was seen waiting (`version`), so a job that has started
meanwhile stays. It is chosen for anew once its cluster says that it was cancelled.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gantree.federation.jobs.choice import Offer
from gantree.federation.jobs.federated_job import FederatedJob, Stage
from gantree.model.federation import ChooseBy, Federation
from gantree.model.phases import Phase
from gantree.text.words import span


class Moves:
    """Since when jobs wait, by their ids, and the versions of those that are being moved."""

    def __init__(self, federation: Federation) -> None:
        self._federation = federation
        self._since: dict[str, float] = {}
        self._versions: dict[str, str] = {}

    def note(self, job: FederatedJob, row: Mapping[str, Any], now_s: float) -> None:
        """A cluster lists a job."""
        if row["phase"] == Phase.PENDING and not row["held"] and not row["attempt"]:
            self._since.setdefault(job.job, now_s)
        else:
            self._since.pop(job.job, None)

    def forget(self, live: Iterable[str]) -> None:
        """These are all jobs that have not ended."""
        kept = set(live)
        self._since = {job: since for job, since in self._since.items() if job in kept}
        self._versions = {job: told for job, told in self._versions.items() if job in kept}

    def is_due(self, job: FederatedJob, now_s: float) -> bool:
        """Whether other clusters may be asked: it waits for long, in a cluster that can cancel it by its version."""
        after_s, since = self._federation.move_waiting_s, self._since.get(job.job)
        is_movable = job.is_leased and job.stage is Stage.PLACED and "/" not in job.remote
        by_start = self._federation.choose is ChooseBy.START
        return bool(
            after_s and by_start and is_movable and since is not None and now_s - since >= after_s
        )

    def version(self, job: FederatedJob) -> str:
        """The version in which a job was seen waiting; "" where it is to be looked at first."""
        return self._versions.get(job.job, "")

    def looked(self, job: FederatedJob, answer: Mapping[str, Any]) -> bool:
        """Whether a job that is being moved still waits."""
        waits = answer["phase"] == Phase.PENDING and not answer.get("held")
        if waits:
            self._versions[job.job] = answer["version"]
        else:
            self.end(job)
        return waits

    def end(self, job: FederatedJob) -> None:
        """It is moved, or stays."""
        self._since.pop(job.job, None)
        self._versions.pop(job.job, None)

    def reason(self, job: FederatedJob, offers: Iterable[Offer], now_s: float) -> str:
        """Why a job is moved; "" where no other cluster starts it at once, with its data."""
        best = next((each for each in offers if not each.refusal and each.ready_in_s == 0.0), None)
        since = self._since.get(job.job)
        if best is None or since is None or job.stage is not Stage.PLACED:
            return ""
        waited = span(now_s - since)
        return f"it has waited in {job.cluster} for {waited}, and {best.cluster} starts it at once"
