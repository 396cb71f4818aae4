"""Reasons of gangs that are not handed in yet: written at once, or only if they last."""

from typing import Any, cast

from gantree.core.view import LedgerView
from gantree.executors.kubernetes.workloads.keys import Key
from gantree.executors.kubernetes.writes.pod_status import (
    EVERY_S,
    LATER_S,
    PodStatusUpdates,
    WaitReason,
)

GANG: Key = ("default", "g", "gang")
NO_LEDGER = cast("LedgerView", None)
MISSING, BARRED = (
    WaitReason("WaitingForPodsReady", "2 of 4"),
    WaitReason("Misconfigured", "no tier"),
)


def updates(written: list[str]) -> PodStatusUpdates:
    def write(_: Key, reason: WaitReason, __: bool) -> None:
        written.append(reason.sentence)

    found = PodStatusUpdates(write, lambda _: "")
    found.add(GANG, 0.0, 2)
    return found


def step(status: PodStatusUpdates, now: float) -> None:
    def none(_: Any) -> None:
        return None

    assert not list(status.step(NO_LEDGER, none, now))


def test_a_reason_that_passes_is_not_written() -> None:
    written: list[str] = []
    status = updates(written)
    status.report_later(GANG, MISSING, 0.0)
    step(status, LATER_S / 2)
    status.remove(GANG)
    step(status, 2 * LATER_S)
    assert not written


def test_a_reason_that_lasts_is_written_as_it_is_by_then() -> None:
    written: list[str] = []
    status = updates(written)
    status.report_later(GANG, MISSING, 0.0)
    step(status, LATER_S / 2)
    status.report_later(GANG, WaitReason(MISSING.reason, "3 of 4"), LATER_S / 2)
    step(status, LATER_S + 0.1)
    assert written == ["3 of 4"]


def test_a_reason_that_is_written_at_once_takes_the_place_of_an_older_one() -> None:
    written: list[str] = []
    status = updates(written)
    status.report_later(GANG, MISSING, 0.0)
    status.report(GANG, BARRED)
    for number in range(1, 5):
        step(status, LATER_S + number * EVERY_S)
    assert written == [BARRED.sentence]
