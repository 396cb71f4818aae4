"""Receivers of notifications for tests: an HTTP server and an SMTP server on 127.0.0.1, with what they were sent."""

import json
import socketserver
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

ARRIVES_WITHIN_S = 120.0


class _Inbox:
    """What has arrived, and a wait for more."""

    def __init__(self) -> None:
        self._arrived: list[Any] = []
        self._news = threading.Condition()

    def put(self, item: Any) -> None:
        with self._news:
            self._arrived.append(item)
            self._news.notify_all()

    def all(self) -> list[Any]:
        with self._news:
            return [*self._arrived]

    def wait(self, is_enough: Callable[[list[Any]], bool]) -> list[Any]:
        """All that has arrived, once it is enough."""
        with self._news:
            arrived = self._news.wait_for(lambda: is_enough(self._arrived), ARRIVES_WITHIN_S)
            assert arrived, f"only these have arrived: {self._arrived}"
            return [*self._arrived]


@dataclass(frozen=True, slots=True)
class Posted:
    """A request: its path, its key and the object in it; status is the answer."""

    path: str
    key: str
    body: dict[str, Any]
    status: int


class WebhookReceiver(_Inbox):
    """Answers each POST with `answer(path)`, a status, and keeps it. port 0: any."""

    def __init__(self, port: int = 0, answer: Callable[[str], int] = lambda path: 204) -> None:
        super().__init__()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = answer(self.path)
                key = self.headers["Idempotency-Key"]
                receiver.put(Posted(self.path, key, json.loads(body), status))
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.host = f"127.0.0.1:{self.port}"

    def url(self, path: str = "/hook") -> str:
        return f"http://{self.host}{path}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


@dataclass(slots=True)
class Mailed:
    """A mail as the server was given it."""

    sender: str = ""
    recipients: list[str] = field(default_factory=list)
    message: Message = field(default_factory=Message)


class MailReceiver(_Inbox):
    """The commands of SMTP that a client needs. refuse is the reply to RCPT, or ""."""

    def __init__(self, refuse: str = "") -> None:
        super().__init__()
        receiver = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self._say("220 test")
                mail = Mailed()
                for line in self.rfile:
                    words = line.decode().strip()
                    verb = words[:4].upper()
                    if verb == "MAIL":
                        mail = Mailed(words.partition(":")[2].split()[0].strip("<>"))
                        self._say("250 ok")
                    elif verb == "RCPT":
                        mail.recipients.append(words.partition(":")[2].split()[0].strip("<>"))
                        self._say(refuse or "250 ok")
                    elif verb == "DATA":
                        self._say("354 go on")
                        mail.message = message_from_bytes(self._data())
                        self._say("250 ok")
                        receiver.put(mail)
                    elif verb == "QUIT":
                        self._say("221 bye")
                        return
                    else:
                        self._say("250 ok")

            def _say(self, line: str) -> None:
                self.wfile.write(line.encode() + b"\r\n")

            def _data(self) -> bytes:
                lines = iter(self.rfile.readline, b".\r\n")
                return b"".join(line.removeprefix(b".") for line in lines)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.host = f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
