"""The server as a process of its own: `python -m support.kubernetes --port 0` prints where it listens.

With --cluster pods that are bound run too. It ends on SIGINT, on SIGTERM, and, with --until-eof, when its standard
input ends, so that it does not outlive the test that started it.
"""

import argparse
import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack

import uvloop

from support.kubernetes.client import Client
from support.kubernetes.controllers.controllers import Controllers
from support.kubernetes.controllers.kubelet import Kubelet
from support.kubernetes.rules.resources import GANG_VERSIONS
from support.kubernetes.server.server import ApiServer, Settings


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m support.kubernetes", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--gang-api", choices=[*GANG_VERSIONS, "none"], default="v1alpha2")
    parser.add_argument("--cluster", action="store_true", help="with controllers and a kubelet")
    parser.add_argument("--until-eof", action="store_true")
    return parser.parse_args()


def _end_at_eof(ended: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4_096):
        ended.set()


async def _serve(options: argparse.Namespace) -> None:
    """Until told to end."""
    gang_api = None if options.gang_api == "none" else options.gang_api
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    if options.until_eof:
        loop.add_reader(sys.stdin.fileno(), _end_at_eof, ended)
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(ApiServer(Settings(gang_api), options.port))
        if options.cluster:
            client = await stack.enter_async_context(Client(server.url))
            await stack.enter_async_context(Controllers(client, gang_api))
            await stack.enter_async_context(Kubelet(client))
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        await ended.wait()


if __name__ == "__main__":
    uvloop.run(_serve(_options()))
