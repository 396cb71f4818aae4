"""The way to the daemon for the commands that need one."""

from pathlib import Path

from gantree.api.client import Client
from gantree.cli.options import state_dir


def client(chosen_state_dir: Path | None) -> Client:
    """A client for the daemon of the state directory."""
    return Client(state_dir(chosen_state_dir))
