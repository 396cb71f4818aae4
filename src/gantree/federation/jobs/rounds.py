"""Rounds of questions: each usable cluster is asked once about a job, and the best of those that answered gets it."""

from collections.abc import Iterable, Sequence

from gantree.federation.jobs.choice import Offer, chosen, reason_of
from gantree.federation.jobs.federated_job import FederatedJob
from gantree.model.federation import Federation


class Rounds:
    """The rounds that are open. A cluster that fails to answer is out of its round."""

    def __init__(self) -> None:
        self._offers: dict[str, dict[str, Offer | None]] = {}

    def is_open(self, job: str) -> bool:
        """Whether clusters are being asked about a job."""
        return job in self._offers

    def open(self, job: str, clusters: Iterable[str]) -> None:
        """Begin to ask these clusters."""
        self._offers[job] = dict.fromkeys(clusters)

    def drop(self, job: str) -> None:
        """Nothing needs to be known of a job any more."""
        self._offers.pop(job, None)

    def take(self, job: str, cluster: str, offer: Offer | None) -> list[Offer] | None:
        """The answer of a cluster, None if there was none; all offers once nobody is left to answer."""
        offers = self._offers.get(job)
        if offers is None:
            return None
        if offer is None:
            offers.pop(cluster, None)
        else:
            offers[cluster] = offer
        if None in offers.values():
            return None
        del self._offers[job]
        return [each for each in offers.values() if each is not None]


def best_offer(
    federation: Federation, job: FederatedJob, offers: Sequence[Offer]
) -> tuple[Offer | None, str]:
    """The best of some offers for a job, and why; None, and why not, where no cluster can ever start it."""
    eligible, about_checkpoint = _with_checkpoint(federation, job, offers)
    best = chosen(eligible, federation.choose)
    if best is None:
        return None, "; ".join(offer.sentence for offer in offers)
    return best, reason_of(eligible, best, federation.choose) + about_checkpoint


def _with_checkpoint(
    federation: Federation, job: FederatedJob, offers: Sequence[Offer]
) -> tuple[Sequence[Offer], str]:
    """The offers of clusters that have the checkpoints of a job that was moved, else all; and a sentence."""
    before = next((each for each in federation.clusters if each.name == job.before), None)
    if before is None or not job.is_leased:
        return offers, ""
    having = [
        offer
        for offer in offers
        if not offer.refusal and job.shares_checkpoint(before, federation.cluster(offer.cluster))
    ]
    if having:
        return having, f". It goes on from its last checkpoint in {job.checkpoint}"
    return offers, f". It starts from the beginning: no checkpoint of {job.before} is elsewhere"
