"""Which copies a service of several regions has, and which clusters each may be in."""

import pytest

from gantree.federation.api.service_rows import in_full
from gantree.federation.jobs.copies import allowed_clusters, copies_of
from gantree.federation.jobs.federated_job import FederatedJob, Stage
from gantree.model.errors import BadInput
from gantree.model.federation import FederatedCluster, Federation, Regions

WORLD = Federation(
    "world",
    tuple(
        FederatedCluster(name, f"http://{name}", None, region)
        for name, region in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("c1", "c"))
    ),
)


def copy(job: str = "s", cluster: str = "", region: str = "", **fields: object) -> FederatedJob:
    stage = Stage.PLACED if cluster else Stage.CHOOSING
    made = FederatedJob(job, "s", {}, kind="service", cluster=cluster, region=region, stage=stage)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def changed(
    regions: Regions, *live: FederatedJob
) -> tuple[dict[str, str], tuple[str, ...], list[str]]:
    """What is kept, with its region; the regions of new ones; what ends."""
    found = copies_of(copy(regions=regions), WORLD, live)
    kept = {each.job: region for each, region in found.kept}
    return kept, found.new, [each.job for each in found.ending]


@pytest.mark.parametrize(
    ("regions", "live", "expected"),
    [
        (Regions(count=2), [], ({}, ("", ""), [])),
        (Regions(), [], ({}, ("a", "b", "c"), [])),
        (Regions(names=("c", "a")), [], ({}, ("c", "a"), [])),
        # a copy stays where it is
        (Regions(names=("a", "c")), [copy("s", "b1"), copy("t", "a2")], ({"t": "a"}, ("c",), ["s"])),
        (Regions(count=1), [copy("s"), copy("t", "b1", "b")], ({"t": ""}, (), ["s"])),
        (Regions(count=2), [copy("s"), copy("t", "b1", "b")], ({"t": "", "s": ""}, (), [])),
        # one that has no cluster takes what is missing
        (Regions(names=("a", "b")), [copy("s"), copy("t", "b1")], ({"t": "b", "s": "a"}, (), [])),
        (Regions(names=("a",)), [copy("s", region="b")], ({"s": "a"}, (), [])),
        # one that is to end counts no more
        (Regions(count=1), [copy("s", "a1", cancelled=True)], ({}, ("",), [])),
    ],
)  # fmt: skip
def test_a_new_description_keeps_what_is_where_it_may_be(
    regions: Regions,
    live: list[FederatedJob],
    expected: tuple[dict[str, str], tuple[str, ...], list[str]],
) -> None:
    assert changed(regions, *live) == expected


@pytest.mark.parametrize(
    ("regions", "said"),
    [
        (Regions(names=("a", "mars")), "s: regions: there is no mars; there are a, b, c"),
        (Regions(count=4), "s: regions: 4; there are 3: a, b, c"),
    ],
)
def test_regions_that_are_not_there_are_refused(regions: Regions, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        changed(regions)


def test_a_copy_is_not_beside_another_and_keeps_to_its_region() -> None:
    others = [copy("t", "b1"), copy("u", region="c"), FederatedJob("j", "s", {}, cluster="a1")]
    assert allowed_clusters(WORLD, copy(), others) == {"a1", "a2"}
    assert allowed_clusters(WORLD, copy(region="b"), others) == set()
    assert allowed_clusters(WORLD, copy("t", "b1"), others) == {"a1", "a2", "b1"}
    assert len(allowed_clusters(WORLD, FederatedJob("k", "s", {}), others)) == 4


def test_a_service_is_the_sum_of_its_copies() -> None:
    counts = dict.fromkeys(
        ("wanted", "ready", "current", "placed", "draining", "min", "max", "floor", "spare"), 1
    )
    load = {
        "at": 5.0, "requests": 3, "errors": 0, "shed": 0, "in_flight": 1, "queued": 0, "concurrency": 1.5, "rate": 2.0,
        "latency_p50_s": 0.1, "latency_p99_s": 0.4, "ttft_p99_s": None, "itl_p99_s": None, "tokens_per_s": 7.0,
    }  # fmt: skip
    east = {
        **counts,
        "state": "ready",
        "load": load,
        "service": "s",
        "scalings": [],
        "autoscaler": {},
    }
    east["replicas"] = [{"replica": "s.1"}]
    west = {**east, "state": "starting", "ready": 0, "scalings": [{"at": 1.0, "reason": "x"}]}
    west["load"] = {**load, "at": 4.0, "latency_p99_s": 0.9, "tokens_per_s": None}
    found = in_full([("a1", east), ("b1", west)])
    assert (found["wanted"], found["ready"], found["state"]) == (2, 1, "starting")
    assert [each["replica"] for each in found["replicas"]] == ["a1/s.1", "b1/s.1"]
    assert found["scalings"] == [{"at": 1.0, "reason": "b1: x"}]
    assert found["clusters"][1] == {"cluster": "b1", "state": "starting", "wanted": 1, "ready": 0}
    sums = {key: found["load"][key] for key in ("at", "rate", "latency_p99_s", "tokens_per_s")}
    assert sums == {"at": 4.0, "rate": 4.0, "latency_p99_s": 0.9, "tokens_per_s": 7.0}
    alone = in_full([("a1", {**east, "load": None})])
    assert (alone["load"], alone["replicas"]) == (None, [{"replica": "s.1"}])
