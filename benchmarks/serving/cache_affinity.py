"""How much of its prompts a service finds in its KV caches: by cache events, by what routers sent, without affinity.

Conversations in turns, each with one of a few system prompts and all that was said before, go through two `gantree
route`s to three replicas: Dynamo's mocker, an engine simulated with blocks, prefix cache and eviction, which says in
`usage` how many tokens of a prompt it had. The caches are too small for all conversations. Each kind of affinity gets
fresh engines and the same conversations. Then one request at a time shows what the choice itself takes.

    PYTHONPATH=benchmarks python -m serving.cache_affinity DIRECTORY [--turns 600] [--blocks 300] [--at-once 8]

DIRECTORY has the environment `dynamo` and the model `tiny` (README.md). Needs gantree[cache-events] and HAProxy.
"""

import argparse
import asyncio
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles

import aiohttp

REPLICAS, ROUTERS = 3, 2
WITHIN_S = 120.0
SYSTEMS, TURNS_EACH, CONVERSATIONS = 4, 6, 60
SYSTEM_WORDS, USER_WORDS, ANSWER_TOKENS = 120, 60, 8
WORDS = (Path(__file__).resolve().parents[2] / "docs" / "glossary.md").read_text().split()
KINDS = ("none", "prefix", "cache")
AT = ("--discovery-backend", "file", "--request-plane", "tcp", "--event-plane", "zmq")
SINGLE = 200


def free_ports(count: int) -> list[int]:
    """Ports at which nobody listens."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


@asynccontextmanager
async def running(command: Sequence[str], log: Path, **env: str) -> AsyncIterator[None]:
    """A program while it runs."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, **env}, start_new_session=True
        )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def until_answers(client: aiohttp.ClientSession, url: str) -> None:
    """Wait until there is a model."""
    until_s = time.monotonic() + WITHIN_S
    while time.monotonic() < until_s:
        try:
            async with client.get(f"{url}/v1/models") as answer:
                if (await answer.json())["data"]:
                    return
        except (aiohttp.ClientError, KeyError, ValueError):
            pass
        await asyncio.sleep(0.1)
    raise SystemExit(f"{url} does not answer")


@dataclass
class Found:
    """What all answers said."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    seconds: list[float] = field(default_factory=list)
    affinities: int = 0
    replicas: Counter[str] = field(default_factory=Counter)

    def row(self) -> str:
        """Requests, share of tokens that were cached, share sent by affinity, the busiest replica's, p50 and p99."""
        cuts = quantiles(self.seconds, n=100)
        share = self.cached_tokens / self.prompt_tokens
        by_affinity = self.affinities / len(self.seconds)
        busiest = max(self.replicas.values()) / len(self.seconds)
        return (
            f"{len(self.seconds)} requests, {share:.1%} of {self.prompt_tokens} tokens cached,"
            f" {by_affinity:.0%} by affinity,"
            f" busiest replica {busiest:.0%}, p50 {cuts[49] * 1000:.1f} ms, p99 {cuts[98] * 1000:.1f} ms"
        )


def _text(draw: random.Random, words: int) -> str:
    return " ".join(draw.choices(WORDS, k=words))


class Conversation:
    """A system prompt and what was said."""

    def __init__(self, draw: random.Random, systems: Sequence[str]) -> None:
        self._draw = draw
        self.messages = [{"role": "system", "content": draw.choice(systems)}]

    @property
    def is_over(self) -> bool:
        """Whether it has had its turns."""
        return len(self.messages) > 2 * TURNS_EACH

    async def turn(self, client: aiohttp.ClientSession, url: str, found: Found) -> None:
        """Say something and take the answer."""
        self.messages.append({"role": "user", "content": _text(self._draw, USER_WORDS)})
        body = {"model": "tiny", "messages": self.messages, "max_tokens": ANSWER_TOKENS}
        began_s = time.monotonic()
        async with client.post(f"{url}/v1/chat/completions", json=body) as answer:
            told = await answer.json()
            if answer.status != 200:
                raise SystemExit(f"{answer.status}: {told}")
        found.seconds.append(time.monotonic() - began_s)
        chosen, _, reason = answer.headers["X-Gantree-Chosen"].partition("; ")
        found.replicas[chosen] += 1
        found.affinities += reason == "affinity"
        found.prompt_tokens += told["usage"]["prompt_tokens"]
        details = told["usage"].get("prompt_tokens_details") or {}
        found.cached_tokens += details.get("cached_tokens") or 0
        content = told["choices"][0]["message"].get("content") or ""
        self.messages.append({"role": "assistant", "content": content})


async def talk(
    client: aiohttp.ClientSession, urls: Sequence[str], turns: int, at_once: int
) -> Found:
    """Many conversations, some of them at a time; each turn comes to one router or another."""
    draw, found = random.Random(1), Found()
    systems = [_text(draw, SYSTEM_WORDS) for _ in range(SYSTEMS)]
    waiting = [Conversation(draw, systems) for _ in range(CONVERSATIONS)]
    left = turns

    async def one() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            conversation = waiting.pop(draw.randrange(len(waiting)))
            await conversation.turn(client, draw.choice(urls), found)
            again = Conversation(draw, systems) if conversation.is_over else conversation
            waiting.append(again)

    await asyncio.gather(*(one() for _ in range(at_once)))
    return found


@asynccontextmanager
async def engines(home: Path, run: Path, blocks: int) -> AsyncIterator[list[dict[str, object]]]:
    """Replicas with empty caches, as rows of a table."""
    rows: list[dict[str, object]] = []
    python = str(home / "dynamo" / "bin" / "python")
    async with AsyncExitStack() as opened, aiohttp.ClientSession() as client:
        for number in range(REPLICAS):
            port, events, replay = free_ports(3)
            env = {"DYN_FILE_KV": str(run / f"kv-{number}"), "HF_HUB_OFFLINE": "1"}
            mocker = [
                python, "-m", "dynamo.mocker", "--model-path", str(home / "tiny"), "--model-name", "tiny", *AT,
                "--zmq-kv-events-ports", str(events), "--zmq-replay-ports", str(replay), "--block-size", "16",
                "--num-gpu-blocks-override", str(blocks), "--speedup-ratio", "5",
            ]  # fmt: skip
            front = [
                python, "-m", "dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", str(port), *AT,
            ]  # fmt: skip
            await opened.enter_async_context(running(mocker, run / f"mocker-{number}.log", **env))
            await opened.enter_async_context(running(front, run / f"front-{number}.log", **env))
            ports = {"port": port, "cache_events_port": events, "cache_replay_port": replay}
            rows.append({"replica": f"tiny.{number}", "host": "127.0.0.1", **ports})
        for row in rows:
            await until_answers(client, f"http://127.0.0.1:{row['port']}")
        yield rows


@asynccontextmanager
async def routers(
    home: Path, run: Path, kind: str, rows: Sequence[dict[str, object]], count: int
) -> AsyncIterator[tuple[list[str], list[int]]]:
    """Routers with one kind of affinity: their addresses, and the ports of their metrics."""
    table = run / f"table-{kind}.yaml"
    table.write_text(
        json.dumps({"services": [{"service": "tiny", "affinity": kind, "replicas": list(rows)}]})
    )
    async with AsyncExitStack() as opened:
        urls, metrics = [], free_ports(count)
        for number in range(count):
            log = run / f"route-{kind}-{number}.log"
            command = [
                sys.executable, "-m", "gantree", "route", "--listen", "127.0.0.1:0", "--table", str(table),
                "--tokenizers", str(home), "--explain", "--metrics", f"127.0.0.1:{metrics[number]}",
            ]  # fmt: skip
            await opened.enter_async_context(running(command, log))
            until_s = time.monotonic() + WITHIN_S
            while not (listens := re.search(r"listens at (\S+)", log.read_text())):
                if time.monotonic() > until_s:
                    raise SystemExit(log.read_text())
                await asyncio.sleep(0.1)
            urls.append(listens[1])
        yield urls, metrics


async def in_time(client: aiohttp.ClientSession, ports: Sequence[int]) -> str:
    """How many lookups took no longer than a request waits for them."""
    within = of = 0.0
    for port in ports:
        async with client.get(f"http://127.0.0.1:{port}/metrics") as answer:
            text = await answer.text()
        name = "gantree_route_cache_lookup_seconds"
        within += sum(map(float, re.findall(rf'^{name}_bucket{{le="0.05".*}} (\S+)', text, re.M)))
        of += sum(map(float, re.findall(rf"^{name}_count.* (\S+)", text, re.M)))
    return f", {within / of:.1%} of lookups in time" if of else ""


async def measure(home: Path, kind: str, turns: int, blocks: int, at_once: int) -> None:
    """One kind of affinity: conversations, then single requests."""
    run = Path(tempfile.mkdtemp(prefix="cache-affinity-"))
    async with (
        engines(home, run, blocks) as rows,
        routers(home, run, kind, rows, ROUTERS) as (urls, metrics),
        aiohttp.ClientSession() as client,
    ):
        found = await talk(client, urls, turns, at_once)
        print(f"{kind:8} {found.row()}{await in_time(client, metrics)}", flush=True)
        single = await talk(client, urls[:1], SINGLE, 1)
        print(f"{kind:8} one at a time: {single.row()}", flush=True)
    shutil.rmtree(run)


def main() -> None:
    """All kinds, one after the other."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    options.add_argument("place", type=Path)
    options.add_argument("--turns", type=int, default=600)
    options.add_argument("--blocks", type=int, default=300)
    options.add_argument("--at-once", type=int, default=8)
    options.add_argument("--kinds", nargs="*", default=KINDS)
    given = options.parse_args()
    for kind in given.kinds:
        asyncio.run(measure(given.place, kind, given.turns, given.blocks, given.at_once))


if __name__ == "__main__":
    main()
