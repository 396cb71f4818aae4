"""What ranks of pods report: whose token is good for what, what is kept, and what is refused and changes nothing."""

import json
from typing import Any

import pytest

from gantree.api.views.straggler_view import straggler_rows
from gantree.executors.kubernetes.apiserver.objects import (
    Metadata,
    Pod,
    PodClaim,
    PodSpec,
    PodStatus,
)
from gantree.executors.kubernetes.controllers import rank_reports
from gantree.executors.kubernetes.controllers.rank_reports import (
    RankReports,
    report_annotations,
)
from gantree.executors.kubernetes.pods.annotations import PARALLELISM, REPORT_TOKEN
from gantree.executors.kubernetes.pods.rank_report import MOST_RANKS_OF_POD, parallelism_of
from gantree.executors.report_records import MOST_STEPS
from gantree.model.errors import BadInput, Conflict, GantreeError, TooOften, Unauthenticated

JOB = ("train", 2)
WORLD = 8


def pod_of(number: int, gpus: str = "0,1,2,3", **told: Any) -> Pod:
    """The pod of one member, bound; its token is t0, t1, ..."""
    annotations = {"gantree.io/gpus": gpus, "gantree.io/report-token": f"t{number}"}
    meta = Metadata(f"p{number}", "default", f"uid{number}", annotations=annotations)
    return Pod(meta, PodSpec(node_name=f"n{number}", **told), PodStatus(phase="Running"))


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Gang:
    """Two pods of four ranks on nodes of four GPUs."""

    def __init__(self, *pods: Pod) -> None:
        self.clock = Clock()
        self.reports = RankReports(lambda: {"n0": 4, "n1": 4}, self.clock, lambda: 1000.0)
        for pod in pods or (pod_of(0), pod_of(1)):
            self.reports.update(pod.metadata.uid, pod, (JOB, "worker"))

    def take(self, token: str, rank: int, own_s: float = 1.0, **more: Any) -> float:
        steps = [[step, own_s] for step in range(40)]
        record = {
            "rank": rank,
            "local_rank": int(rank) % 4,
            "local_world_size": 4,
            "steps": {"rank": rank, "world_size": WORLD, "at": 1e15, "steps": steps},
            **more,
        }
        return self.reports.take(token, json.dumps(record).encode())

    def seen(self) -> dict[int, tuple[str, tuple[int, ...]]]:
        """Node and GPUs of each rank that reports."""
        found = self.reports.step_reports(*JOB)
        return {} if found is None else {each.rank: (each.node, each.gpus) for each in found.ranks}


def test_ranks_are_where_their_pods_are_and_the_slow_one_is_named() -> None:
    gang = Gang()
    for rank in range(WORLD):
        gang.take(f"t{rank // 4}", rank, 1.3 if rank == 6 else 1.0)
    assert gang.seen() == {rank: (f"n{rank // 4}", (rank % 4,)) for rank in range(WORLD)}
    found = gang.reports.step_reports(*JOB)
    assert found is not None
    assert (found.at, found.world_size) == (1000.0, WORLD)
    (row,) = straggler_rows(found)
    assert (row["rank"], row["role"], row["node"], row["gpus"]) == (6, "worker", "n1", [2])
    assert gang.reports.step_reports("train", 1) is None


def test_a_gpu_is_named_only_where_it_is_known() -> None:
    """Of a node's GPUs a device plugin chooses some itself; all of them, or those of claims, are known."""
    claimed = pod_of(1, "5,6", resource_claims=(PodClaim(),))
    gang = Gang(pod_of(0, "0,1"), claimed)
    for rank in (0, 4):
        gang.take(f"t{rank // 4}", rank, local_rank=0, local_world_size=2)
    gang.take("t1", 5, local_rank=1, local_world_size=2)
    gang.take("t1", 6, local_rank=0, local_world_size=1)
    assert gang.seen() == {0: ("n0", ()), 4: ("n1", (5,)), 5: ("n1", (6,)), 6: ("n1", (5, 6))}


@pytest.mark.parametrize(
    ("text", "ways"),
    [
        ("tensor=2,pipeline=2,data=2", (("tensor", 2), ("pipeline", 2), ("data", 2))),
        (" data=8 ", (("data", 8),)),
        ("", ()),
        ("tensor=2,", ()),
        ("tensor=0,data=8", ()),
        ("tensor=2;data=4", ()),
        ("speed=2", ()),
    ],
)
def test_the_parallelism_of_an_annotation(text: str, ways: tuple[tuple[str, int], ...]) -> None:
    assert parallelism_of(text) == ways


def test_stages_of_a_pipeline_are_not_compared_with_each_other() -> None:
    """Ranks 4 to 7 have more to do by design; one of them is slower than its own stage."""
    gang = Gang(
        *(with_annotation(pod_of(each), PARALLELISM, "data=4,pipeline=2") for each in (0, 1))
    )
    for rank in range(WORLD):
        gang.take(f"t{rank // 4}", rank, (2.0 if rank > 3 else 1.0) * (1.3 if rank == 6 else 1.0))
    found = gang.reports.step_reports(*JOB)
    assert found is not None
    assert [(row["rank"], row["peers"]) for row in straggler_rows(found)] == [(6, 3)]


def test_progress_is_that_of_rank_0_at_the_daemons_time() -> None:
    gang = Gang()
    gang.take("t1", 4, progress={"step": 9, "at": 1.0})
    assert gang.reports.progress(*JOB) is None
    gang.take("t0", 0, progress={"step": 5, "loss": float("nan"), "at": -1e300})
    found = gang.reports.progress(*JOB)
    assert found is not None
    assert (found.step, found.at, found.step_s) == (5, 1000.0, None)
    gang.clock.now_s += 1
    gang.take("t0", 0, progress={"step": "6"})
    assert gang.reports.progress(*JOB) == found


def test_a_report_of_progress_alone_leaves_the_steps() -> None:
    gang = Gang()
    gang.take("t0", 0)
    before = gang.reports.step_reports(*JOB)
    told = {"rank": 0, "local_rank": 0, "local_world_size": 4, "progress": {"step": 3}}
    gang.clock.now_s += 1
    gang.reports.take("t0", json.dumps(told).encode())
    found = gang.reports.progress(*JOB)
    assert found is not None
    assert (found.step, gang.reports.step_reports(*JOB)) == (3, before)
    with pytest.raises(TooOften):
        gang.take("t0", 0)


def test_the_newest_steps_of_a_rank_replace_the_older_ones() -> None:
    gang = Gang()
    for first in (0, 1000, 10):
        rows = [[step, 0.5] for step in range(first, first + 300)]
        gang.take("t0", 0, steps={"world_size": WORLD, "steps": [*rows, ["x", 1], [7, -1.0], 3]})
        gang.clock.now_s += 1
    found = gang.reports.step_reports(*JOB)
    assert found is not None
    steps = list(found.ranks[0].own_s_of_step)
    assert (steps[-1], len(steps)) == (309, MOST_STEPS - 3)
    gang.take("t0", 0, steps={"world_size": WORLD, "steps": [[3, 1.0], [-(2**62), 2.0]]})
    found = gang.reports.step_reports(*JOB)
    assert found is not None
    assert found.ranks[0].own_s_of_step == {3: 1.0, -(2**62): 2.0}


@pytest.mark.parametrize(
    ("token", "told", "error"),
    [
        ("t7", {}, Unauthenticated),
        ("", {}, Unauthenticated),
        ("t1", {"rank": 0}, Conflict),
        ("t1", {"rank": -1}, BadInput),
        ("t1", {"rank": True}, BadInput),
        ("t1", {"rank": 8}, BadInput),
        ("t1", {"rank": "5"}, BadInput),
        ("t1", {"rank": 5, "local_rank": 64}, BadInput),
        ("t1", {"rank": 5, "local_world_size": 0}, BadInput),
        ("t1", {"rank": 5, "steps": {"world_size": 2**40, "steps": [[1, 1.0]]}}, BadInput),
        ("t1", {"rank": 5, "steps": {"world_size": 8, "steps": [[1, float("inf")]]}}, BadInput),
        ("t1", {"rank": 5, "steps": []}, BadInput),
        ("t0", {"rank": 0}, TooOften),
    ],
)
def test_what_is_refused_changes_nothing_but_the_log(
    token: str, told: dict[str, Any], error: type[GantreeError], caplog: pytest.LogCaptureFixture
) -> None:
    gang = Gang()
    gang.take("t0", 0, progress={"step": 1})
    before = gang.reports.step_reports(*JOB), gang.reports.progress(*JOB)
    with pytest.raises(error):
        gang.take(token, **{"rank": 5, "progress": {"step": 2}, **told})
    assert (gang.reports.step_reports(*JOB), gang.reports.progress(*JOB)) == before
    with pytest.raises(GantreeError):
        gang.take("t7", 0)
    assert len(caplog.messages) == 1, "once a minute"


@pytest.mark.parametrize("body", [b"", b"\xff", b"[]", b"[" * 10_000, b'{"rank": 1' + b"0" * 5000])
def test_bodies_that_are_no_record_are_refused(body: bytes) -> None:
    with pytest.raises(BadInput):
        Gang().reports.take("t0", body)


def test_a_pod_has_so_many_ranks_and_all_together_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    gang = Gang()
    for rank in range(MOST_RANKS_OF_POD):
        gang.take("t0", rank, steps={"world_size": 999, "steps": [[1, 1.0]]})
    more: dict[str, Any] = {"steps": {"world_size": 999, "steps": [[1, 1.0]]}}
    with pytest.raises(Conflict, match="one too many"):
        gang.take("t0", MOST_RANKS_OF_POD, **more)
    monkeypatch.setattr(rank_reports, "MOST_RANKS", MOST_RANKS_OF_POD + 1)
    monkeypatch.setattr(rank_reports, "MOST_A_SECOND", 5)
    assert gang.take("t1", 100, **more) == 13.0
    with pytest.raises(Conflict, match="one too many"):
        gang.take("t1", 101, **more)


@pytest.mark.parametrize("how", ["gone", "ended", "released", "settled"])
def test_a_pod_that_is_over_reports_no_more_and_makes_room_for_its_successor(how: str) -> None:
    gang = Gang()
    gang.take("t0", 0, progress={"step": 1})
    gang.take("t1", 4)
    over = pod_of(0)
    if how == "settled":
        gang.reports.forget(*JOB)
    elif how == "ended":
        over = Pod(over.metadata, over.spec, PodStatus(phase="Failed"))
        gang.reports.update("uid0", over, (JOB, "worker"))
    else:
        place = None if how == "released" else (JOB, "worker")
        gang.reports.update("uid0", None if how == "gone" else over, place)
    with pytest.raises(Unauthenticated):
        gang.take("t0", 0)
    assert (gang.reports.progress(*JOB), gang.reports.step_reports(*JOB)) == (None, None)
    gang.reports.update("uid2", pod_of(2), (JOB, "worker"))
    gang.take("t2", 0)
    assert gang.reports.step_reports(*JOB) is not None


def test_a_token_that_was_copied_stays_that_of_the_first_pod() -> None:
    gang = Gang()
    copied = with_annotation(pod_of(2), REPORT_TOKEN, "t0")
    gang.reports.update("uid2", copied, (("other", 1), "worker"))
    gang.take("t0", 0)
    assert gang.seen() == {0: ("n0", (0,))}
    gang.reports.update("uid2", None, None)
    gang.clock.now_s += 1
    gang.take("t0", 0)
    assert gang.seen() == {0: ("n0", (0,))}


def with_annotation(pod: Pod, key: str, value: str) -> Pod:
    annotations = {**pod.metadata.annotations, key: value}
    meta = Metadata(pod.metadata.name, "default", pod.metadata.uid, annotations=annotations)
    return Pod(meta, pod.spec, pod.status)


@pytest.mark.parametrize("gpus", ["9" * 5000, "0,x,-1,1", "²", ""])
def test_an_annotation_that_users_have_changed_is_read_as_far_as_it_makes_sense(gpus: str) -> None:
    gang = Gang(pod_of(0, gpus))
    gang.take("t0", 0)
    assert gang.seen() == {0: ("n0", ())}


def test_each_pod_gets_a_token_of_its_own_and_none_without_a_url() -> None:
    first, second = report_annotations("https://g:1"), report_annotations("https://g:1")
    assert first["gantree.io/report-url"] == "https://g:1"
    assert first["gantree.io/report-token"] != second["gantree.io/report-token"]
    assert report_annotations("") == {}
