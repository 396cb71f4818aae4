"""Threads that outlive the module that started them: the tests that come after it pay for them, and may be disturbed.

A server goes into the block of support.serving, an executor of concurrent.futures into one of its own, and a thread is
joined. Threads that wait for nothing but their process are daemons, and may stay.
"""

import threading
from collections.abc import Collection
from socketserver import BaseServer

ENDS_WITHIN_S = 60.0
"""On a busy machine; who has ended needs none of it."""


def left_threads(before: Collection[threading.Thread]) -> list[str]:
    """The names of threads that run, must end and were not among those before. Waits for those that are about to."""
    since = [each for each in threading.enumerate() if each not in before and _must_end(each)]
    for each in since:
        each.join(ENDS_WITHIN_S)
    return [each.name for each in since if each.is_alive()]


def _must_end(thread: threading.Thread) -> bool:
    """Whether it holds up the end of its process, or serves: the name of a thread ends with its function's."""
    return not thread.daemon or thread.name.endswith(f"({BaseServer.serve_forever.__name__})")
