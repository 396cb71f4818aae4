"""Runs the steps that repair nodes, while a daemon leads (`--repair-hooks`).

Each step is on record before its command starts, so after `kill -9` it is known that it ran. A step that the daemon
left unfinished is run again only if the file says that it is repeatable; else the repair is interrupted, and says so.
Commands run without a shell, in a session of their own; what they print is in `repairs/NODE.log` of the state folder.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from gantree.control.engine.controller import Controller
from gantree.control.engine.loop import Loop
from gantree.control.nodes.repairs import (
    Due,
    command_of,
    due_repairs,
    fault_of,
    gpus_in,
    interrupted,
    running_repairs,
)
from gantree.executors.local.launch.environment import inherited
from gantree.model.errors import GantreeError
from gantree.model.repairs import RepairChain, RepairState, RepairStep

LOOK_EVERY_S = 0.5
STOP_WITHIN_S = 5.0
"""Between SIGTERM and SIGKILL for a command that takes too long, or is stopped."""

log = logging.getLogger(__name__)


async def repair_nodes(
    chains: Sequence[RepairChain], loop: Loop, controller: Controller, state_dir: Path
) -> None:
    """Repair nodes until cancelled; then the commands are stopped, and the repairs stay on record as running."""
    if not chains:
        return
    runner = _Runner(chains, loop, controller, state_dir / "repairs")
    try:
        await runner.run()
    finally:
        await runner.close()


class _Runner:
    """The repairs that this daemon runs, by node."""

    def __init__(
        self, chains: Sequence[RepairChain], loop: Loop, controller: Controller, logs: Path
    ) -> None:
        self._chains, self._loop, self._controller, self._logs = chains, loop, controller, logs
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._commands = controller.repairs

    async def run(self) -> None:
        self._logs.mkdir(mode=0o700, exist_ok=True)
        self._commands.is_on = True
        for due in await self._loop.call(self._left_behind):
            self._begin(due)
        while True:
            try:
                await self._round()
            except (
                GantreeError,
                OSError,
            ):  # a journal that does not answer now, as for the controller itself
                log.exception("repairs were not looked after, trying again")
            await asyncio.sleep(LOOK_EVERY_S)

    async def _round(self) -> None:
        for due in await self._loop.call(self._due):
            self._begin(due)
        for node, reason in await self._loop.call(self._to_stop):
            await self._stop(node, reason)

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _left_behind(self) -> list[Due]:
        """Repairs of the last daemon to go on with; those that must not are put down as interrupted."""
        ledger, going_on = self._controller.ledger, list[Due]()
        for node, due in list(interrupted(ledger, self._chains)):
            repair = ledger.site.repairs[node]
            name = repair.steps[repair.step]
            if due is not None:
                log.warning("node %s: %s is run %s", node, name, due.reason)
                going_on.append(due)
                continue
            why = f"the daemon ended while {name} ran; it is not run again by itself"
            self._commands.note(
                node, RepairState.INTERRUPTED, repair.sign, repair.steps, repair.step, why
            )
        return going_on

    def _due(self) -> list[Due]:
        """Repairs to begin, put down as running from now on, so that they count at once."""
        asked = self._commands.asked
        found = list(due_repairs(self._controller.ledger, self._chains, asked, self._tasks))
        for each in found:
            asked.pop(each.node, None)
            self._note(each, each.first)
        return found

    def _to_stop(self) -> list[tuple[str, str]]:
        ledger, asked = self._controller.ledger, self._commands.to_stop
        found = [(node, "stopped by an operator") for node in asked]
        asked.clear()
        running = running_repairs(ledger)
        free = (node for node in self._tasks if node in running and not fault_of(ledger, node))
        return [*found, *((node, "its faults were overruled or are over") for node in free)]

    def _note(
        self, due: Due, step: int, state: RepairState = RepairState.RUNNING, reason: str = ""
    ) -> None:
        names = tuple(each.name for each in due.steps)
        self._commands.note(due.node, state, due.sign, names, step, reason)
        self._loop.wake()

    async def _put_down(
        self, due: Due, step: int, state: RepairState = RepairState.RUNNING, reason: str = ""
    ) -> None:
        await self._loop.call(lambda: self._note(due, step, state, reason))

    def _begin(self, due: Due) -> None:
        task = asyncio.create_task(self._guarded(due))
        self._tasks[due.node] = task
        task.add_done_callback(lambda _: self._tasks.pop(due.node, None))

    async def _stop(self, node: str, reason: str) -> None:
        task = self._tasks.get(node)
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

        def put_down() -> None:
            repair = running_repairs(self._controller.ledger).get(node)
            if repair is not None:
                steps, step = repair.steps, repair.step
                self._commands.note(node, RepairState.STOPPED, repair.sign, steps, step, reason)
                self._loop.wake()

        await self._loop.call(put_down)

    async def _guarded(self, due: Due) -> None:
        try:
            await self._repair(due)
        except (GantreeError, OSError):
            log.exception(
                "node %s: the repair stands still; gantree repair --stop ends it", due.node
            )

    async def _repair(self, due: Due) -> None:
        """Run all steps, each as often as it may be tried."""
        for number in range(due.first, len(due.steps)):
            step = due.steps[number]
            problem, again = "", due.reason if number == due.first else ""
            for attempt in range(1, step.retries + 2):
                if attempt > 1:
                    again = f"try {attempt} of {step.retries + 1}: {problem}"
                await self._put_down(due, number, reason=again)
                problem = await self._tried(due, step, attempt)
                if not problem:
                    break
            if problem:
                log.error("node %s: the repair failed: %s: %s", due.node, step.name, problem)
                await self._put_down(due, number, RepairState.FAILED, f"{step.name}: {problem}")
                return
        last = len(due.steps) - 1
        await self._put_down(due, last, RepairState.SUCCEEDED)

    async def _tried(self, due: Due, step: RepairStep, attempt: int) -> str:
        """Run a step's command once; what went wrong, "" for nothing."""
        words = command_of(step, due.node, due.sign)
        told = {"NODE": due.node, "GPU": gpus_in(due.sign), "SIGN": due.sign, "STEP": step.name}
        env = {f"GANTREE_{name}": value for name, value in (told | {"TRY": str(attempt)}).items()}
        log_file = self._logs / f"{quote(due.node, safe='')}.log"
        try:
            with log_file.open("ab") as output:
                process = await asyncio.create_subprocess_exec(
                    *words,
                    stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output,
                    env=inherited(os.environ) | env, cwd="/", start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            return f"{error.filename or words[0]}: {error.strerror}"
        try:
            async with asyncio.timeout(step.timeout_s):
                code = await process.wait()
        except TimeoutError:
            return f"took longer than {step.timeout_s:g} s"
        finally:
            await _end(process)
        return f"exit code {code}" if code else ""


async def _end(process: asyncio.subprocess.Process) -> None:
    """Stop what is left of a command and of its children."""
    if process.returncode is not None:
        return
    for number, patience_s in ((signal.SIGTERM, STOP_WITHIN_S), (signal.SIGKILL, STOP_WITHIN_S)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await process.wait()
                return
