"""Which replicas of which services hold how much of a prompt: the answer to a request, from all of their events."""

import asyncio
import json
import logging
import time
from array import array
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import zmq.asyncio

from gantree.routing.cache_events.blocks import Prompt
from gantree.routing.cache_events.match import Held, Match
from gantree.routing.cache_events.prompts import PromptReader
from gantree.routing.cache_events.subscriber import Publisher, Subscriber
from gantree.routing.table import RoutedReplica, RoutedService, RouteTable

log = logging.getLogger(__name__)
THREADS = 2
"""Prompts that are read at a time."""
EXPECTED_S = 10.0
"""So long the blocks of a prompt that was sent to a replica count as held, if its events say nothing of them."""


@dataclass(slots=True)
class _Service:
    reader: PromptReader | None
    tokenizer: str
    subscribers: dict[str, Subscriber] = field(default_factory=dict)
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    publishers: dict[str, Publisher] = field(default_factory=dict)
    gaps: int = 0

    def note_gap(self) -> None:
        self.gaps += 1


class CacheIndex:
    """Follows the replicas of services with `affinity: cache`. tokenizers has a directory for each model."""

    def __init__(self, tokenizers: Path | None) -> None:
        self._tokenizers = tokenizers
        self._services: dict[str, _Service] = {}
        self._context = zmq.asyncio.Context()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="prompts")

    async def apply(self, table: RouteTable) -> None:
        """Follow the replicas of this table, and no others."""
        wanted = {each.backend: each for each in table.services if each.routing.affinity == "cache"}
        for backend in self._services.keys() - wanted.keys():
            self._end(self._services.pop(backend), ())
        for backend, service in wanted.items():
            known = self._services.get(backend)
            if known is None or known.tokenizer != service.tokenizer:
                reader = await self._reader(service)
                if known is None:
                    known = self._services[backend] = _Service(reader, service.tokenizer)
                known.reader, known.tokenizer = reader, service.tokenizer
            self._follow(service, known)

    async def match(self, backend: str, body: bytes) -> Match | None:
        """How much of the prompt of a request each replica holds; None where that is not known."""
        service = self._services.get(backend)
        if service is None or service.reader is None:
            return None
        heard = {
            server: each.blocks for server, each in service.subscribers.items() if each.is_heard
        }
        if not heard:
            return None
        loop = asyncio.get_running_loop()
        prompt = await loop.run_in_executor(self._threads, _prompt, service.reader, body)
        if prompt is None:
            return None
        now = time.monotonic()
        tokens = {server: each.matched_tokens(prompt, now) for server, each in heard.items()}
        found = {server: count for server, count in tokens.items() if count}
        return Match(prompt, found, now + EXPECTED_S)

    def expect(self, backend: str, server: str, match: Match) -> None:
        """A prompt was sent to a replica, whose engine has not published its blocks yet."""
        service = self._services.get(backend)
        subscriber = service.subscribers.get(server) if service else None
        if subscriber is not None:
            subscriber.blocks.expect(match.prompt, time.monotonic(), match.expected_until)

    def held(self) -> Mapping[str, Held]:
        """What is known of each service, by its backend."""
        return {backend: _held(each) for backend, each in self._services.items()}

    async def end(self) -> None:
        """Stop following."""
        tasks = [task for each in self._services.values() for task in each.tasks.values()]
        for each in self._services.values():
            self._end(each, ())
        await asyncio.gather(*tasks, return_exceptions=True)
        self._services.clear()
        self._context.destroy(linger=0)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _reader(self, service: RoutedService) -> PromptReader | None:
        """The tokenizer of a service; None, and a line in the log, without one."""
        try:
            directory = tokenizer_directory(self._tokenizers, service.tokenizer)
            return await asyncio.to_thread(PromptReader, directory)
        except (OSError, ValueError) as error:
            log.warning(
                "%s: affinity goes by what this router sent, and not by cache events: %s",
                service.service,
                error,
            )
            return None

    def _follow(self, service: RoutedService, known: _Service) -> None:
        publishers = {
            each.server: found for each in service.replicas if (found := _publisher(each))
        }
        if not publishers and service.replicas:
            log.warning("%s: no replica has a port of cache events", service.service)
        self._end(known, publishers)
        for server, publisher in publishers.items():
            if known.publishers.get(server) == publisher:
                continue
            subscriber = Subscriber(server, publisher, known.note_gap)
            known.publishers[server], known.subscribers[server] = publisher, subscriber
            known.tasks[server] = asyncio.create_task(subscriber.run(self._context))

    def _end(self, known: _Service, publishers: Mapping[str, Publisher] | tuple[()]) -> None:
        """Stop following those that are not among these."""
        left = dict(publishers)
        for server in [each for each, was in known.publishers.items() if left.get(each) != was]:
            known.tasks.pop(server).cancel()
            del known.publishers[server], known.subscribers[server]


def tokenizer_directory(tokenizers: Path | None, name: str) -> Path:
    """The directory of a tokenizer, below that of all; links in there are followed. Raises ValueError."""
    if tokenizers is None:
        raise ValueError("--tokenizers names no directory")
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise ValueError(f"the tokenizer {name!r} is no name below {tokenizers}")
    return tokenizers / name


def _publisher(replica: RoutedReplica) -> Publisher | None:
    if not replica.cache_events_port:
        return None
    return Publisher(replica.host, replica.cache_events_port, replica.cache_replay_port)


def _prompt(reader: PromptReader, body: bytes) -> Prompt | None:
    """The prompt of a request."""
    with suppress(ValueError, RecursionError):
        document = json.loads(body)
        tokens = reader.tokens(document) if isinstance(document, dict) else None
        model = str(document.get("model", "")) if tokens else ""
        return Prompt(array("I", tokens), model) if tokens else None
    return None


def _held(service: _Service) -> Held:
    heard = [each for each in service.subscribers.values() if each.is_heard]
    return Held(len(heard), sum(len(each.blocks) for each in heard), service.gaps)
