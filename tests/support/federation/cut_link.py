"""A TCP proxy between a front and a cluster that can be cut: nothing gets through, and nobody is told."""

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

CHUNK_BYTES = 1 << 16


class CutLink:
    """Forwards connections to port of this machine until `cut`, and again after `mend`."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._is_cut = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self) -> None:
        """Connections break, and new ones are never answered."""
        self._is_cut.set()
        for each in list(self._open):
            _shut(each)

    def mend(self) -> None:
        """New connections get through again."""
        self._is_cut.clear()
        for each in list(self._open):
            _shut(each)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _shut(self._listener)
        self.cut()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._open.add(near)
            if self._is_cut.is_set():
                continue  # accepted, and silent
            try:
                far = socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                _shut(near)
                continue
            self._open.add(far)
            for source, target in ((near, far), (far, near)):
                thread = threading.Thread(target=self._pump, args=(source, target))
                self._threads.append(thread)
                thread.start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                if self._is_cut.is_set():
                    break
                target.sendall(data)
        for each in (source, target):
            _shut(each)


def _shut(each: socket.socket) -> None:
    with suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
