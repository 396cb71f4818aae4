"""Objects that come, or come and go, while pods are measured."""

import asyncio
from itertools import count
from pathlib import Path

from scheduler_perf.server import Server
from scheduler_perf.templates import Json, rendered

NAMESPACE = "churn"


async def churn(server: Server, file: Path, operation: Json) -> None:
    """Until it is cancelled, or in mode `create` until there are so many."""
    pause_s, number = operation["intervalMilliseconds"] / 1000, operation.get("number", 0)
    if operation["mode"] == "recreate":
        await _recreate(server, file, pause_s, number or 1)
    else:
        await _create(server, file, pause_s, number)


async def _create(server: Server, file: Path, pause_s: float, most: int) -> None:
    for index in count(1):
        await asyncio.sleep(pause_s)
        await server.create(rendered(file), NAMESPACE)
        if index == most:
            return


async def _recreate(server: Server, file: Path, pause_s: float, number: int) -> None:
    """So many objects come and go in turn, one change at a time."""
    there: list[str | None] = [None] * number
    for index in count():
        await asyncio.sleep(pause_s)
        content, place = rendered(file), index % number
        name, there[place] = there[place], None
        if name is None:
            there[place] = (await server.create(content, NAMESPACE))["metadata"]["name"]
        else:
            await server.send("DELETE", f"{await server.collection(content, NAMESPACE)}/{name}")
