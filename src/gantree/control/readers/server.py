"""The reader: a process with one thread that follows the journal and answers the queries of its daemon.

Short queries are answered in turn from the current ledger. Queries that may take seconds are answered by a fork of the
reader, which has the whole ledger of that moment at the price of the pages that it changes, while the reader goes on. A
fork costs tens of milliseconds, so a query that seldom takes long (`why`) is answered without one until one of its kind
took long, and by forks until none of the last few did. The kernel ends a query after LIMIT_S, and catching up with a
journal that does not answer: an alarm with no handler.
"""

import gc
import logging
import os
import selectors
import signal
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gantree.control.garbage import set_all_apart, set_survivors_apart
from gantree.control.readers.follower import Follower, FollowerOutdated
from gantree.control.readers.frames import (
    LENGTH,
    NEWEST,
    FollowJournal,
    Frames,
    Query,
    QueryFailed,
    QueryMode,
    Ready,
    Reply,
    packed,
    unpacked,
)
from gantree.control.readers.host import end_with
from gantree.model.errors import GantreeError, JournalError, TooLong

LIMIT_S = 60.0
"""Seconds that one query may take."""
MOST_FORKS, MOST_OF_ONE = 3, 2
"""Queries that run in forks at once, in all and of one asker; the others wait."""
LONG_S = 0.1
"""Processor seconds: a query that takes longer goes to a fork, so that others need not wait for it."""
DURATIONS_KEPT = 16
"""The last durations of a function by which the next one is estimated."""
FOLLOW_EVERY_S = 0.5
"""How often new facts are read without a query, so that a query finds few to read."""
CHUNK = 1 << 20

log = logging.getLogger(__name__)


@contextmanager
def _limited() -> Iterator[None]:
    """The block ends within LIMIT_S, or this process does."""
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def serve(own: socket.socket) -> None:
    """Follow the journal of the first message, and answer until the daemon closes the socket."""
    frames = Frames()
    messages: list[Any] = []
    while not messages:
        data = own.recv(CHUNK)
        if not data:
            return
        messages = frames.feed(data)
    follow: FollowJournal = messages.pop(0)
    try:
        follower = Follower(follow.open_journal(), follow.otherwise)
    except Exception as error:
        log.exception("the reader cannot follow the journal")
        own.sendall(packed(QueryFailed.of(None, error)))
        return
    set_all_apart()
    _Server(own, frames, follower).run(messages)


@dataclass(slots=True)
class _Forked:
    """A query that runs in a fork, and the part of its answer that has come."""

    query: Query
    pid: int
    answer: bytearray = field(default_factory=bytearray)


class _Durations:
    """How long the last queries of each function took."""

    def __init__(self) -> None:
        self._took_s: dict[Callable[..., Any], deque[float]] = {}

    def note(self, function: Callable[..., Any], took_s: float) -> None:
        """Add the duration of one query."""
        self._took_s.setdefault(function, deque(maxlen=DURATIONS_KEPT)).append(took_s)

    def is_long(self, function: Callable[..., Any]) -> bool:
        """Whether the next may take long."""
        return max(self._took_s.get(function, ()), default=0.0) > LONG_S


class _Server:
    """Answers one daemon."""

    def __init__(self, own: socket.socket, frames: Frames, follower: Follower) -> None:
        self._own, self._frames, self._follower = own, frames, follower
        self._selector = selectors.DefaultSelector()
        self._forked: dict[int, _Forked] = {}
        self._waiting: deque[Query] = deque()
        self._durations = _Durations()
        self._is_spoilt = False

    def run(self, queries: list[Query]) -> None:
        """Until the daemon is gone."""
        self._selector.register(self._own, selectors.EVENT_READ)
        self._own.sendall(packed(Ready(os.getpid(), self._follower.seq)))
        self._answer_all(queries)
        while True:
            ready = self._selector.select(FOLLOW_EVERY_S)
            if not ready:
                self._follow()
            for key, _ in ready:
                if key.fileobj is not self._own:
                    self._read_fork(key.fd)
                    continue
                data = self._own.recv(CHUNK)
                if not data:
                    return
                self._answer_all(self._frames.feed(data))
            set_survivors_apart()

    def _follow(self) -> None:
        try:
            with _limited():
                self._follower.catch_up()
        except GantreeError as error:
            log.warning("the reader could not follow the journal, trying again: %s", error)

    def _answer_all(self, queries: list[Query]) -> None:
        for query in queries:
            if self._needs_fork(query):
                self._waiting.append(query)
                continue
            self._own.sendall(self._answer(query))
            if self._is_spoilt and query.mode is QueryMode.ADAPTIVE:
                self._restart()
        self._start_waiting()

    def _needs_fork(self, query: Query) -> bool:
        if query.mode is QueryMode.ADAPTIVE:
            return self._durations.is_long(query.function)
        return query.mode is QueryMode.FORKED

    def _restart(self) -> None:
        """Fold the ledger anew after a bug in a query, which may have left what-if changes in it."""
        self._follower.restart()
        self._is_spoilt = False

    def _answer(self, query: Query) -> bytes:
        """The frame with the reply or the error."""
        try:
            return packed(self._reply(query))
        except GantreeError as error:
            return packed(QueryFailed.of(query.number, error))
        except Exception as error:
            self._is_spoilt = True
            log.exception("bug in the answer to %s", query.function.__name__)
            return packed(QueryFailed.of(query.number, error))

    def _reply(self, query: Query) -> Reply:
        follower, began_s = self._follower, time.thread_time()
        while True:
            self._catch_up_for(query)
            view = follower.read_view(query.since.now)
            try:
                with _limited():
                    value = query.function(view, *query.arguments)
                took_s = time.thread_time() - began_s
                self._durations.note(query.function, took_s)
                return Reply(query.number, value, view.at, follower.age_s, took_s)
            except FollowerOutdated:
                with _limited():
                    follower.catch_up()

    def _catch_up_for(self, query: Query) -> None:
        """Read up to the fact that a query needs; for NEWEST an unreadable journal is no error."""
        if self._follower.seq >= query.since.seq:
            return
        try:
            with _limited():
                self._follower.catch_up()
        except JournalError:
            if query.since.seq != NEWEST:
                raise

    def _start_waiting(self) -> None:
        while (query := self._next_to_fork()) is not None:
            try:
                self._catch_up_for(query)
                self._follower.journal.close()  # a connection belongs to the process that opened it
                self._fork(query)
            except (GantreeError, OSError) as error:
                self._own.sendall(packed(QueryFailed.of(query.number, error)))

    def _next_to_fork(self) -> Query | None:
        """Remove and give the oldest query of the askers with the fewest forks, if another fork may run."""
        if len(self._forked) >= MOST_FORKS:
            return None
        worked_on = Counter(each.query.asker for each in self._forked.values())
        chosen = min(self._waiting, key=lambda each: worked_on[each.asker], default=None)
        if chosen is None or worked_on[chosen.asker] >= MOST_OF_ONE:
            return None
        self._waiting.remove(chosen)
        return chosen

    def _fork(self, query: Query) -> None:
        reading, writing = os.pipe()
        me = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._answer_in_fork(me, query, writing)
        os.close(writing)
        self._forked[reading] = _Forked(query, pid)
        self._selector.register(reading, selectors.EVENT_READ)

    def _answer_in_fork(self, reader: int, query: Query, writing: int) -> None:
        """In the fork: answer and end."""
        try:
            gc.disable()  # to look through all that was there copies all of it
            end_with(reader, b"gantree-question")
            self._own.close()
            answer = memoryview(self._answer(query))
            while answer:
                answer = answer[os.write(writing, answer) :]
        finally:
            os._exit(0)

    def _read_fork(self, descriptor: int) -> None:
        """Read from a fork; send its answer once it has ended."""
        forked = self._forked[descriptor]
        data = os.read(descriptor, CHUNK)
        if data:
            forked.answer += data
            return
        self._selector.unregister(descriptor)
        os.close(descriptor)
        del self._forked[descriptor]
        _, status = os.waitpid(forked.pid, 0)
        answer = bytes(forked.answer) if _is_whole(forked.answer) else _died(forked, status)
        self._own.sendall(answer)
        if forked.query.mode is QueryMode.ADAPTIVE:
            self._note(forked.query, unpacked(answer[LENGTH.size :]))
        self._start_waiting()

    def _note(self, query: Query, reply: Reply | QueryFailed) -> None:
        """Note how long a fork took."""
        if isinstance(reply, Reply):
            self._durations.note(query.function, reply.took_s)
        elif reply.kind is TooLong:
            self._durations.note(query.function, LIMIT_S)


def _is_whole(answer: bytearray) -> bool:
    return len(answer) > LENGTH.size and len(answer) == LENGTH.size + LENGTH.unpack_from(answer)[0]


def _died(forked: _Forked, status: int) -> bytes:
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if number == signal.SIGALRM:
        text = f"the query took longer than {LIMIT_S:g} s; ask for less"
        return packed(QueryFailed(forked.query.number, TooLong, text))
    name = signal.Signals(number).name if number else "no signal"
    return packed(QueryFailed(forked.query.number, None, f"its process died ({name})"))
