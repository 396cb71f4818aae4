"""The first moments of the program: how it is started, and Ctrl-C before it has read anything."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gantree import __version__

SOURCES = Path(__file__).parents[2] / "src"
OWN = ("gantree", "gantree.cli", "gantree.cli.start")
INTERRUPTED_AT_THE_FIRST_IMPORT = f"""
import os, sys, _signal
class Finder:
    def find_spec(name, path=None, target=None):
        if name not in {OWN!r}:
            os.kill(os.getpid(), _signal.SIGINT)
sys.path.insert(0, {str(SOURCES)!r})
sys.meta_path.insert(0, Finder)
from gantree.cli.start import start
start()
"""


@pytest.mark.parametrize("module", ["gantree", "gantree.cli"])
def test_the_package_runs_as_the_program(module: str) -> None:
    words = [sys.executable, "-m", module, "--version"]
    told = subprocess.run(words, capture_output=True, text=True, check=True)
    assert told.stdout == f"gantree {__version__}\n"


def test_an_interrupt_at_the_first_import_ends_it_without_a_traceback() -> None:
    words = [sys.executable, "-I", "-S", "-c", INTERRUPTED_AT_THE_FIRST_IMPORT]
    told = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (-signal.SIGINT, "")
