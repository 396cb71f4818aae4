"""The checks of gangs before their start: the pods of a gang post what they find, and all of it is judged here.

Nothing is kept but in memory. A pod posts the same again until it is told to start, so a restart in the middle collects
it again; events have ids that are the same each time. Pods whose gang runs already, and those that replace others, are
told to start: the others no longer check.

`take` and `status` are for any thread, everything else is for the controller's thread.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gantree.core.view import JobView, LedgerView
from gantree.executors.check_plan import cpu_ranks_of, domains_of
from gantree.executors.check_status import CHECKING, CheckStatus
from gantree.executors.kubernetes.controllers.rank_reports import PodPlace
from gantree.executors.kubernetes.pods.check_post import CheckPost, check_post_in
from gantree.model.cluster import Cluster
from gantree.model.events import Event
from gantree.model.jobs import Check
from gantree.model.orders import MemberLaunch, StartGang
from gantree.model.phases import Phase
from gantree.text.words import plural

ARRIVE_S = 900.0
"""Seconds in which all pods of a gang come to its check after the first, however large the image is."""
LATE_S = 20.0
"""Seconds after the end of a check in which results may come."""
AGAIN_S = 1.0
MOST_A_SECOND = 100
"""Posts of all pods of a gang together."""
START, STOP, WAIT, MEASURE = "start", "stop", "wait", "measure"
Json = dict[str, Any]
Name = tuple[str, int]
"""A job and the number of an attempt."""
GpusOfMember = Mapping[int, tuple[int, ...]]


class CheckResult(Protocol):
    """What a pod has found."""

    @property
    def is_decisive(self) -> bool:
        """Whether the results of the others cannot change what follows."""
        ...


@dataclass(frozen=True, slots=True)
class LinkCheckCalls:
    """What checks need from outside. image is that of the init container.

    check_of gives the check of a queue. price prices the place of an order. read makes a result of what a pod posted
    (raises BadInput). judge makes a report of a plan, the results by member, what kept it from being done, and when it
    began. mark makes the events for who is at fault.
    """

    image: str
    check_of: Callable[[str], Check | None]
    price: Callable[[StartGang], Mapping[str, Any]]
    read: Callable[[Mapping[str, Any]], CheckResult]
    judge: Callable[[Mapping[str, Any], Mapping[int, Any], str, float], Json]
    mark: Callable[[str, int, Sequence[Mapping[str, Any]]], Sequence[Event]]


def no_link_checks() -> LinkCheckCalls:
    """Return those of a daemon that checks no links."""

    def judge(*_: object) -> Json:
        raise AssertionError("nothing is checked")

    return LinkCheckCalls("", lambda _: None, lambda _: {}, judge, judge, lambda *_: ())  # type: ignore[arg-type]  # never called


@dataclass(frozen=True, slots=True)
class CheckFailure:
    """Why an attempt does not start. is_named: a node, GPU or link is at fault; final: it would fail again."""

    reason: str
    is_named: bool
    final: bool


@dataclass(slots=True)
class _GangCheck:
    """One check. posts are the newest of each member; began_at is when all were there, in seconds since 1970.

    deadline is of the present stage, by the steady clock. answer is START or STOP once it is over.
    """

    deadline: float
    posts: dict[int, CheckPost] = field(default_factory=dict)
    results: dict[int, CheckResult] = field(default_factory=dict)
    known_gpus: dict[int, tuple[int, ...]] = field(default_factory=dict)
    size: int = 0
    seconds: float = 0.0
    plan: Json | None = None
    began_at: float | None = None
    report: Json | None = None
    answer: str = ""


class LinkChecks:
    """The checks of all attempts that start."""

    def __init__(
        self,
        calls: LinkCheckCalls,
        place_of: Callable[[str], PodPlace],
        emit: Callable[[Event], None],
        fail: Callable[[Name, CheckFailure], None],
        steady: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """place_of gives the place of the pod of a token (raises Unauthenticated); fail ends an attempt."""
        self._calls, self._place_of, self._emit, self._fail = calls, place_of, emit, fail
        self._steady, self._wall = steady, wall
        self._lock = threading.Lock()
        self._checks: dict[Name, _GangCheck] = {}

    # ----- pods

    def take(self, token: str, body: bytes) -> Json:
        """Take what a pod posts; return what it is to do. Raises Unauthenticated, BadInput."""
        place = self._place_of(token)
        post = check_post_in(body)
        result = None if post.result is None else self._calls.read(post.result)
        with self._lock:
            check = self._checks.setdefault(place.of, _GangCheck(self._steady() + ARRIVE_S))
            check.posts[place.member] = post
            check.known_gpus[place.member] = place.gpus
            if result is not None:
                check.results.setdefault(place.member, result)
            return _answer(check, place.member)

    def forget(self, job: str, attempt: int) -> None:
        """The end of an attempt is on record."""
        with self._lock:
            self._checks.pop((job, attempt), None)

    def status(self, job: str, attempt: int) -> CheckStatus | None:
        """How the check of an attempt stands; None for one without, and for one that an earlier leader has judged."""
        with self._lock:
            check = self._checks.get((job, attempt))
            if check is None or not check.seconds:
                return None
            first = check.posts.get(0)
            done, total = (None if first is None else first.done) or (0, 0)
            began_at = self._wall() if check.began_at is None else check.began_at
            state = CHECKING if check.report is None else check.report["state"]
            return CheckStatus(state, began_at, check.seconds, done, total, check.report)

    # ----- the controller's thread

    def step(self, decided: LedgerView) -> None:
        """Begin checks whose pods are all there, and judge those whose results are."""
        with self._lock:
            started = [each for each in self._checks.items() if not each[1].answer]
        for name, check in started:
            job = decided.job(name[0])
            if job is None or job.attempt != name[1]:
                continue
            with self._lock:
                self._advance(check, job, decided)
                report = self._report(check)
            if report is not None:
                self._follow(name, check, report)

    def _advance(self, check: _GangCheck, job: JobView, decided: LedgerView) -> None:
        """Plan a check once all pods are there, or need not be waited for."""
        order, site = decided.start_order(job.job), decided.site.description
        if job.phase is Phase.RUNNING or order.check is None or site is None:
            check.answer = START
            return
        check.size, check.seconds = len(order.members), order.check.collective_s
        if check.plan is None and (_is_all_there(check) or self._steady() >= check.deadline):
            seen = {number: post.gpus for number, post in check.posts.items()}
            check.plan = plan_of(order, site, seen, check.known_gpus, self._calls.price)
            check.began_at = self._wall()
            check.deadline = self._steady() + check.seconds + LATE_S

    def _report(self, check: _GangCheck) -> Json | None:
        """Judge a check: where all results are there or need not be waited for, and at the end of the time."""
        if check.plan is None or check.began_at is None or check.answer:
            return None
        is_decided = any(each.is_decisive for each in check.results.values())
        is_whole = len(check.results) >= check.size
        nobody_comes = len(check.posts) < check.size
        if not (is_decided or is_whole or nobody_comes or self._steady() >= check.deadline):
            return None
        why = "" if is_decided or is_whole else _why_not_done(check)
        return self._calls.judge(check.plan, check.results, why, check.began_at)

    def _follow(self, name: Name, check: _GangCheck, report: Json) -> None:
        """Do what follows from a report. Marks come first: the next place avoids who is at fault."""
        for event in self._calls.mark(*name, report["faults"]) if report["faults"] else ():
            self._emit(event)
        starts = report["outcome"] == START
        with self._lock:
            check.report, check.answer = report, START if starts else STOP
        if not starts:
            is_named, final = report["outcome"] == "replace", report["state"] == "skipped"
            self._fail(name, CheckFailure(report["sentence"], is_named, final))


def plan_of(
    order: StartGang,
    site: Cluster,
    gpus_seen: Mapping[int, int | None],
    known_gpus: GpusOfMember,
    price: Callable[[StartGang], Mapping[str, Any]],
) -> Json:
    """What the programs of a check are told, but for the number of each.

    gpus_seen are how many GPUs PyTorch sees in each pod; where it sees any, collectives go over NCCL. known_gpus are
    the numbers of GPUs, () where a device plugin chose them: then prices between GPUs of a pod are left out.
    """
    assert order.check is not None, "a job with a check"
    members = sorted(order.members, key=lambda each: each.node_rank)
    cuda = all(each.gpus for each in members) and any(gpus_seen.values())
    prices, known_gpus = (dict(price(order)), known_gpus) if cuda else ({}, {})
    if not all(known_gpus.get(each.node_rank) for each in members):
        prices = {key: value for key, value in prices.items() if key in ("gang", "pairs")}
    return {
        "seconds": order.check.collective_s,
        "required": order.check.required,
        "may_replace": order.check_replaces,
        "members": [
            _member(each, site, known_gpus, len(each.gpus) if cuda else cpu_ranks_of(order.check))
            for each in members
        ],
        "cuda": cuda,
        "expected": prices,
        "soak_s": order.check.soak_s,
    }


def _member(member: MemberLaunch, site: Cluster, known_gpus: GpusOfMember, ranks: int) -> Json:
    node = next((each for each in site.nodes if each.name == member.node), None)
    return {
        "node": member.node,
        "gpus": list(known_gpus.get(member.node_rank, ())),
        "nics": list(member.nics),
        "domains": [] if node is None else domains_of(site.tiers, node),
        "processes": ranks,
    }


def _answer(check: _GangCheck, member: int) -> Json:
    """What a member is told. The first has all figures for its log, the others what follows."""
    again_s = max(AGAIN_S, check.size / MOST_A_SECOND)
    if check.answer:
        lines = [] if check.report is None else check.report["lines"]
        return _told(check.answer, again_s, lines if member == 0 else lines[-1:])
    if check.plan is not None and member not in check.results:
        return {**_told(MEASURE, again_s), "plan": {**check.plan, "index": member}}
    return _told(WAIT, again_s)


def _told(state: str, again_s: float, lines: Sequence[str] = ()) -> Json:
    return {"state": state, "again_s": again_s, "lines": list(lines)}


def _is_all_there(check: _GangCheck) -> bool:
    return len(check.posts) >= check.size or any(
        each.is_decisive for each in check.results.values()
    )


def _why_not_done(check: _GangCheck) -> str:
    """What kept a check from being done."""
    assert check.plan is not None, "planned"
    nodes = [each["node"] for each in check.plan["members"]]
    absent = [node for number, node in enumerate(nodes) if number not in check.posts]
    silent = [node for number, node in enumerate(nodes) if number not in check.results]
    those = absent or silent
    rest = f" and {plural(len(those) - 1, 'other')}" if len(those) > 1 else ""
    if absent:
        return f"the pod on {those[0]}{rest} did not come to it within {ARRIVE_S:g} s"
    return f"the pod on {those[0]}{rest} did not answer"
