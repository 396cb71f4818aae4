"""Ends a measuring program that may hang in a collective: at a deadline, or when its parent is gone."""

import os
import threading
import time

TIMED_OUT = 3
"""Exit status of a program that ended itself."""
LOOK_S = 0.2


def end_with_parent(seconds: float, parent: int) -> None:
    """End this process when so many seconds have passed or its parent is not `parent`, wherever it is stuck."""
    deadline = time.monotonic() + seconds

    def watch() -> None:
        while time.monotonic() < deadline and os.getppid() == parent:
            time.sleep(LOOK_S)
        os._exit(TIMED_OUT)

    threading.Thread(target=watch, daemon=True).start()
