"""The process of the front: it holds its state directory, answers on a socket and over TCP, and drives the front."""

import asyncio
import logging
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import uvloop
from fastapi import APIRouter, Depends, FastAPI

from gantree import __version__
from gantree.api.access.access import Access, token_of
from gantree.api.access.permissions import permitted
from gantree.api.client.async_client import AsyncClient
from gantree.api.http import unix_socket
from gantree.api.http.connections import socket_limits, tcp_limits
from gantree.api.http.security_middleware import SecurityMiddleware
from gantree.api.observability import log_format
from gantree.api.observability.log_format import Format, Level
from gantree.api.server.error_handlers import add_error_handlers
from gantree.api.server.http_server import Server
from gantree.api.server.listeners import Listen, bind, url_of
from gantree.api.server.stop_signals import StopSignals
from gantree.control.metrics.metrics import Metrics
from gantree.executors.local.launch.open_files import raise_limit
from gantree.federation.api.routes import FrontBackend, metrics_router, router
from gantree.federation.api.tables import Tables
from gantree.federation.driver import Driver, now_s
from gantree.federation.front import Front
from gantree.federation.jobs.store import FILE, Store
from gantree.journal.state_directory import StateDirectory
from gantree.model.federation import Federation
from gantree.text.words import plural

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FrontSettings:
    """listen is an address of TCP to answer at beside the socket of the state directory."""

    federation: Federation
    state_dir: Path
    listen: Listen | None = None
    log_level: Level = Level.WARNING
    log_format: Format = Format.AUTO


def run_front(settings: FrontSettings) -> None:
    """Run until stopped. Prints one line when requests are answered.

    Raises JournalError for a state directory that is in use, and BadInput for an address that cannot be used.
    """
    log_format.set_up(settings.log_level, settings.log_format)
    with ExitStack() as opened:
        held = StateDirectory(settings.state_dir)
        opened.callback(held.close)
        store = Store(settings.state_dir / FILE)
        opened.callback(store.close)
        store.prune()
        runner = opened.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        runner.run(_run(settings, store, opened))


async def _run(settings: FrontSettings, store: Store, opened: ExitStack) -> None:
    federation = settings.federation
    stop = asyncio.Event()
    StopSignals(stop.set).obey()
    front = Front(federation, store, now_s(), time.time)
    clients = {each.name: AsyncClient(each.url, each.token) for each in federation.clusters}
    driver, tables = Driver(front, clients), Tables(front, clients, int(time.time()))
    backend = FrontBackend(driver, clients, tables, time.time())
    servers, addresses = _servers(settings, _app(backend, settings), opened)
    tasks = [server.serving() for server in servers]
    tasks += [asyncio.create_task(each) for each in (driver.run(), tables.run())]
    stopping = asyncio.create_task(_wait(stop))
    while not all(server.started for server in servers):
        await asyncio.sleep(0.001)
    known = plural(len(federation.clusters), "cluster")
    _say(
        f"gantree {__version__} ready: federation {federation.name}, {known}; {', '.join(addresses)}"
    )
    done, _ = await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    await _end(servers, tasks, clients)
    stopping.cancel()
    for task in done:
        task.result()  # what broke ends the process with its error
    _say("stopped; jobs go on in their clusters until their leases end")


async def _wait(stop: asyncio.Event) -> None:
    await stop.wait()


async def _end(
    servers: Sequence[Server],
    tasks: Sequence["asyncio.Task[None]"],
    clients: dict[str, AsyncClient],
) -> None:
    for server in servers:
        server.should_exit = True
    for task in tasks[len(servers) :]:
        task.cancel()
    await asyncio.wait(tasks)
    for client in clients.values():
        await client.close()


def _servers(
    settings: FrontSettings, app: FastAPI, opened: ExitStack
) -> tuple[list[Server], list[str]]:
    """The servers, not started yet, and where they answer."""
    open_files, metrics = raise_limit(), Metrics()
    listener = opened.enter_context(unix_socket.listen(settings.state_dir))
    opened.callback(
        unix_socket.remove_own, settings.state_dir, unix_socket.inode(settings.state_dir)
    )
    limits = socket_limits(open_files.now, for_all=False)
    servers = [Server(app, listener, None, limits, metrics)]
    addresses = [f"socket {settings.state_dir / unix_socket.FILE}"]
    if settings.listen is not None:
        tcp = opened.enter_context(bind(settings.listen))
        most, head_s = settings.listen.most_connections, settings.listen.header_timeout_s
        limits = tcp_limits(open_files.now, most, head_s)
        servers.append(Server(app, tcp, settings.listen, limits, metrics))
        addresses.append(url_of(settings.listen, tcp))
    return servers, addresses


def _app(backend: FrontBackend, settings: FrontSettings) -> FastAPI:
    """The application: whoever opens the socket or has the token may do everything."""
    app = FastAPI(
        title="gantree federation",
        version=__version__,
        openapi_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    add_error_handlers(app)
    app.add_middleware(SecurityMiddleware)
    token = None if settings.listen is None else token_of(settings.listen.token_file)
    app.state.access, app.state.audit = Access(token), None
    app.include_router(_probes())
    for routes in (router(backend), metrics_router(backend)):
        app.include_router(routes, dependencies=[Depends(permitted)])
    return app


def _probes() -> APIRouter:
    routes = APIRouter()

    @routes.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    return routes


def _say(line: str) -> None:
    with suppress(OSError):  # nobody reads it any more
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
