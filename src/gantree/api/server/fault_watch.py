"""Faults of GPUs as they happen, while a daemon leads: from a kernel log, and from NVML's events on this machine.

A line of the log that names a host is about the node of that name (its first label, if the cluster has that alone);
one that names none is about this machine. What cannot be read is logged once and tried again; nobody waits for it.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from socket import gethostname

from gantree.control.engine.controller import Controller
from gantree.control.engine.loop import Loop
from gantree.core.ledger.ledger import Ledger
from gantree.model.errors import GantreeError, Unreachable
from gantree.telemetry.kernel_log import MARKS, KernelFault, address_of, fault_in
from gantree.telemetry.log_tail import LogTail
from gantree.telemetry.nvml.driver import bus_ids
from gantree.telemetry.nvml.events import Xid, XidEvents
from gantree.topology.hardware.xids import XIDS

LOOK_EVERY_S = 0.25
AGAIN_AFTER_S = 15.0
LISTEN_S = 1.0
KERNEL_LOG, NVML = "kernel-log", "nvml"
"""Sources of reports."""
KMSG = Path("/dev/kmsg")

log = logging.getLogger(__name__)


async def watch_kernel_log(path: Path | None, loop: Loop, controller: Controller) -> None:
    """Report faults in a log until cancelled. None: the kernel's own, if a node is this machine and it may be read."""
    if path is None and await loop.call(lambda: own_node(controller.ledger)) is None:
        return
    gpu_of_address = await asyncio.to_thread(_own_addresses)
    is_silent = False
    while True:
        try:
            await _follow(LogTail(path or KMSG), gpu_of_address, loop, controller)
        except OSError as error:
            if not is_silent:
                tell = log.info if path is None else log.warning
                tell("the kernel log %s is not read: %s", path or KMSG, error.strerror)
            is_silent = True
        await asyncio.sleep(AGAIN_AFTER_S)


async def _follow(
    tail: LogTail, gpu_of_address: dict[str, int], loop: Loop, controller: Controller
) -> None:
    """Until cancelled. Raises OSError."""
    try:
        while True:
            found = _faults(tail.lines())
            if found:
                await loop.call(partial(_report, found, gpu_of_address, controller))
                loop.wake()
            await asyncio.sleep(LOOK_EVERY_S)
    finally:
        tail.close()


def _faults(lines: Iterable[str]) -> tuple[KernelFault, ...]:
    """The faults of lines, each once: a driver may repeat one for every channel."""
    found = (fault_in(line) for line in lines if any(mark in line for mark in MARKS))
    return tuple(dict.fromkeys(fault for fault in found if fault is not None))


def _report(
    faults: Iterable[KernelFault], gpu_of_address: dict[str, int], controller: Controller
) -> None:
    own = gethostname()
    for fault in faults:
        node = node_named(controller.ledger, fault.host or own)
        if node is None:
            continue
        gpu = (
            gpu_of_address.get(fault.address)
            if node == node_named(controller.ledger, own)
            else None
        )
        _report_one(controller, node, gpu, xid=fault.xid, source=KERNEL_LOG, address=fault.address)


def _own_addresses() -> dict[str, int]:
    """The GPUs of this machine by PCI address; none without a driver. Once one is lost, NVML may not start any more."""
    try:
        return {address_of(bus_id): gpu for gpu, bus_id in enumerate(bus_ids())}
    except Unreachable:
        return {}


async def watch_nvml(
    loop: Loop, controller: Controller, listen: Callable[[], XidEvents] = XidEvents
) -> None:
    """Report XIDs of this machine's GPUs until cancelled; ends where no node is this machine, or without a driver.

    While a fault is on record nobody listens, so that the GPU can be reset.
    """
    node = await loop.call(lambda: own_node(controller.ledger))
    while node is not None:
        if not await loop.call(lambda: _has_fault(controller.ledger, node)):
            stop = threading.Event()
            try:
                found = await asyncio.to_thread(_next_xids, listen, stop)
            except Unreachable as error:
                log.info("NVML's events are not known: %s", error)
                return
            finally:
                stop.set()
            await loop.call(partial(_report_xids, node, found, controller))
            loop.wake()
        await asyncio.sleep(AGAIN_AFTER_S)


def _next_xids(listen: Callable[[], XidEvents], stop: threading.Event) -> list[Xid]:
    """The next XIDs that call for a reset; none once it is to stop. Raises Unreachable."""
    events, found = listen(), list[Xid]()
    try:
        while not found and not stop.is_set():
            found = [each for each in events.wait(LISTEN_S) if each.xid in XIDS]
        return found
    finally:
        events.close()


def _report_xids(node: str, found: Iterable[Xid], controller: Controller) -> None:
    for each in found:
        _report_one(controller, node, each.gpu, xid=each.xid, source=NVML)


def _report_one(
    controller: Controller, node: str, gpu: int | None, *, xid: int, source: str, address: str = ""
) -> None:
    """Report a fault; what cannot be one of this node (a GPU that the cluster file does not have) is logged."""
    try:
        controller.faults.report(node, gpu=gpu, xid=xid, source=source, address=address)
    except GantreeError as error:
        log.error("XID %d of node %s, as %s has it, is not on record: %s", xid, node, source, error)


def _has_fault(ledger: Ledger, node: str) -> bool:
    illness = ledger.site.unwell.get(node, {}).get(NVML)
    return illness is not None and not illness.forgiven


def node_named(ledger: Ledger, host: str) -> str | None:
    """The node of a host's name, or of the first label of it; None where there is none."""
    names = {} if ledger.fabric is None else ledger.fabric.index_of_node
    return next((name for name in (host, host.partition(".")[0]) if name in names), None)


def own_node(ledger: Ledger) -> str | None:
    """The node with GPUs that is this machine; None where there is none."""
    node, fabric = node_named(ledger, gethostname()), ledger.fabric
    if node is None or fabric is None:
        return None
    return node if fabric.machine_of_node(fabric.index_of_node[node]).gpus else None
