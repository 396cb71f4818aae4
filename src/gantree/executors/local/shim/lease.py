"""Whether the lease still holds that the processes of a member are bound to. Standard library only, as the shim.

The daemon keeps the lease of a federation in a file of the state directory, and writes it anew with each renewal
(`control.federation`). The shim reads it itself, so that processes end with the lease while no daemon runs. A lease of
another number is another lease: the front may have started the job elsewhere in between. What cannot be read is not
renewed.
"""

import time
from collections.abc import Callable
from typing import Any

FILE = "federation-lease.json"


def boottime_s() -> float:
    """Seconds on a clock that cannot be set, and that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """The lease of one member, from its start on. path is its file, None for a member without a lease."""

    def __init__(self, path: str | None, read_json: Callable[[str], Any], boot: str) -> None:
        self._path, self._read_json, self._boot = path, read_json, boot
        self._number: int | None = None
        self._until_s = float("-inf")

    def stop(self) -> dict[str, float] | None:
        """What `stop.json` would hold once the lease is over: all are killed at once. None while it holds."""
        if self._path is None:
            return None
        self._read(self._path)
        return {"kill_at_s": 0.0} if boottime_s() >= self._until_s else None

    def _read(self, path: str) -> None:
        try:
            lease = self._read_json(path)
        except OSError:
            return
        if lease is None or lease["until"]["boot"] != self._boot:
            return
        if self._number in (None, lease["number"]):
            self._number, self._until_s = lease["number"], lease["until"]["at_s"]
