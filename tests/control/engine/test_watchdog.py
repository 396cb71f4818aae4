"""When an engine counts as hung, by a clock of the test's own, and what becomes of its daemon then."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from gantree.control.engine import watchdog
from gantree.control.engine.controller import Controller
from gantree.control.engine.leadership import Term
from gantree.control.engine.loop import Loop
from gantree.control.engine.watchdog import EXIT_STALLED, LOOK_EVERY_S, Pulse, Watchdog
from gantree.journal.sqlite import SqliteJournal
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from support.recording import RecordingCluster


class Engine:
    """A pulse, and a second of an engine's life after the other."""

    def __init__(self) -> None:
        self.now_s = self.used_s = 0.0
        self.pulse = Pulse(lambda: self.now_s, lambda: self.used_s)

    def passes(self, seconds: int, *, computing: float = 0.0) -> float:
        """Seconds with a look in each; how much its silence counts by the last."""
        for _ in range(seconds):
            self.now_s += LOOK_EVERY_S
            self.used_s += computing
            self.pulse.silence_s()
        return self.pulse.counted_s


def test_who_beats_is_not_silent_and_who_does_not_is_until_it_does() -> None:
    engine = Engine()
    for _ in range(3):
        engine.pulse.beat()
        assert engine.passes(1) == 0
    assert engine.passes(5) == 5
    engine.pulse.beat()
    assert engine.passes(1) == 0


def test_who_computes_has_ten_times_as_long_and_who_looks_up_now_and_then_does_not_compute() -> (
    None
):
    engine = Engine()
    assert engine.passes(100, computing=0.02) == pytest.approx(10)
    assert engine.passes(7, computing=0.001) == pytest.approx(17)
    assert engine.pulse.silent_s == pytest.approx(107)


def test_who_recovers_may_wait_as_long_as_compute() -> None:
    engine = Engine()
    engine.pulse.is_recovering = True
    assert engine.passes(50) == pytest.approx(5)


def test_whoever_was_stopped_as_a_whole_was_not_silent() -> None:
    engine = Engine()
    engine.now_s += 3600
    assert engine.pulse.silence_s() == 2 * LOOK_EVERY_S


def test_nothing_is_expected_once_the_loop_stops_but_the_end_of_what_is_being_done() -> None:
    engine = Engine()
    engine.pulse.is_stepping = False
    assert engine.passes(9) == 0
    with engine.pulse.at_work():
        assert engine.passes(9) == 8, "the first look sees that it began"
    assert engine.passes(9) == 0


def test_the_processor_time_is_that_of_the_thread_that_beats_and_what_is_left_of_it() -> None:
    pulse = Pulse(cpu=None)
    assert pulse._cpu_of_engine() == 0.0
    with ThreadPoolExecutor(1) as engine:
        engine.submit(pulse.beat).result()
        before = pulse._cpu_of_engine()
        engine.submit(lambda: sum(range(1_000_000))).result()
        assert pulse._cpu_of_engine() > before
        pulse.silence_s()
    used_s = pulse._used_s
    pulse._clock = (~4_194_303 << 3) | 6  # that of a thread whose number no thread ever has
    assert pulse._cpu_of_engine() == used_s > 0.0, "it is gone"


@contextmanager
def watched(pulse: Pulse, term: Term, ends: list[int], stall_s: float) -> Iterator[threading.Event]:
    """A watchdog that only tells how it would have ended the process."""
    bitten = threading.Event()

    def end(status: int) -> None:
        ends.append(status)
        bitten.set()

    with Watchdog(pulse, term, stall_s, end):
        yield bitten


def test_a_daemon_whose_engine_hangs_ends_its_term_says_what_all_threads_do_and_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    term, ends, may_go = Term(7), list[int](), threading.Event()

    def hangs_here() -> None:
        may_go.wait()

    hung = threading.Thread(target=hangs_here, name="engine_0")
    hung.start()
    try:
        with watched(Pulse(), term, ends, 0.1) as bitten:
            assert bitten.wait(30)
    finally:
        may_go.set()
        hung.join()
    assert ends == [EXIT_STALLED]
    assert not term.is_on
    (record,) = caplog.records
    assert record.levelname == "CRITICAL"
    assert "Epoch 7 is over" in record.message
    assert "Thread engine_0:" in record.message
    assert "in hangs_here" in record.message


def test_it_ends_also_where_the_log_hangs_and_the_term_is_over_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    term, ends, may_go = Term(7), list[int](), threading.Event()
    monkeypatch.setattr(watchdog, "LAST_WORDS_S", 0.05)
    monkeypatch.setattr(watchdog, "stacks", lambda: str(may_go.wait()))
    with watched(Pulse(), term, ends, 0.1) as bitten:
        assert bitten.wait(30)
        assert not term.is_on
        assert ends == [EXIT_STALLED]
        may_go.set()


def test_a_watchdog_that_is_sent_home_bites_nobody() -> None:
    term, ends, pulse = Term(7), list[int](), Pulse()
    with watched(pulse, term, ends, 1000.0):
        pulse.beat()
    assert (ends, term.is_on) == ([], True)


def test_a_controller_beats_after_each_turn_and_while_it_folds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beats: list[int] = []

    def controller() -> Controller:
        return Controller(
            SqliteJournal(tmp_path),
            Policy(),
            RecordingCluster,
            site=cluster(leaves=1),
            beat=lambda: beats.append(1),
        )

    monkeypatch.setattr("gantree.control.turn.BATCH", 1)
    first = controller()
    first.recover()
    beats.clear()
    first.submit([job(name) for name in "abcd"], None, {})
    first.step()
    assert len(beats) == 4
    first.close()
    monkeypatch.setattr("gantree.control.snapshots.BEAT_FACTS", 2)
    beats.clear()
    again = controller()
    assert len(beats) == again.journal.last_fact() // 2
    again.close()


def test_a_loop_beats_at_the_beginning_and_the_end_of_what_it_is_asked_and_nothing_is_due_when_it_stops() -> (
    None
):
    async def ask() -> None:
        loop = Loop()
        try:
            assert loop.pulse.is_stepping
            told = await loop.call(lambda: (loop.pulse._beats, loop.pulse._is_at_work))
            assert told == (1, True)
            assert (loop.pulse._beats, loop.pulse._is_at_work) == (2, False)
            loop.stop()
            assert not loop.pulse.is_stepping
        finally:
            loop.close()

    asyncio.run(ask())
