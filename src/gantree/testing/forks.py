"""Tests on all cores: one process collects them, and its forks run them, a file at a time. A plugin of pytest.

    pytest -n 4

To import gantree and all its tests and to collect them takes longer than most files of tests. pytest-xdist does that
in each of its workers; here it is done once. That leaves workers that cost next to nothing, so that there can be more
of them than cores: many tests wait for other processes.

A worker takes the next file when it is done with one. What the session's fixtures gave it keeps until no file is left;
all else ends with its file. It tells reports and warnings to the process that collected, which passes them on as if it
had run the tests itself. A worker that dies fails the test that it was at, and another goes on with the rest of that
file. Without -n, or with -n 0, tests run in the process that collects, by pytest's own loop.
"""

import gc
import os
import signal
import threading
import traceback
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from multiprocessing.connection import Connection, Pipe, wait
from operator import itemgetter
from typing import Any, NoReturn

import pytest

from gantree.testing.nursery import leave

NUMBER_BYTES = 4
"""So many tell the number of a file."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """-n, as pytest-xdist calls it; lower-case letters are kept from plugins unless they ask in this way."""
    told = "run tests in N forks of this process"
    group = parser.getgroup("forks")
    group._addoption("-n", "--forks", type=int, default=0, metavar="N", help=told)


def pytest_configure(config: pytest.Config) -> None:
    """Only a run that asks for forks has anything of this."""
    if config.option.forks and not config.option.collectonly and not config.option.usepdb:
        config.pluginmanager.register(Forks(config))


class Worker:
    """A fork, as the process that collected knows it. at is the number of the test that it began and has not ended."""

    def __init__(self, pid: int, said: "Connection[Any, Any]") -> None:
        self.pid, self.said = pid, said
        self.at: int | None = None


class Forks:
    """What the process that collects does: it makes the forks, and passes on what they say of their tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._workers: list[Worker] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """What is imported and collected stays, so to look for garbage among it is in vain."""
        gc.disable()
        try:
            return (yield)
        finally:
            gc.enable()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """In place of pytest's own loop, which is left to say so where collecting failed."""
        if session.testsfailed and not self._config.option.continue_on_collection_errors:
            return None
        self._session, self._files = session, files_of(session.items)
        self._left = set(range(len(session.items)))
        self._queue = queue_of(len(self._files))
        self._get_ready()
        try:
            for _ in range(min(self._config.option.forks, len(self._files))):
                self._fork()
            while self._workers and not (session.shouldfail or session.shouldstop):
                self._listen()
        finally:
            self._end()
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        assert not self._left, "a test was not run"
        return True

    def _get_ready(self) -> None:
        """What must hold before the first fork."""
        others = [
            each.name for each in threading.enumerate() if each is not threading.main_thread()
        ]
        assert not others, f"a fork would lack these threads: {others}"
        plugins = self._config.pluginmanager
        if reporter := plugins.getplugin("terminalreporter"):
            reporter.showfspath = (
                False  # files run beside each other: their names would come between the dots
            )
        plugins.getplugin("capturemanager").stop_global_capturing()  # forks would share its files
        self._config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one for all
        gc.collect()
        gc.freeze()  # else the first collection of each fork would write to all that it shares

    def _fork(self, first: Sequence[int] = ()) -> None:
        """One more worker; it begins with these tests."""
        said, say = Pipe(duplex=False)
        if (pid := os.fork()) == 0:
            try:
                for each in (said, *(other.said for other in self._workers)):
                    each.close()
                work(self._session, self._taken(first), say)
            finally:
                os._exit(1)  # no fork ever comes back into the code of the process that collected
        say.close()
        self._workers.append(Worker(pid, said))

    def _taken(self, first: Sequence[int]) -> Iterator[Sequence[int]]:
        """In a fork: the tests of file after file. The pipe gives the number of each file to one fork only."""
        if first:
            yield first
        while number := os.read(self._queue, NUMBER_BYTES):
            yield self._files[int.from_bytes(number, "big")]

    def _listen(self) -> None:
        """Take one word of each that has spoken."""
        heard = wait([worker.said for worker in self._workers])
        for worker in [each for each in self._workers if each.said in heard]:
            try:
                word = worker.said.recv()
            except EOFError:
                self._bury(worker)
                continue
            match word:
                case int():
                    worker.at, item = word, self._session.items[word]
                    start = self._config.hook.pytest_runtest_logstart
                    start(nodeid=item.nodeid, location=item.location)
                case str():
                    raise RuntimeError(f"in a fork:\n{word}")
                case _:
                    self._pass_on(worker, *word)

    def _pass_on(
        self, worker: Worker, reports: list[dict[str, Any]], warned: list[dict[str, Any]]
    ) -> None:
        """A test has ended with these reports."""
        assert worker.at is not None
        item = self._session.items[worker.at]
        self._left.remove(worker.at)  # KeyError if it was run before
        worker.at = None
        hook = self._config.hook
        for words in warned:
            hook.pytest_warning_recorded.call_historic(kwargs=words)
        for data in reports:
            report = hook.pytest_report_from_serializable(config=self._config, data=data)
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _bury(self, worker: Worker) -> None:
        """It ended: because no file is left, or in the middle of a test."""
        self._workers.remove(worker)
        worker.said.close()
        code = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
        if worker.at is None:
            assert code == 0, f"a fork ended with status {code} between two tests"
            return
        item, number = self._session.items[worker.at], worker.at
        told = f"the process that ran it ended with status {code}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", told, "call")
        hook = self._config.hook
        self._pass_on(
            worker, [hook.pytest_report_to_serializable(config=self._config, report=report)], []
        )
        file = next(each for each in self._files if number in each)
        self._fork([other for other in file if other > number])

    def _end(self) -> None:
        """Nobody takes another file, and who still runs one ends it as at Ctrl-C: fixtures give back what they have."""
        while os.read(self._queue, 1 << 16):
            pass
        os.close(self._queue)
        for worker in self._workers:
            worker.said.close()  # else it may wait to be heard
            os.kill(worker.pid, signal.SIGINT)
        for worker in self._workers:
            os.waitpid(worker.pid, 0)


def files_of(items: Sequence[pytest.Item]) -> list[list[int]]:
    """The numbers of the tests of each file, in their order."""
    numbered = ((item.path, number) for number, item in enumerate(items))
    return [[number for _, number in some] for _, some in groupby(numbered, itemgetter(0))]


def queue_of(length: int) -> int:
    """A pipe from which the numbers below length can be read, each once, by whoever reads first, and then its end."""
    queue, begin = os.pipe()
    with os.fdopen(begin, "wb") as file:
        file.write(b"".join(number.to_bytes(NUMBER_BYTES, "big") for number in range(length)))
    return queue


def work(
    session: pytest.Session, files: Iterator[Sequence[int]], say: "Connection[Any, Any]"
) -> NoReturn:
    """The life of a fork."""
    status = 1
    try:
        _run(session, files, say)
        status = 0
    except KeyboardInterrupt:
        signal.signal(
            signal.SIGINT, signal.SIG_IGN
        )  # of who collected; the first came from the keyboard
    except BaseException:
        _tell(say, traceback.format_exc())
    try:
        session._setupstate.teardown_exact(None)
    except BaseException:
        status = 1
        _tell(say, traceback.format_exc())
    leave(status)


def _run(
    session: pytest.Session, files: Iterator[Sequence[int]], say: "Connection[Any, Any]"
) -> None:
    """Say the number of each test, and then what came of it."""
    teller = Teller(session.config)
    for numbers in files:
        for number, after in zip(numbers, [*numbers[1:], None], strict=True):
            _tell(say, number)
            # After the last one as if the session itself came: what it has set up stays, all else ends.
            following = session if after is None else session.items[after]
            item = session.items[number]
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            _tell(say, teller.told())
            if session.shouldfail or session.shouldstop:
                return


def _tell(say: "Connection[Any, Any]", word: object) -> None:
    """Say it, unless nobody listens any more."""
    with suppress(BrokenPipeError):
        say.send(word)


class Teller:
    """Makes the pytest of a fork one that tells somebody else what comes of its tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        config.workerinput = {}  # type: ignore[attr-defined]  # what plugins look for before they write a file at the end
        plugins = config.pluginmanager
        if plugins.hasplugin("terminalreporter"):
            plugins.unregister(name="terminalreporter")
        capture = plugins.getplugin("capturemanager")
        capture.start_global_capturing()
        capture.suspend_global_capture()
        self._reports: list[dict[str, Any]] = []
        self._warned: list[dict[str, Any]] = []
        plugins.register(self)
        self.told()  # of the warnings before the fork, which are told to every new plugin

    def told(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The reports and warnings since this was asked last."""
        reports, warned = self._reports, self._warned
        self._reports, self._warned = [], []
        return reports, warned

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """How a phase of a test ended."""
        hook = self._config.hook
        self._reports.append(hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_warning_recorded(
        self,
        warning_message: warnings.WarningMessage,
        when: str,
        nodeid: str,
        location: tuple[str, int, str] | None,
    ) -> None:
        """A warning; of what it is about the text alone, for that can be anything."""
        of = warning_message
        plain = warnings.WarningMessage(str(of.message), of.category, of.filename, of.lineno)
        words = {"warning_message": plain, "when": when, "nodeid": nodeid, "location": location}
        self._warned.append(words)
