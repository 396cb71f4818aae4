"""Asks a reader everything that `test_readers` wants to know, and prints what came of it; given a directory."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from gantree.api.access.access import EVERYTHING, Caller
from gantree.api.backend import Backend
from gantree.api.server.standby.reads import StandbyBackend
from gantree.api.views import queries
from gantree.control.engine.controller import Controller
from gantree.control.engine.loop import Loop
from gantree.control.readers import server, supervisor
from gantree.control.readers.frames import FollowJournal, QueryMode
from gantree.control.readers.host import ReaderHost, fork_host
from gantree.control.readers.supervisor import ReaderSupervisor
from gantree.control.requests.read_view import ReadPoint, ReadView
from gantree.core.scheduler import Scheduler
from gantree.journal.sqlite import SqliteJournal, SqliteReader
from gantree.model.errors import BadFields, GantreeError, NotLeading, Problem
from gantree.model.events import ClusterObserved
from gantree.model.facts import PolicyAdopted
from gantree.policy.rules import Policy
from support.random_lives import site
from support.recording import RecordingCluster

ANYBODY = Caller("op", EVERYTHING, "socket")
NOTHING_YET = ReadPoint(0, 0.0)
Said = dict[str, Any]


def seq_of(view: ReadView) -> int:
    return view.at.seq


def process_of(view: ReadView) -> int:
    return os.getpid()


def sleep(view: ReadView, seconds: float, at: str = "") -> list[float]:
    began = time.monotonic()
    time.sleep(seconds)
    return [began, time.monotonic()]


def wrong(view: ReadView, how: str) -> object:
    if how == "job":
        return view.resolve("x")
    if how == "fields":
        raise BadFields([Problem("f", None, "a", "1", "2")])
    return 1 / 0


def die(view: ReadView) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def spoil(view: ReadView) -> str:
    view.ledger.policies.append(PolicyAdopted(at=0.0, number=9, text="", source="", by=""))
    return f"{len(view.ledger.policies)} policy"


def policies(view: ReadView) -> str:
    return f"{len(view.ledger.policies)} policies"


def started(host: ReaderHost, state: Path) -> ReaderSupervisor:
    """Readers of the journal of a directory."""
    of_it = ReaderSupervisor(host, FollowJournal(partial(SqliteReader, state), Policy()))
    of_it.start()
    return of_it


async def told(
    asked: ReaderSupervisor,
    function: Any,
    *arguments: Any,
    mode: QueryMode = QueryMode.INLINE,
    asker: str = "",
) -> Any:
    """The answer, or the error in words."""
    answer = asked.query(NOTHING_YET, function, *arguments, mode=mode, asker=asker)
    found = await in_words(answer)
    return found if isinstance(found, str) else found.value


async def in_words(answer: Awaitable[Any]) -> Any:
    """An answer, or the error in words."""
    try:
        return await answer
    except (GantreeError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"


def turn(journal: SqliteJournal, epoch: int, scheduler: Scheduler) -> int:
    """One turn in the journal; the seq of its last fact."""
    number = journal.cursor() + 1
    event = ClusterObserved(id=f"e{number}", observed_at=float(number), cluster=site(number % 2))
    decision = scheduler.handle([event])
    journal.append_inbox([event], epoch)
    journal.commit_turn(number, decision.facts, decision.orders, epoch)
    return journal.last_fact()


async def usual(said: Said, asked: ReaderSupervisor, journal: SqliteJournal) -> None:
    epoch, scheduler = journal.lead("test", 60.0), Scheduler(Policy())
    assert epoch is not None
    last = turn(journal, epoch, scheduler)
    short = await asked.query(ReadPoint(last, 0.0), seq_of, mode=QueryMode.INLINE)
    last = turn(journal, epoch, scheduler)
    long = await asked.query(ReadPoint(last, 0.0), seq_of, mode=QueryMode.FORKED)
    said["after a fact"] = [short.value == last - 1, long.value == last]
    said["not found"] = await told(asked, wrong, "job")
    said["fields"] = await told(asked, wrong, "fields", mode=QueryMode.FORKED)
    said["bug"] = await told(asked, wrong, "so")
    said["spoilt apart"] = [
        await told(asked, spoil, mode=QueryMode.FORKED),
        await told(asked, policies),
    ]


def work(view: ReadView, seconds: float) -> int:
    """Takes so long of a processor; the process."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass
    return os.getpid()


def break_off(view: ReadView) -> None:
    spoil(view)
    raise ZeroDivisionError


async def by_pace(said: Said, asked: ReaderSupervisor) -> None:
    here = await told(asked, process_of)

    async def ask(seconds: float) -> bool:
        return bool(await told(asked, work, seconds, mode=QueryMode.ADAPTIVE) == here)

    quick = [await ask(0.0), await ask(0.0)]
    after_a_long_one = [await ask(0.04), await ask(0.0)]
    for _ in range(server.DURATIONS_KEPT):
        await ask(0.0)
    said["here by its pace"] = [quick, after_a_long_one, [await ask(0.0)]]
    said["broken off"] = await told(asked, break_off, mode=QueryMode.ADAPTIVE)
    said["after one that broke off"] = [await told(asked, policies), await told(asked, process_of)]
    said["after one that broke off"][1] = said["after one that broke off"][1] == here
    said["deadly by its pace"] = await told(asked, die, mode=QueryMode.ADAPTIVE)


async def routed(said: Said, host: ReaderHost, state: Path) -> None:
    """Where the routes' ways of asking have an answer worked out: of who leads, and of who stands by."""
    loop = Loop()
    journal = SqliteJournal(state)
    controller = await loop.call(
        lambda: Controller(journal, Policy(), RecordingCluster, site=site(0), wake=loop.wake)
    )
    await loop.call(controller.recover)
    asked = started(host, state)
    here = await told(asked, process_of)
    stop = asyncio.Event()
    standing = StandbyBackend(asked, state, stop, lambda: NotLeading("a test"))
    found = []
    for way in (Backend(loop, controller, 0.0, asked), standing):
        quick = await in_words(way.read_adaptive(work, 0.0, asker="a"))
        apart = await in_words(way.read_forked(work, 0.0, asker="a"))
        found.append([each == here for each in (await way.read(process_of), quick, apart)])
    await in_words(standing.read_adaptive(work, 0.04, asker="a"))
    found.append([await in_words(standing.read_adaptive(work, 0.0, asker="a")) == here])
    said["where the routes ask"] = found
    asked.close()
    await loop.call(controller.close)
    loop.close()


async def slow(said: Said, asked: ReaderSupervisor) -> None:
    long = asyncio.create_task(told(asked, sleep, 30.0, mode=QueryMode.FORKED))
    await asyncio.sleep(0.1)
    answered = [isinstance(await told(asked, seq_of), int) for _ in range(20)]
    said["short ones meanwhile"] = sum(answered) if not long.done() else "none: it was over"
    said["long"] = await long
    times = await asyncio.gather(
        *(told(asked, sleep, 0.5, mode=QueryMode.FORKED) for _ in range(5))
    )
    said["most at once"] = max(
        sum(began <= moment < ended for began, ended in times) for moment, _ in times
    )


async def greedy(said: Said, asked: ReaderSupervisor) -> None:
    """One asks for much, and another one then for little."""
    whose = ["greedy"] * 5 + ["modest"]
    spans = await asyncio.gather(
        *(told(asked, sleep, 0.5, mode=QueryMode.FORKED, asker=each) for each in whose)
    )
    begins = [began for began, _ in spans]
    said["begun before the modest one"] = sum(each < begins[-1] for each in begins)
    supervisor.MOST_OF_ONE, was = 2, supervisor.MOST_OF_ONE
    said["too many of one"] = [
        str(each)[:40]
        for each in await asyncio.gather(
            *(
                told(asked, sleep, 0.1, mode=QueryMode.FORKED, asker=each)
                for each in ["one"] * 3 + ["b"]
            )
        )
        if isinstance(each, str)
    ]
    said["afterwards"] = isinstance(
        await told(asked, sleep, 0.0, mode=QueryMode.FORKED, asker="one"), list
    )
    supervisor.MOST_OF_ONE = was


async def deadly(said: Said, asked: ReaderSupervisor) -> None:
    before = asked.pid
    said["deadly apart"] = await told(asked, die, mode=QueryMode.FORKED)
    said["reader after it"] = "the same" if await told(asked, process_of) == before else "another"
    said["deadly"] = await told(asked, die)
    after = await told(asked, process_of)
    said["reader after that"] = "another" if after != before else "the same"
    waits = asyncio.create_task(told(asked, sleep, 0.2))
    await asyncio.sleep(0.05)
    os.kill(after, signal.SIGKILL)
    said["asked of a reader that was killed"] = "answered" if len(await waits) == 2 else "not"
    await told(asked, seq_of)
    said["asked of a reader that hangs"] = await told_of_hanging(asked)
    said["asked of a socket that is closed"] = await told_of_closed(asked)


async def told_of_hanging(asked: ReaderSupervisor) -> list[Any]:
    """What a question brings while the reader is kept busy, and whether the same reader answers the next."""
    was, supervisor.INLINE_WITHIN_S = supervisor.INLINE_WITHIN_S, 0.1
    reader, answer = asked.pid, await told(asked, sleep, 0.5)
    supervisor.INLINE_WITHIN_S = was
    return [answer, await told(asked, process_of) == reader]


async def told_of_closed(asked: ReaderSupervisor) -> list[Any]:
    """What two questions bring that are asked between the end of a socket and the word of it."""
    running = asked._running
    assert running is not None
    running.writer.close()
    return [
        isinstance(each, int)
        for each in await asyncio.gather(told(asked, seq_of), told(asked, seq_of))
    ]


LOADS_WITHIN_S = 300.0
"""A host that is executed loads all code: seconds where other work takes the cores."""


async def hopeless(said: Said, hosts: list[ReaderHost], state: Path) -> None:
    supervisor.READY_WITHIN_S, was = 0.5, supervisor.READY_WITHIN_S
    nothing = started(hosts[1], state / "none")
    said["no journal"] = await told(nothing, seq_of)
    nothing.close()
    supervisor.READY_WITHIN_S = was
    again = started(hosts[1], state)
    said["the next one of a host"] = await told(again, seq_of)
    hosts[2].close()
    spawn = os.posix_spawn
    os.posix_spawn = refused
    supervisor.READY_WITHIN_S = 0.5
    left = started(hosts[2], state)
    said["no host"] = await told(left, queries.nodes, ANYBODY)
    os.posix_spawn, supervisor.READY_WITHIN_S = spawn, LOADS_WITHIN_S
    told_of_nodes = await told(left, queries.nodes, ANYBODY)
    supervisor.READY_WITHIN_S = was
    said["of another host"] = (
        len(told_of_nodes) if isinstance(told_of_nodes, list) else told_of_nodes
    )


def refused(*_: Any, **__: Any) -> int:
    raise BlockingIOError("Resource temporarily unavailable")


async def main(state: Path, hosts: list[ReaderHost]) -> None:
    said: Said = {}
    journal = SqliteJournal(state)
    asked = started(hosts[0], state)
    await usual(said, asked, journal)
    await by_pace(said, asked)
    await slow(said, asked)
    await greedy(said, asked)
    await routed(said, hosts[3], state / "led")
    await deadly(said, asked)
    await hopeless(said, hosts, state)
    busy = [
        asyncio.create_task(told(asked, sleep, 1.5, mode=mode))
        for mode in (QueryMode.FORKED, QueryMode.INLINE)
    ]
    await asyncio.sleep(0.1)
    said["processes"] = descendants(os.getpid())
    said["busy"] = not any(each.done() for each in busy)
    print(json.dumps(said), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """The processes that were forked from one, and from these."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue
        parents[int(name.partition(" ")[0])] = int(rest.split()[1])
    found = [child for child, parent in parents.items() if parent == pid]
    return found + [each for child in found for each in descendants(child)]


if __name__ == "__main__":
    server.LIMIT_S = 2.0
    server.LONG_S = 0.02  # little work is long here, so that a busy machine does not end it
    forked = [fork_host(server.serve, list) for _ in range(4)]
    uvloop.run(
        main(Path(sys.argv[1]), forked)
    )  # the daemon's loop: it refuses to write to what is closed
