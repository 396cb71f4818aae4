"""A server of the standard library on a thread of its own, from the beginning of a block to its end.

with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
    url = f"http://127.0.0.1:{server.server_address[1]}"
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseServer
from typing import TypeVar

STOPS_WITHIN_S = 0.05
"""A server looks so often whether it is to stop; socketserver's own 0.5 s is what each test would wait at its end."""
ServerT = TypeVar("ServerT", bound=BaseServer)


@contextmanager
def serving(server: ServerT) -> Iterator[ServerT]:
    """Answer requests until the block ends; afterwards neither its socket nor its thread is left."""
    thread = threading.Thread(target=server.serve_forever, args=(STOPS_WITHIN_S,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
