"""Settings that hold for every test, and a PostgreSQL server that a test run shares."""

import gc
import logging
import os
import signal
import tempfile
import threading
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from gantree.api.observability.log_format import CLIENT_LIBRARIES
from support.chart_scripts import share_chart_scripts
from support.command_line import CommandLine
from support.examples import IS_SOAK, examples
from support.journal_tables import share_table_statements
from support.left_threads import left_threads
from support.nursery import PLACE
from support.postgres import NoPostgres, Server, SharedServer

LONGEST_FIRST = (
    "failover/test_failover.py",
    "failover/test_stall.py",
    "core/test_prefilter.py",
    "sim/sweep/test_sweep.py",
    "web/test_pictures_browser.py",
    "api/test_openapi.py",
    "test_readme.py",
    "executors/kubernetes/test_leaving.py",
    "control/history/test_usage_history.py",
    "routing/test_changes.py",
    "executors/kubernetes/test_two_active.py",
    "cli/kubernetes/test_schedule.py",
    "faults/test_lives.py",
    "api/server/test_lost_ground.py",
    "sim/test_sim_results.py",
    "core/test_thrash.py",
    "api/server/test_services_daemon.py",
    "formats/traces/test_trace_files.py",
    "web/test_pages_browser.py",
    "federation/test_two_regions.py",
    "core/test_shared_gpus.py",
    "sim/replay/test_live_agreement.py",
    "cli/test_streams.py",
    "sim/experiments/test_reproduce.py",
    "web/test_job_output.py",
    "control/readers/test_readers.py",
    "cli/jobs/test_job_commands.py",
    "cli/top/test_top.py",
    "failover/",
    "journal/test_postgres.py",
    "journal/test_kills.py",
    "executors/local/test_log_cap.py",
    "api/",
    "executors/",
    "journal/",
    "core/",
    "control/",
    "sim/",
    "placement/",
)
"""Where the longest files are, by turns those that wait and those that compute.

A worker takes file after file: none may begin a long one when the others are done, nor may all wait at once.
"""

IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ

MEMORY = Path("/dev/shm")
FILES_BYTES = 4 << 30
"""More than the files of a run; those of a test that passed go with it."""

NEW_OBJECTS_TO_A_COLLECTION = 100_000
"""So many, and not Python's 700: a test makes more than that in a moment, and Hypothesis times each collection."""

TESTS = str(Path(__file__).parent)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (TESTS, os.environ.get("PYTHONPATH"))))
"""Processes that tests start find `support`, too."""

signal.signal(signal.SIGINT, signal.default_int_handler)
"""A shell starts a command in the background deaf to interrupts, and its children too: some tests send them one."""

settings.register_profile(
    "gantree",
    deadline=None,
    print_blob=True,
    derandomize=not IS_SOAK,
    max_examples=examples(50),
)
settings.load_profile("gantree")
if IS_SOAK:
    from gantree.testing import stage

    stage.RECOVERED_EVERY = 1
else:  # constants in modules that happen to be imported are no examples: they differ from run to run
    providers._get_local_constants = lambda: providers._local_constants


def pytest_configure(config: pytest.Config) -> None:
    """A place for what all workers of this run share."""
    if not IS_WORKER:
        _keep_files_in_memory()
        shared = tempfile.TemporaryDirectory(prefix="gantree-tests-", ignore_cleanup_errors=True)
        config.add_cleanup(shared.cleanup)
        os.environ[PLACE] = f"{shared.name}/nursery"
    share_chart_scripts(Path(os.environ[PLACE]).with_name("chart-scripts"))
    share_table_statements()


def _keep_files_in_memory() -> None:
    """Temporary files are in memory where there is room: journals wait for a disk, and databases keep it busy."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK | os.X_OK):
        return
    found = os.statvfs(MEMORY)
    if not found.f_flag & os.ST_NOEXEC and found.f_bavail * found.f_frsize >= FILES_BYTES:
        os.environ["TMPDIR"], tempfile.tempdir = str(MEMORY), None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays, half a million objects: none is ever looked at for garbage."""
    gc.disable()
    gathered = yield
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS_TO_A_COLLECTION, *gc.get_threshold()[1:])
    gc.enable()
    return gathered


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, and leave all else in its order."""
    items.sort(key=lambda item: _turn(item.nodeid))


def _turn(name: str) -> int:
    """The place of a test's file among those of LONGEST_FIRST."""
    for turn, start in enumerate(LONGEST_FIRST):
        if name.startswith(f"tests/{start}"):
            return turn
    return len(LONGEST_FIRST)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """In a worker: one message about a test that passed, not five. Messages cost a run 4 s of CPU."""
    options = item.config.option
    if not IS_WORKER or options.durations is not None or options.xmlpath is not None:
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


@pytest.fixture(scope="module", autouse=True)
def _no_threads_are_left() -> Iterator[None]:
    """The first fixture of a module, so the last that ends."""
    before = frozenset(threading.enumerate())
    yield
    left = left_threads(before)
    assert not left, (
        f"threads outlive their module: {', '.join(left)} (see support/left_threads.py)"
    )


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server. Without one tests are skipped, and with CI=true they fail."""
    base = tmp_path_factory.getbasetemp()
    try:
        shared = SharedServer(base.parent if IS_WORKER else base)
    except NoPostgres as error:
        if os.environ.get("CI") == "true":
            pytest.fail(str(error))
        pytest.skip(str(error))
    yield shared.server
    shared.leave()


@pytest.fixture
def database_url(postgres: Server) -> Iterator[str]:
    """An empty database."""
    with postgres.lent_database() as url:
        yield url


@pytest.fixture
def kept_logging() -> Iterator[None]:
    """For a test that sets up the daemon's log: the root's and the HTTP client's loggers as they were, afterwards."""
    root = logging.getLogger()
    loggers = [root, *map(logging.getLogger, CLIENT_LIBRARIES)]
    handlers, levels = root.handlers[:], [each.level for each in loggers]
    yield
    root.handlers[:] = handlers
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture
def gantree(capfdbinary: pytest.CaptureFixture[bytes]) -> CommandLine:
    """The command line, in this process."""
    return CommandLine(capfdbinary)
