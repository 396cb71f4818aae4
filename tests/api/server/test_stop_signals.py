"""Signals that end a daemon, in processes of their own: whenever one comes, it is heard."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, os, signal, sys, uvloop
from gantree.api.server.stop_signals import StopSignals

async def main(number, when):
    stop = asyncio.Event()
    signals = StopSignals(stop.set)
    signals.obey()
    if when == "before":  # the event loop has not heard of it yet
        os.kill(os.getpid(), number)
    with signals.end_at_once():
        if when == "meanwhile":
            os.kill(os.getpid(), number)
        if when != "after":
            await asyncio.sleep(1)
            print("went on")
    if when == "after":
        os.kill(os.getpid(), number)
    await asyncio.wait_for(stop.wait(), 20)
    print("stopped in order")

with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(main(signal.Signals[sys.argv[1]], sys.argv[2]))
"""


def ended(number: signal.Signals, when: str) -> tuple[int, str]:
    """Exit status and output of a process to which such a signal comes."""
    command = [sys.executable, "-c", PROGRAM, number.name, when]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_where_nothing_is_to_be_put_in_order_it_ends_the_process(
    number: signal.Signals, when: str
) -> None:
    assert ended(number, when) == (-number, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_else_it_is_to_stop_in_order(number: signal.Signals) -> None:
    assert ended(number, "after") == (0, "stopped in order\n")


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_an_interrupt_ends_it_as_one_of_the_terminal_does(when: str) -> None:
    code, out = ended(signal.SIGINT, when)
    assert code != 0
    assert out == ""
