"""No request fails while replicas, services, the daemon or HAProxy come and go under it."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gantree.routing.choice import Candidate, choose
from support.replica import ReplicaProcess
from support.routed import Routed, routed, row, service, until

PLACES = (
    ("s0", "s0/l0", "n0"),
    ("s0", "s0/l0", "n1"),
    ("s0", "s0/l1", "n2"),
    ("s1", "s1/l2", "n3"),
)
CLIENTS = 24


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[ExitStack]:
    """What is closed at the end of a test."""
    with ExitStack() as opened:
        yield opened


class Load:
    """Clients that ask again and again, with and without a body, until they are stopped."""

    def __init__(self, router: Routed) -> None:
        self.outcomes: Counter[str] = Counter()
        self._router = router
        self._stopped = False
        self._tasks = [asyncio.create_task(self._ask(number)) for number in range(CLIENTS)]

    async def _ask(self, number: int) -> None:
        while not self._stopped:
            try:
                if number % 2:
                    answer = await self._router.get(f"/services/chat/?wait_ms={number}")
                else:
                    answer = await self._router.chat("chat", "word " * 200)
                self.outcomes[str(answer.status)] += 1
            except Exception as error:
                self.outcomes[repr(error)] += 1

    async def more(self, count: int = 100) -> None:
        """Wait until so many more have been answered."""
        least = self.outcomes.total() + count
        await until(lambda: self.outcomes.total() >= least, "requests are answered")

    async def stop(self) -> None:
        """Let those that are under way end."""
        self._stopped = True
        await asyncio.gather(*self._tasks)


def test_no_request_fails_while_replicas_are_killed_drained_and_added(
    tmp_path: Path, directory: ExitStack
) -> None:
    replicas = [
        directory.enter_context(ReplicaProcess(f"chat.{number}", tmp_path)) for number in range(4)
    ]

    def table(*numbers: int, draining: int = -1, **more: Any) -> dict[str, Any]:
        rows = [
            row(replicas[number], PLACES[number], draining=number == draining) for number in numbers
        ]
        return service("chat", rows, concurrency=8, **more)

    async def scenario() -> None:
        async with routed(tmp_path, at="n0") as router:
            await router.set(table(0, 1, 2))
            load = Load(router)
            await load.more()
            replicas[0].kill()
            await load.more()  # the daemon has not noticed yet
            await router.set(table(1, 2))
            await load.more()
            await router.set(table(2))
            await router.set(table(1, 2, 3))  # one that has just gone comes back
            await until(lambda: _serves(router, "n1", "chat.1"), "it serves again")
            await load.more()
            await router.set(table(1, 2, 3, draining=1))
            await until(lambda: _is_empty(router, "chat.1_1"), "it drains")
            replicas[1].kill()
            await router.set(table(2, 3))
            await load.more()
            await router.set(table(2, 3, wait_s=7.0), service("other", []))  # another process
            await load.more()
            await router.set(table(2, 3))
            await load.more()
            await load.stop()
            assert set(load.outcomes) == {"200"}, load.outcomes

    asyncio.run(scenario())


def test_replicas_come_and_go_while_requests_wait_for_room(
    tmp_path: Path, directory: ExitStack
) -> None:
    """HAProxy must not end: with `balance leastconn` it crashed in this within a few rounds."""
    replicas = [
        directory.enter_context(ReplicaProcess(f"chat.{number}", tmp_path)) for number in range(4)
    ]

    def table(attempt: int, state: str = "") -> dict[str, Any]:
        rows = [row(replicas[0])]
        if state:
            flags: dict[str, Any] = {"ready": state != "new", "draining": state == "draining"}
            rows += [row(each, attempt=attempt, **flags) for each in replicas[1:]]
        return service("chat", rows, concurrency=2)

    async def scenario() -> None:
        async with routed(tmp_path) as router:
            await router.set(table(0))
            load = Load(router)
            for attempt in range(1, 7):
                for state in ("new", "ready", "draining", ""):
                    await router.set(table(attempt, state))
                    await load.more(60)
            await load.stop()
            assert set(load.outcomes) == {"200"}, load.outcomes
            assert router.proxies.restarts == 0

    asyncio.run(scenario())


async def _serves(router: Routed, place: str, replica: str) -> bool:
    return (await router.get("/services/chat/", X_Gantree_From=place)).chosen[0] == replica


async def _is_empty(router: Routed, server: str) -> bool:
    return not (await router.proxies.now()).in_flight.get(("chat", server))


def test_the_last_table_stays_in_force_without_the_daemon_and_haproxy_is_started_again(
    tmp_path: Path, directory: ExitStack
) -> None:
    replica = directory.enter_context(ReplicaProcess("chat.1", tmp_path))

    async def scenario() -> None:
        async with routed(tmp_path) as router:
            await router.set(service("chat", [row(replica)]))
            await router.lose_daemon()
            assert (await router.get("/services/chat/")).status == 200
            killed = router.proxies.pid
            assert killed is not None
            os.kill(killed, signal.SIGKILL)
            await until(lambda: router.proxies.restarts == 1, "it is seen")
            assert (await router.get("/services/chat/")).status == 200
            assert router.proxies.pid not in (None, killed)

    asyncio.run(scenario())


class HeldRequests:
    """Replicas that hold their requests, a table that changes at random, and what the rule in Python says of it."""

    def __init__(self, replicas: list[ReplicaProcess], concurrency: int) -> None:
        self.draw, self.replicas, self.concurrency = Random(concurrency), replicas, concurrency
        self.speeds = [self.draw.choice([1.0, 0.5]) for _ in replicas]
        self.states = {each.name: "ready" for each in replicas}
        self.held: dict[str, list[asyncio.Task[Any]]] = {each.name: [] for each in replicas}
        self.reasons: dict[asyncio.Task[Any], str] = {}

    def table(self) -> dict[str, Any]:
        """The row of the service."""
        rows = [
            row(
                each, place, speed=speed, ready=self.states[each.name] != "unready",
                draining=self.states[each.name] == "draining",
            )
            for each, place, speed in zip(self.replicas, PLACES, self.speeds, strict=True)
        ]  # fmt: skip
        return service("chat", rows, concurrency=self.concurrency)

    def candidates(self) -> list[Candidate]:
        """The same for the rule in Python."""
        return [
            Candidate(
                f"{each.name}_1", place, self.states[each.name] != "unready",
                self.states[each.name] == "draining", len(self.held[each.name]), self.concurrency, speed,
            )
            for each, place, speed in zip(self.replicas, PLACES, self.speeds, strict=True)
        ]  # fmt: skip

    async def are_held(self, router: Routed) -> bool:
        """Whether HAProxy counts as we do."""
        now = (await router.proxies.now()).in_flight
        return all(now.get(("chat", f"{name}_1"), 0) == len(of) for name, of in self.held.items())

    async def change(self, router: Routed) -> None:
        """Now and then, another table, or a replica that answers all that it holds."""
        step = self.draw.random()
        if step < 0.07:
            new_state = self.draw.choice(["ready", "ready", "unready", "draining"])
            self.states[self.draw.choice(self.replicas).name] = new_state
            await router.set(self.table())
        elif step < 0.15:
            released = self.draw.choice(self.replicas)
            await router.get_direct(released.port, "/release")
            for request in self.held[released.name]:
                assert (await request).json["name"] == released.name
            self.held[released.name] = []
        await until(lambda: self.are_held(router), "HAProxy counts as we do")

    async def ask(self, router: Routed) -> None:
        """A request from somewhere goes where the rule says, if that says anything."""
        caller = self.draw.choice((*PLACES[:1] * 8, *PLACES))
        expected = choose(self.candidates(), caller, (), len(self.reasons) + 1)
        if expected.replica is None:
            return
        name = expected.replica.removesuffix("_1")
        task = asyncio.create_task(router.get("/services/chat/?held", X_Gantree_From=caller[-1]))
        self.held[name].append(task)
        self.reasons[task] = expected.reason
        await until(lambda: self.are_held(router), f"it goes to {expected}")


@pytest.mark.parametrize(("concurrency", "reason"), [(3, "full"), (12, "load")])
def test_haproxy_chooses_as_the_rule_says_whatever_the_replicas_are_doing(
    tmp_path: Path, directory: ExitStack, concurrency: int, reason: str
) -> None:
    """Requests that are held, released, and tables that change at random; the rule in Python is asked each time."""
    replicas = [
        directory.enter_context(ReplicaProcess(f"chat.{number}", tmp_path)) for number in range(4)
    ]
    requests = HeldRequests(replicas, concurrency)

    async def scenario() -> None:
        async with routed(tmp_path) as router:
            await router.set(requests.table())
            for _ in range(60):
                await requests.change(router)
                await requests.ask(router)
            for replica in replicas:
                await router.get_direct(replica.port, "/release")
            for task, why in requests.reasons.items():
                assert (await task).chosen[1] == why
            reasons = Counter(requests.reasons.values())
            assert min(reasons["closest"], reasons[reason]) > 0, reasons

    asyncio.run(scenario())
