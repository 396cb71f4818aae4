"""Several processes for one run of tests: forked from the one that has collected, they take file after file.

    python -m pytest --workers 3

A plugin of pytest (pyproject.toml loads it). To import a whole suite takes longer than most of its files do, and from
a fresh clone, without bytecode, several times as long; so one process imports it, and its forks share that. Each takes
the next file when it begins the last test of the one before, so that fixtures of a module are made once, and whoever
is free takes the next: put long files first. What they report is reported by the process that forked them, test by
test. A test that ends the process it runs in fails, with the rest of its file; the others take the files that are left.
"""

import gc
import os
import random
import signal
import sys
import traceback
import warnings
from collections.abc import Generator, Iterator
from itertools import groupby
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import pytest

Told = tuple[str, dict[str, Any]]
"""A hook of pytest and its arguments; a report is in a form that travels."""

_FILE_NUMBER_BYTES = 4
_REPORT = "pytest_runtest_logreport"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The one option."""
    parser.getgroup("workers").addoption(
        "--workers", type=int, default=0, metavar="N", help="run tests in N processes, by file"
    )


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run what was collected in workers; None leaves it to pytest."""
    config = session.config
    if not config.option.workers or config.option.collectonly or session.testsfailed:
        return None
    config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one for all, made before the forks
    files = [list(items) for _, items in groupby(session.items, key=lambda item: item.path)]
    queue = _queue_of(len(files))
    gc.collect()
    gc.freeze()  # what was imported stays: collections need not look at it, nor write to pages that are shared
    workers = [_Worker(session, queue, files) for _ in range(config.option.workers)]
    try:
        _report(session, workers)
    finally:
        while os.read(queue, 1 << 16):
            continue
        for worker in workers:
            worker.end()
    return True


def _queue_of(count: int) -> int:
    """A pipe with the numbers of so many files; who reads a number has it alone."""
    queue, entrance = os.pipe()
    with os.fdopen(entrance, "wb") as door:
        door.write(b"".join(n.to_bytes(_FILE_NUMBER_BYTES) for n in range(count)))
    return queue


class _Worker:
    """A fork, as who forked it sees it."""

    def __init__(self, session: pytest.Session, queue: int, files: list[list[pytest.Item]]) -> None:
        self.news, theirs = Pipe(duplex=False)
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            _work(session, _taken(queue, files), theirs)
        theirs.close()

    def end(self) -> None:
        """Wait for its end; one that has tests left finishes none of them."""
        with self.news:
            os.kill(self._pid, signal.SIGINT)
            os.waitpid(self._pid, 0)


def _report(session: pytest.Session, workers: list[_Worker]) -> None:
    """Report what the workers tell until all have ended, and then what none of them told."""
    config = session.config
    if (terminal := config.pluginmanager.get_plugin("terminalreporter")) is not None:
        terminal.showfspath = False
    told: set[str] = set()
    open_news: list[Connection[Any, Any]] = [worker.news for worker in workers]
    while open_news:
        for news in wait(open_news):
            assert isinstance(news, Connection)
            try:
                test: list[Told] = news.recv()
            except EOFError:
                open_news.remove(news)
                continue
            for hook, arguments in test:
                _hand_on(config, hook, arguments)
                told.add(arguments.get("nodeid", ""))
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
    for item in session.items:
        if item.nodeid not in told:
            config.hook.pytest_runtest_logreport(report=_lost(item))


def _hand_on(config: pytest.Config, hook: str, arguments: dict[str, Any]) -> None:
    if hook == _REPORT:
        data = arguments["data"]
        arguments = {
            "report": config.hook.pytest_report_from_serializable(config=config, data=data)
        }
    call = getattr(config.hook, hook)
    if call.is_historic():  # pytest tells it to plugins that come later too
        call.call_historic(kwargs=arguments)
    else:
        call(**arguments)


def _lost(item: pytest.Item) -> pytest.TestReport:
    return pytest.TestReport(
        item.nodeid, item.location, {}, "failed", "the process that ran this file ended", "call"
    )


def _taken(queue: int, files: list[list[pytest.Item]]) -> Iterator[pytest.Item]:
    """The tests of each file that this process takes, until none is left."""
    while number := os.read(queue, _FILE_NUMBER_BYTES):
        yield from files[int.from_bytes(number)]


def _work(
    session: pytest.Session, taken: Iterator[pytest.Item], news: "Connection[Any, Any]"
) -> None:
    """The life of a fork. It ends without what its parent has registered to be done at the end."""
    capture: Any = session.config.pluginmanager.get_plugin("capturemanager")
    try:
        _be_a_worker(session.config, news)
        _run(session, taken)
        session._setupstate.teardown_exact(None)  # all fixtures, also where it stops early
    except KeyboardInterrupt:
        session._setupstate.teardown_exact(None)
    except BaseException:  # whatever it was, it must not go on as a second parent
        capture.stop_global_capturing()
        traceback.print_exc()
    finally:
        os._exit(0)


def _run(session: pytest.Session, taken: Iterator[pytest.Item]) -> None:
    """As pytest does it: each test is told the next, whose fixtures stay."""
    item = next(taken, None)
    while item is not None and not session.shouldfail and not session.shouldstop:
        following = next(taken, None)
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        item = following


def _be_a_worker(config: pytest.Config, news: "Connection[Any, Any]") -> None:
    """Print nothing, capture output for itself, and draw other random numbers than its siblings."""
    plugins = config.pluginmanager
    capture: Any = plugins.get_plugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    plugins.unregister(name="terminalreporter")
    plugins.register(_Teller(config, news))
    random.seed()


class _Teller:
    """A plugin that tells who forked this process what is reported here, after each test."""

    def __init__(self, config: pytest.Config, news: "Connection[Any, Any]") -> None:
        self._config = config
        self._news = news
        self._test: list[Told] = []

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        """A test begins."""
        self._tell("pytest_runtest_logstart", nodeid=nodeid, location=location)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One of its phases has ended."""
        hook = self._config.hook
        data = hook.pytest_report_to_serializable(config=self._config, report=report)
        self._tell(_REPORT, data=data)

    def pytest_warning_recorded(
        self,
        warning_message: warnings.WarningMessage,
        when: str,
        nodeid: str,
        location: tuple[str, int, str] | None,
    ) -> None:
        """It warned of something."""
        warning_message.source = None  # whatever object that is, it stays here
        self._tell(
            "pytest_warning_recorded",
            warning_message=warning_message, when=when, nodeid=nodeid, location=location,
        )  # fmt: skip

    def pytest_runtest_logfinish(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        """It has ended."""
        self._tell("pytest_runtest_logfinish", nodeid=nodeid, location=location)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """Around all that there is to a test."""
        self._test = []  # a plugin that comes late is told of all earlier warnings, and the parent knows those
        try:
            return (yield)
        finally:
            self._news.send(self._test)

    def _tell(self, hook: str, **arguments: Any) -> None:
        self._test.append((hook, arguments))
