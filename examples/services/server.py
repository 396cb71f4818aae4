#!/usr/bin/env python3
"""A stand-in for a model server: the paths and metrics of vLLM, and no model.

A request takes a fixed time, of which the first token takes a quarter, and the words of the answer mean nothing. At
most --concurrency requests are worked on at a time; the others wait, as in an engine with so many slots. With it
readiness, drains, routing and autoscaling can be tried on a machine without a GPU.

    python3 server.py --model tiny --seconds 0.2 --tokens 16 --concurrency 8 --load 1.0

It listens at PORT. After SIGTERM it finishes the requests that it has, then ends.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType
from typing import Any

BOUNDS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
MOST_BYTES = 16 * 1024 * 1024
MOST_TOKENS = 4096


class Histogram:
    """A histogram in Prometheus' text."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Count one observation."""
        place = next((at for at, bound in enumerate(BOUNDS_S) if seconds <= bound), len(BOUNDS_S))
        self.counts[place] += 1
        self.total += seconds

    def lines(self, label: str) -> Iterator[str]:
        """Its lines; label is that of the model."""
        yield f"# TYPE {self.name} histogram"
        count = 0
        for bound, here in zip((*BOUNDS_S, "+Inf"), self.counts, strict=True):
            count += here
            yield f'{self.name}_bucket{{{label},le="{bound}"}} {count}'
        yield f"{self.name}_sum{{{label}}} {self.total}"
        yield f"{self.name}_count{{{label}}} {count}"


class Engine:
    """Slots for requests, and what is counted of them."""

    def __init__(self, model: str, seconds: float, tokens: int, slots: int, load_s: float) -> None:
        self.model, self.seconds, self.tokens = model, seconds, tokens
        self.ready_at = time.monotonic() + load_s
        self.running = self.waiting = self.open = 0
        self.done = self.prompt_tokens = self.written_tokens = 0
        self.first_token = Histogram("vllm:time_to_first_token_seconds")
        self.between = Histogram("vllm:time_per_output_token_seconds")
        self.whole = Histogram("vllm:e2e_request_latency_seconds")
        self._slots = threading.Semaphore(slots)
        self._lock = threading.Lock()

    @property
    def is_ready(self) -> bool:
        """Whether the model would be in memory by now."""
        return time.monotonic() >= self.ready_at

    @contextmanager
    def counted(self, name: str) -> Iterator[None]:
        """Count up while something goes on: "running", "waiting" or "open"."""
        with self._lock:
            setattr(self, name, getattr(self, name) + 1)
        try:
            yield
        finally:
            with self._lock:
                setattr(self, name, getattr(self, name) - 1)

    def answer(self, prompt: str, tokens: int) -> Iterator[str]:
        """Yield the words of an answer, each when it would be there."""
        begun = time.monotonic()
        with self.counted("waiting"):
            self._slots.acquire()
        try:
            with self.counted("running"):
                yield from self._words(begun, tokens)
        finally:
            self._slots.release()
        with self._lock:
            self.done += 1
            self.prompt_tokens += len(prompt.split())
            self.written_tokens += tokens
            self.whole.observe(time.monotonic() - begun)

    def _words(self, begun: float, tokens: int) -> Iterator[str]:
        first_s = self.seconds / 4
        between_s = (self.seconds - first_s) / max(tokens - 1, 1)
        time.sleep(first_s if tokens > 1 else self.seconds)
        with self._lock:
            self.first_token.observe(time.monotonic() - begun)
        yield "word0"
        for number in range(1, tokens):
            time.sleep(between_s)
            with self._lock:
                self.between.observe(between_s)
            yield f" word{number}"

    def metrics(self) -> str:
        """What Prometheus reads."""
        label = f'model_name="{self.model}"'
        with self._lock:
            figures = (
                ("vllm:num_requests_running", "gauge", self.running),
                ("vllm:num_requests_waiting", "gauge", self.waiting),
                ("vllm:request_success_total", "counter", self.done),
                ("vllm:prompt_tokens_total", "counter", self.prompt_tokens),
                ("vllm:generation_tokens_total", "counter", self.written_tokens),
            )
            lines = [
                line
                for name, kind, value in figures
                for line in (f"# TYPE {name} {kind}", f"{name}{{{label}}} {value}")
            ]
            for histogram in (self.first_token, self.between, self.whole):
                lines += histogram.lines(label)
        return "\n".join(lines) + "\n"


class Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: "Server"

    def do_GET(self) -> None:
        """Health, metrics, models."""
        engine = self.server.engine
        match self.path.partition("?")[0]:
            case "/health":
                self._send(200 if engine.is_ready else 503, "text/plain", b"")
            case "/metrics":
                self._send(200, "text/plain; version=0.0.4", engine.metrics().encode())
            case "/v1/models":
                models = [{"id": engine.model, "object": "model", "owned_by": "nobody"}]
                self._json(200, {"object": "list", "data": models})
            case _:
                self._error(404, "no such path")

    def do_POST(self) -> None:
        """Completions."""
        with self.server.engine.counted("open"):
            self._complete()

    def _complete(self) -> None:
        is_chat = self.path == "/v1/chat/completions"
        asked = self._asked()
        if asked is None:
            return
        if not is_chat and self.path != "/v1/completions":
            self._error(404, "no such path")
        elif not self.server.engine.is_ready:
            self._error(503, "the model is being loaded")
        elif asked.get("stream") is True:
            self._stream(asked, is_chat=is_chat)
        else:
            self._whole(asked, is_chat=is_chat)

    def _asked(self) -> dict[str, object] | None:
        """The body of a request; None after an error was sent."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MOST_BYTES:
            self.close_connection = True
            self._error(411, f"Content-Length is required, at most {MOST_BYTES}")
            return None
        try:
            asked = json.loads(self.rfile.read(int(length)))
        except ValueError:
            asked = None
        if not isinstance(asked, dict):
            self._error(400, "the body is no JSON object")
            return None
        return asked

    def _answer(self, asked: dict[str, object]) -> Iterator[str]:
        engine = self.server.engine
        most = asked.get("max_tokens", asked.get("max_completion_tokens", engine.tokens))
        tokens = most if isinstance(most, int) and 1 <= most <= MOST_TOKENS else engine.tokens
        prompt = asked.get("prompt") or asked.get("messages") or ""
        return engine.answer(json.dumps(prompt), tokens)

    def _whole(self, asked: dict[str, object], *, is_chat: bool) -> None:
        words = list(self._answer(asked))
        text = "".join(words)
        choice: dict[str, object] = {"index": 0, "finish_reason": "length"}
        choice |= {"message": {"role": "assistant", "content": text}} if is_chat else {"text": text}
        usage = {"prompt_tokens": 0, "completion_tokens": len(words), "total_tokens": len(words)}
        kind = "chat.completion" if is_chat else "text_completion"
        self._json(200, {**self._head(kind), "choices": [choice], "usage": usage})

    def _stream(self, asked: dict[str, object], *, is_chat: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        head = self._head("chat.completion.chunk" if is_chat else "text_completion")
        for word in self._answer(asked):
            part = {"delta": {"content": word}} if is_chat else {"text": word}
            choice = {"index": 0, "finish_reason": None, **part}
            self._chunk(f"data: {json.dumps({**head, 'choices': [choice]})}\n\n".encode())
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _head(self, kind: str) -> dict[str, object]:
        return {
            "id": f"cmpl-{time.time_ns()}",
            "object": kind,
            "created": int(time.time()),
            "model": self.server.engine.model,
            "system_fingerprint": self.server.name,
        }

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")

    def _json(self, status: int, value: dict[str, object]) -> None:
        self._send(status, "application/json", json.dumps(value).encode())

    def _error(self, status: int, message: str) -> None:
        self._json(status, {"error": {"message": message, "code": status}})

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nothing: a line a request would fill the log."""


class Server(ThreadingHTTPServer):
    """A thread for each connection. name is told as `system_fingerprint`: which replica answered."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, host: str, port: int, engine: Engine, name: str) -> None:
        super().__init__((host, port), Handler)
        self.engine, self.name = engine, name

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error; anything else is told."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def main() -> None:
    """Listen until SIGTERM."""
    parser = argparse.ArgumentParser(description="A stand-in for a model server.")
    parser.add_argument("--host", default="", help="address to listen at, without it all")
    parser.add_argument("--port", type=int, default=int(os.environ.get("PORT", "8000")))
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--seconds", type=float, default=0.2, help="of a request")
    parser.add_argument("--tokens", type=int, default=16, help="of an answer")
    parser.add_argument("--concurrency", type=int, default=8, help="requests at a time")
    parser.add_argument("--load", type=float, default=0.0, help="seconds until it is ready")
    given = parser.parse_args()
    engine = Engine(given.model, given.seconds, given.tokens, given.concurrency, given.load)
    name = os.environ.get("GANTREE_JOB", "alone")
    server = Server(given.host, given.port, engine, name)

    def stop(_signal: int, _frame: FrameType | None) -> None:
        threading.Thread(target=server.shutdown).start()

    signal.signal(signal.SIGTERM, stop)
    print(f"{name} listens at port {given.port}", flush=True)
    server.serve_forever(poll_interval=0.05)
    while engine.open:
        time.sleep(0.01)


if __name__ == "__main__":
    main()
