"""The reader: one process, one thread, that follows the journal and answers the questions of the daemon beside it.

Short questions are answered one after the other, from the ledger as it is. Those that may take seconds are answered
apart: a fork of the reader has the whole ledger as it is at that moment, for the price of the pages that it changes,
and the reader goes on. A fork alone costs tens of milliseconds, so what only now and then takes long (`why`) is
answered here until one of its kind took long, and apart until none of the last few did. A question that takes longer
than LIMIT_S is ended by the kernel (an alarm nobody catches).
"""

import gc
import logging
import os
import selectors
import signal
import socket
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gantree.control.garbage import set_all_apart, set_survivors_apart
from gantree.control.readers.follower import Follower, Overtaken
from gantree.control.readers.frames import (
    LENGTH,
    NEWEST,
    Failed,
    Follow,
    Frames,
    Question,
    Ready,
    Told,
    Where,
    packed,
    unpacked,
)
from gantree.control.readers.host import end_with
from gantree.model.errors import GantreeError, JournalError, TooLong

LIMIT_S = 60.0
"""Seconds that one question may take."""
MOST_APART, MOST_OF_ONE = 3, 2
"""Questions that are worked on at once in processes of their own, and those of one asker; the others wait for these."""
LONG_S = 0.1
"""Of a processor: others wait no longer for a question that need not be worked out apart."""
LOOKED_BACK = 16
"""So many answers of a function say how long the next may take."""
FOLLOW_EVERY_S = 0.5
"""New facts are read so often when nobody asks, so that there are few when somebody does."""
CHUNK = 1 << 20

log = logging.getLogger(__name__)


def serve(own: socket.socket) -> None:
    """Follow what the first message says, and answer until the other end is gone."""
    frames = Frames()
    messages: list[Any] = []
    while not messages:
        data = own.recv(CHUNK)
        if not data:
            return
        messages = frames.feed(data)
    follow: Follow = messages.pop(0)
    try:
        follower = Follower(follow.open_journal(), follow.otherwise)
    except Exception as error:
        log.exception("the reader cannot follow the journal")
        own.sendall(packed(Failed.of(None, error)))
        return
    set_all_apart()
    _Server(own, frames, follower).run(messages)


@dataclass(slots=True)
class _Apart:
    """A question in a process of its own, and what it has answered so far."""

    question: Question
    pid: int
    answer: bytearray = field(default_factory=bytearray)


class _Paces:
    """How long the last answers of each function took."""

    def __init__(self) -> None:
        self._took_s: dict[Callable[..., Any], deque[float]] = {}

    def note(self, function: Callable[..., Any], took_s: float) -> None:
        """One more answer took so long."""
        self._took_s.setdefault(function, deque(maxlen=LOOKED_BACK)).append(took_s)

    def is_long(self, function: Callable[..., Any]) -> bool:
        """Whether the next may take long."""
        return max(self._took_s.get(function, ()), default=0.0) > LONG_S


class _Server:
    """Answers one daemon."""

    def __init__(self, own: socket.socket, frames: Frames, follower: Follower) -> None:
        self._own, self._frames, self._follower = own, frames, follower
        self._selector = selectors.DefaultSelector()
        self._apart: dict[int, _Apart] = {}
        self._waiting: deque[Question] = deque()
        self._paces = _Paces()
        self._is_spoilt = False

    def run(self, questions: list[Question]) -> None:
        """Until the daemon is gone."""
        self._selector.register(self._own, selectors.EVENT_READ)
        self._own.sendall(packed(Ready(os.getpid(), self._follower.seq)))
        self._take(questions)
        while True:
            ready = self._selector.select(FOLLOW_EVERY_S)
            if not ready:
                self._follow()
            for key, _ in ready:
                if key.fileobj is not self._own:
                    self._hear(key.fd)
                    continue
                data = self._own.recv(CHUNK)
                if not data:
                    return
                self._take(self._frames.feed(data))
            set_survivors_apart()

    def _follow(self) -> None:
        try:
            self._follower.catch_up()
        except GantreeError as error:
            log.warning("the reader could not follow the journal, trying again: %s", error)

    def _take(self, questions: list[Question]) -> None:
        for question in questions:
            if self._is_for_another(question):
                self._waiting.append(question)
                continue
            self._own.sendall(self._answer(question))
            if self._is_spoilt and question.where is Where.BY_PACE:
                self._begin_again()
        self._start_waiting()

    def _is_for_another(self, question: Question) -> bool:
        if question.where is Where.BY_PACE:
            return self._paces.is_long(question.function)
        return question.where is Where.APART

    def _begin_again(self) -> None:
        """After a bug in a question that puts room back when it has looked behind it: perhaps it did not."""
        self._follower.begin_again()
        self._is_spoilt = False

    def _answer(self, question: Question) -> bytes:
        """The frame that answers a question, whatever becomes of it."""
        try:
            return packed(self._told(question))
        except GantreeError as error:
            return packed(Failed.of(question.number, error))
        except Exception as error:
            self._is_spoilt = True
            log.exception("bug in the answer to %s", question.function.__name__)
            return packed(Failed.of(question.number, error))

    def _told(self, question: Question) -> Told:
        follower, began_s = self._follower, time.thread_time()
        while True:
            self._catch_up_for(question)
            reading = follower.reading(question.since.now)
            signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
            try:
                value = question.function(reading, *question.arguments)
                took_s = time.thread_time() - began_s
                self._paces.note(question.function, took_s)
                return Told(question.number, value, reading.at, follower.age_s, took_s)
            except Overtaken:
                follower.catch_up()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0.0)

    def _catch_up_for(self, question: Question) -> None:
        """Read as far as a question wants; one that wants whatever is newest gets what there is, if nothing is read."""
        if self._follower.seq >= question.since.seq:
            return
        try:
            self._follower.catch_up()
        except JournalError:
            if question.since.seq != NEWEST:
                raise

    def _start_waiting(self) -> None:
        while (question := self._next_apart()) is not None:
            try:
                self._catch_up_for(question)
                self._follower.journal.close()  # a connection belongs to the process that opened it
                self._fork(question)
            except (GantreeError, OSError) as error:
                self._own.sendall(packed(Failed.of(question.number, error)))

    def _next_apart(self) -> Question | None:
        """The oldest question of those who have the fewest worked on, if there is room for it; it waits no longer."""
        if len(self._apart) >= MOST_APART:
            return None
        worked_on = Counter(each.question.asker for each in self._apart.values())
        chosen = min(self._waiting, key=lambda each: worked_on[each.asker], default=None)
        if chosen is None or worked_on[chosen.asker] >= MOST_OF_ONE:
            return None
        self._waiting.remove(chosen)
        return chosen

    def _fork(self, question: Question) -> None:
        reading, writing = os.pipe()
        me = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._work_out(me, question, writing)
        os.close(writing)
        self._apart[reading] = _Apart(question, pid)
        self._selector.register(reading, selectors.EVENT_READ)

    def _work_out(self, reader: int, question: Question, writing: int) -> None:
        """In the fork: answer and end."""
        try:
            gc.disable()  # to look through all that was there copies all of it
            end_with(reader, b"gantree-question")
            self._own.close()
            answer = memoryview(self._answer(question))
            while answer:
                answer = answer[os.write(writing, answer) :]
        finally:
            os._exit(0)

    def _hear(self, descriptor: int) -> None:
        """What a fork has to say, until it has ended."""
        apart = self._apart[descriptor]
        data = os.read(descriptor, CHUNK)
        if data:
            apart.answer += data
            return
        self._selector.unregister(descriptor)
        os.close(descriptor)
        del self._apart[descriptor]
        _, status = os.waitpid(apart.pid, 0)
        answer = bytes(apart.answer) if _is_whole(apart.answer) else _died(apart, status)
        self._own.sendall(answer)
        if apart.question.where is Where.BY_PACE:
            self._note(apart.question, unpacked(answer[LENGTH.size :]))
        self._start_waiting()

    def _note(self, question: Question, told: Told | Failed) -> None:
        """How long an answer took that was worked out apart."""
        if isinstance(told, Told):
            self._paces.note(question.function, told.took_s)
        elif told.kind is TooLong:
            self._paces.note(question.function, LIMIT_S)


def _is_whole(answer: bytearray) -> bool:
    return len(answer) > LENGTH.size and len(answer) == LENGTH.size + LENGTH.unpack_from(answer)[0]


def _died(apart: _Apart, status: int) -> bytes:
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if number == signal.SIGALRM:
        text = f"the answer was not found within {LIMIT_S:g} s; ask for less"
        return packed(Failed(apart.question.number, TooLong, text))
    name = signal.Signals(number).name if number else "no signal"
    return packed(
        Failed(apart.question.number, None, f"the process that worked it out died ({name})")
    )
