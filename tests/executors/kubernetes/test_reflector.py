"""Watches that are opened again: at once where one ended by its time or for silence, later after an error."""

import asyncio

import pytest

from gantree.executors.kubernetes.apiserver import client as client_module
from gantree.executors.kubernetes.apiserver import reflector as reflector_module
from gantree.executors.kubernetes.apiserver.client import Client, Resource
from gantree.executors.kubernetes.apiserver.connection import Connection
from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.apiserver.reflector import Reflector
from support.kubernetes.samples import pod
from support.kubernetes.server.thread import Api, ServerThread

PODS = "/api/v1/namespaces/default/pods"
WITHIN_S = 300.0


@pytest.mark.parametrize(("silent_s", "watch_s"), [(1.2, 300), (300.0, 1)])
def test_a_watch_that_is_idle_is_opened_again_without_a_pause(
    silent_s: float, watch_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody changes a pod: such a watch is told nothing, not even a bookmark."""
    monkeypatch.setattr(client_module, "SILENT_S", silent_s)
    monkeypatch.setattr(client_module, "WATCH_S", watch_s)
    monkeypatch.setattr(reflector_module, "FIRST_PAUSE_S", 10 * WITHIN_S)
    names: list[str] = []

    async def follow(running: ServerThread, api: Api) -> Reflector[Pod]:
        client = Client(Connection(running.url))
        reflector = Reflector(
            client, Resource("api/v1/pods", Pod), lambda key, before, after: names.append(key[1])
        )
        task = asyncio.ensure_future(reflector.run())
        async with asyncio.timeout(WITHIN_S):
            while running.server.asked["", "watch", "", "pods"] < 3:
                await asyncio.sleep(0.02)
            await asyncio.to_thread(api.post, PODS, pod("late"))
            while not names:
                await asyncio.sleep(0.02)
        task.cancel()
        await client.close()
        return reflector

    with ServerThread() as running, Api(running.url) as api:
        reflector = asyncio.run(follow(running, api))
    assert (names, reflector.lists, reflector.trouble) == (["late"], 1, None)
