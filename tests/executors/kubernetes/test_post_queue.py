"""Objects that are made without anybody waiting: so many at once, and what goes wrong is told or asked again."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import chain, repeat
from typing import Any

from gantree.executors.kubernetes.apiserver.client import Client
from gantree.executors.kubernetes.apiserver.connection import Connection
from gantree.executors.kubernetes.apiserver.post_queue import AT_ONCE, Error, PostQueue
from gantree.executors.kubernetes.writes.writes import Binding, Failed, bind_all
from gantree.model.errors import Unreachable

MADE = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"
THROTTLED = b"HTTP/1.1 429 Too Many\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\n{}"
FORBIDDEN = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\n{}"
SILENCE = b""


class Server:
    """Gives these answers, the last of them again and again; each once `may_answer` is set."""

    def __init__(self, *answers: bytes) -> None:
        self._answers: Iterator[bytes] = chain(answers, repeat(answers[-1]))
        self.may_answer = asyncio.Event()
        self.asked_at: list[float] = []
        self.now = self.most = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0] or 0)
                await reader.readexactly(length)
                self.asked_at.append(asyncio.get_running_loop().time())
                self.now += 1
                self.most = max(self.most, self.now)
                await self.may_answer.wait()
                self.now -= 1
                writer.write(next(self._answers))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


class Desk:
    """Posts to a server, what became of them, and the bugs that were told of."""

    def __init__(self, client: Client) -> None:
        self.tasks: list[asyncio.Task[Any]] = []
        self.bugs: list[Exception] = []
        self.told: list[Error | None] = []
        self.posts = PostQueue(client, self.tasks.append, self.bugs.append)

    async def all_told(self, count: int) -> None:
        while len(self.told) < count:
            await asyncio.sleep(0.001)


def talk(
    work: Callable[[Server, Desk], Awaitable[None]], *answers: bytes, within_s: float = 30.0
) -> None:
    async def both() -> None:
        server = Server(*answers)
        listening = await asyncio.start_server(server, "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        client = Client(Connection(f"http://127.0.0.1:{port}"), within_s=within_s)
        try:
            async with asyncio.timeout(60):
                await work(server, Desk(client))
        finally:
            await client.close()
            listening.close()

    asyncio.run(both())


def test_so_many_are_in_flight_and_the_others_follow_as_those_are_answered() -> None:
    async def work(server: Server, desk: Desk) -> None:
        for _ in range(2):
            server.may_answer.clear()
            before = len(server.asked_at)
            for _ in range(3 * AT_ONCE):
                desk.posts.post("api/v1/pods", {}, desk.told.append)
            while len(server.asked_at) < before + AT_ONCE:
                await asyncio.sleep(0.001)
            for _ in range(20):
                await asyncio.sleep(0)
            assert server.now == AT_ONCE
            server.may_answer.set()
            await desk.all_told(before + 3 * AT_ONCE)
        assert server.most == AT_ONCE
        assert set(desk.told) == {None}
        assert len(desk.tasks) <= 3 * AT_ONCE, "none but where a connection had to be made"

    talk(work, MADE)


def test_what_is_not_answered_is_given_up_whether_or_not_somebody_waits() -> None:
    """The first makes its connection and waits; the second finds one and does not."""

    async def work(server: Server, desk: Desk) -> None:
        server.may_answer.set()
        desk.posts.post("api/v1/pods", {}, desk.told.append)
        await desk.all_told(1)
        assert desk.posts.client.is_ready
        server.may_answer.clear()
        desk.posts.post("api/v1/pods", {}, desk.told.append)
        await desk.all_told(2)
        assert desk.told[0] is None
        assert isinstance(desk.told[1], Unreachable)
        assert len(desk.tasks) == 1
        assert not desk.posts.client.is_ready, "its connection is closed"

    talk(work, MADE, within_s=0.2)


def test_a_throttled_binding_is_asked_again_when_the_server_says_and_a_refused_one_is_not() -> None:
    async def work(server: Server, desk: Desk) -> None:
        server.may_answer.set()
        bound: list[Failed] = []
        desk.posts.post("api/v1/pods", {}, desk.told.append)
        await desk.all_told(1)
        bind_all(desk.posts, [Binding("default", "a", "u-a", "n0", {})], bound.append)
        while not bound:
            await asyncio.sleep(0.001)
        first, again = server.asked_at[1:]
        assert again - first >= 1.0
        bind_all(desk.posts, [Binding("default", "b", "u-b", "n0", {})], bound.append)
        while len(bound) < 2:
            await asyncio.sleep(0.001)
        assert bound == [(), (("u-b", "403 : "),)]

    talk(work, MADE, THROTTLED, MADE, FORBIDDEN)


def test_a_gang_is_told_of_once_when_all_its_pods_are_decided() -> None:
    async def work(server: Server, desk: Desk) -> None:
        server.may_answer.set()
        bound: list[Failed] = []
        gang = [Binding("default", f"p{n}", f"u{n}", "n0", {}) for n in range(3)]
        bind_all(desk.posts, gang, bound.append)
        while not bound:
            await asyncio.sleep(0.001)
        assert len(server.asked_at) == 3
        assert [len(failed) for failed in bound] == [2]

    talk(work, FORBIDDEN, FORBIDDEN, MADE)


def test_a_bug_in_who_is_told_is_told_and_the_others_go_on() -> None:
    async def work(server: Server, desk: Desk) -> None:
        server.may_answer.set()
        desk.posts.post("api/v1/pods", {}, desk.told.append)
        await desk.all_told(1)

        def broken(error: Error | None) -> None:
            raise RuntimeError("a bug")

        desk.posts.post("api/v1/pods", {}, broken)
        desk.posts.post("api/v1/pods", {}, desk.told.append)
        await desk.all_told(2)
        assert [str(bug) for bug in desk.bugs] == ["a bug"]
        assert desk.told == [None, None]

    talk(work, MADE)


def test_who_does_not_lead_posts_nothing() -> None:
    async def work(server: Server, desk: Desk) -> None:
        server.may_answer.set()
        desk.posts.post("api/v1/pods", {}, desk.told.append)
        await desk.all_told(1)
        desk.posts.client._leads = lambda: False
        desk.posts._in_flight += AT_ONCE
        for _ in range(2000):
            desk.posts.post("api/v1/pods", {}, desk.told.append)
        desk.posts._done(desk.told.append, None)
        assert len(desk.told) == 2002
        assert all(isinstance(error, Unreachable) for error in desk.told[2:])
        assert len(server.asked_at) == 1

    talk(work, MADE)
