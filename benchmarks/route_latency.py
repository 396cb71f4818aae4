"""What a proxy in front of replicas adds to a request: `gantree route` beside bare HAProxy, nginx and Caddy.

Three servers on this machine answer at once, with two bytes (HAProxy with `http-request return`). The same requests,
OpenAI-style with a prompt of 1 kB, go to them directly and through each proxy that is installed, by turns, several
rounds. The load is open: a request is due at a fixed moment, whatever became of those before, and its time counts from
then; so a proxy that stalls is not asked less. One process sends all, over kept connections (the proxies' own are kept,
too).

    python benchmarks/route_latency.py [--rate 2000] [--seconds 5] [--rounds 5] [--proxies gantree,haproxy,nginx,caddy]

`gantree-prefix` and `gantree-cache` are `gantree route` with these kinds of affinity.

`added` is the difference to the direct requests of the same round; of it the median over all rounds, in milliseconds.
On two cores sender, proxy and servers share: ratios say more than values. Nothing is installed by this script.
"""

import argparse
import asyncio
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle, repeat
from pathlib import Path
from queue import Queue
from selectors import SelectSelector
from statistics import median
from threading import Thread
from typing import Any

from loading import drive_at, request

HOST = "127.0.0.1"
CONNECTIONS = 64
PATIENCE_S = 15.0
SERVERS = 3
BODY = {"messages": [{"role": "user", "content": "How long is a piece? " * 50}], "model": "llama"}
REQUEST = request("POST", "/v1/chat/completions", BODY)
SERVER_CONFIG = """\
global
  nbthread 1
defaults
  mode http
  timeout client 60s
frontend replicas
{binds}
  http-request return status 200 content-type text/plain string ok
"""
HAPROXY_CONFIG = """\
global
  nbthread 1
defaults
  mode http
  timeout connect 2s
  timeout client 60s
  timeout server 60s
frontend front
  bind {host}:{port}
  default_backend replicas
backend replicas
  balance leastconn
{servers}
"""
NGINX_CONFIG = """\
worker_processes 1;
daemon off;
pid {home}/nginx.pid;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {home}/body; proxy_temp_path {home}/proxy; fastcgi_temp_path {home}/fastcgi;
  uwsgi_temp_path {home}/uwsgi; scgi_temp_path {home}/scgi;
  keepalive_requests 100000000;
  upstream replicas {{ least_conn; {servers} keepalive 128; }}
  server {{
    listen {host}:{port};
    location / {{ proxy_pass http://replicas; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
}}
"""
CADDY_CONFIG = """\
{{
  admin off
  auto_https off
}}
http://{host}:{port} {{
  reverse_proxy {servers} {{
    lb_policy least_conn
  }}
}}
"""


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as found:
        found.bind((HOST, 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def running(command: list[str], port: int, home: Path) -> Iterator[int]:
    """A program while it runs, once it listens."""
    log = home / f"{Path(command[0]).name}-{port}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        until = time.monotonic() + PATIENCE_S
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"{command[0]} does not start:\n{log.read_text()}")
            time.sleep(0.02)
        yield port
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex((HOST, port)) == 0


# ----- servers and proxies


@contextmanager
def servers(home: Path) -> Iterator[list[int]]:
    """Replicas that answer at once."""
    ports = [free_port() for _ in range(SERVERS)]
    binds = "\n".join(f"  bind {HOST}:{port}" for port in ports)
    config = home / "servers.cfg"
    config.write_text(SERVER_CONFIG.format(binds=binds))
    with running([_program("haproxy"), "-f", str(config), "-db"], ports[0], home):
        yield ports


def _program(name: str) -> str:
    return shutil.which(name, path="/usr/sbin:/usr/bin:/usr/local/bin") or name


def gantree(
    home: Path,
    ports: list[int],
    port: int,
    affinity: str = "none",
    events: tuple[int, int] = (0, 0),
) -> list[str]:
    """`gantree route` on a table of these replicas, the caller beside the first, which publishes at two ports."""
    replicas = [
        {
            "replica": f"chat.{n}",
            "host": HOST,
            "port": each,
            "place": ["s0", f"s0/l{n % 2}", f"n{n}"],
            "cache_events_port": events[0] if n == 0 else 0,
            "cache_replay_port": events[1] if n == 0 else 0,
        }
        for n, each in enumerate(ports)
    ]
    table = home / f"table-{affinity}.json"
    service = {"service": "chat", "models": ["llama"], "affinity": affinity, "replicas": replicas}
    table.write_text(json.dumps({"services": [service]}))
    options = ["route", "--table", str(table), "--listen", f"{HOST}:{port}", "--at", "n0"]
    options += ["--tokenizers", str(home)]
    return [sys.executable, "-m", "gantree.cli", *options]


def gantree_prefix(home: Path, ports: list[int], port: int) -> list[str]:
    """The same with `affinity: prefix`."""
    return gantree(home, ports, port, "prefix")


def gantree_cache(home: Path, ports: list[int], port: int) -> list[str]:
    """The same with `affinity: cache`; the first replica says that it holds the whole prompt."""
    from gantree.routing.cache_events.prompts import PromptReader  # noqa: PLC0415 - few have it
    from support.cache_publisher import BLOCK, CachePublisher, stored  # noqa: PLC0415 - the same
    from support.tokenizer import write_tokenizer  # noqa: PLC0415 - the same

    tokens = PromptReader(write_tokenizer(home / "llama")).tokens(BODY) or ()
    blocks = len(tokens) // BLOCK
    opened: Queue[tuple[int, int]] = Queue()

    async def publish() -> None:
        async with CachePublisher() as publisher:
            publisher.lose(stored(list(range(blocks)), None, tokens[: blocks * BLOCK]))
            opened.put((publisher.port, publisher.replay_port))
            await asyncio.Event().wait()

    Thread(target=lambda: asyncio.run(publish()), daemon=True).start()
    return gantree(home, ports, port, "cache", opened.get())


def haproxy(home: Path, ports: list[int], port: int) -> list[str]:
    """HAProxy with least connections and nothing else."""
    rows = "\n".join(f"  server s{n} {HOST}:{each}" for n, each in enumerate(ports))
    config = home / "haproxy.cfg"
    config.write_text(HAPROXY_CONFIG.format(host=HOST, port=port, servers=rows))
    return [_program("haproxy"), "-f", str(config), "-db"]


def nginx(home: Path, ports: list[int], port: int) -> list[str]:
    """Nginx with least connections."""
    rows = " ".join(f"server {HOST}:{each};" for each in ports)
    config = home / "nginx.conf"
    config.write_text(NGINX_CONFIG.format(home=home, host=HOST, port=port, servers=rows))
    return [_program("nginx"), "-c", str(config), "-e", str(home / "nginx.err")]


def caddy(home: Path, ports: list[int], port: int) -> list[str]:
    """Caddy with least connections."""
    config = home / "Caddyfile"
    rows = " ".join(f"{HOST}:{each}" for each in ports)
    config.write_text(CADDY_CONFIG.format(host=HOST, port=port, servers=rows))
    return [_program("caddy"), "run", "--adapter", "caddyfile", "--config", str(config)]


PROXIES: dict[str, Callable[[Path, list[int], int], list[str]]] = {
    "gantree": gantree,
    "gantree-prefix": gantree_prefix,
    "gantree-cache": gantree_cache,
    "haproxy": haproxy,
    "nginx": nginx,
    "caddy": caddy,
}


# ----- the load


def load(ports: list[int], rate: float, seconds: float) -> dict[str, float]:
    """Times of requests to these ports by turns. Raises SystemExit where one fails."""
    turns = cycle(ports)
    told = drive_at(
        lambda: socket.create_connection((HOST, next(turns))),
        repeat(REQUEST, int(rate * seconds)),
        CONNECTIONS,
        rate,
        SelectSelector,
    )
    failed = int(rate * seconds) - sum(each.status == 200 for each in told)
    if failed:
        raise SystemExit(f"{failed} of {int(rate * seconds)} requests failed")
    ordered = sorted(each.took_s for each in told)
    return {f"p{share}_ms": 1e3 * ordered[len(ordered) * share // 100] for share in (50, 99)}


def measure(names: list[str], rate: float, seconds: float, rounds: int) -> dict[str, Any]:
    """Median over rounds, in milliseconds: direct, through each proxy, and what each adds."""
    with ExitStack() as opened:
        home = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="gantree-bench-")))
        direct = opened.enter_context(servers(home))
        targets = {"direct": direct}
        for name in names:
            port = free_port()
            command = PROXIES[name](home, direct, port)
            targets[name] = [opened.enter_context(running(command, port, home))]
        for ports in targets.values():
            load(ports, rate, 1.0)
        told = [_round(targets, turn, rate, seconds) for turn in range(rounds)]
    return {
        "rate_per_s": rate,
        "rounds": rounds,
        "proxies": {name: _row(told, name) for name in targets},
    }


def _round(
    targets: dict[str, list[int]], turn: int, rate: float, seconds: float
) -> dict[str, dict[str, float]]:
    """One round, each time beginning with another one."""
    names = list(targets)
    first = turn % len(names)
    return {name: load(targets[name], rate, seconds) for name in names[first:] + names[:first]}


def _row(told: list[dict[str, dict[str, float]]], name: str) -> dict[str, float]:
    row = {}
    for quantile in ("p50_ms", "p99_ms"):
        row[quantile] = round(median(each[name][quantile] for each in told), 3)
        added = median(each[name][quantile] - each["direct"][quantile] for each in told)
        row[f"added_{quantile}"] = round(added, 3)
    return row


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rate", type=float, default=2000.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each proxy in each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--proxies", default="gantree,haproxy,nginx,caddy")
    told = parser.parse_args()
    names = [
        name
        for name in told.proxies.split(",")
        if name.startswith("gantree") or shutil.which(_program(name))
    ]
    print(json.dumps(measure(names, told.rate, told.seconds, told.rounds), indent=2))


if __name__ == "__main__":
    main()
