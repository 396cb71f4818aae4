"""The metrics of the front."""

from prometheus_client.parser import text_string_to_metric_families

from gantree.federation.api.metrics import exposition
from gantree.federation.api.rows import status
from gantree.federation.jobs.federated_job import FederatedJob
from support.federation.desk import Desk


def figures(desk: Desk) -> dict[tuple[str, ...], float]:
    """Name and values of labels, in the order of these, of each sample."""
    text = exposition(status(desk.front, desk.now)).decode()
    return {
        (sample.name.removeprefix("gantree_federation_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_metrics_have_clusters_that_are_silent_and_jobs_that_wait_for_one() -> None:
    desk = Desk()
    desk.join("a", "b")
    desk.place()
    desk.place("chat", "b", kind="service")
    desk.front.submit([(FederatedJob("k", "k", {}), [])])
    found = figures(desk)
    assert found["cluster_ready", "a", "a"] == found["cluster_ready", "b", "b"] == 1.0
    assert found["cluster_silent_seconds", "a", "a"] == 0.0
    assert (found["jobs", "a", "job", "a"], found["jobs", "a", "service", "a"]) == (1.0, 0.0)
    assert (found["jobs", "b", "job", "b"], found["jobs", "b", "service", "b"]) == (0.0, 1.0)
    assert found[("jobs_without_cluster",)] == 1.0
    answered_at = desk.front.leases["a"].answered_at_s
    desk.keep("b", 30.0)
    found = figures(desk)
    assert (found["cluster_ready", "a", "a"], found["cluster_ready", "b", "b"]) == (0.0, 1.0)
    assert found["cluster_silent_seconds", "a", "a"] == desk.now - answered_at
