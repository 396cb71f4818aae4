"""The screenshot of a service: requests that come and go through `gantree route`, and replicas that follow them."""

import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser

from support.daemon import Daemon

SERVER = Path(__file__).resolve().parents[2] / "examples" / "services" / "server.py"
SERVICE = """
kind: service
name: chat
queue: serving
gang: [{{role: server, members: 1, each: {{gpus: 2}}, run: {run}}}]
replicas: {{min: 2, max: 6}}
ready: {{http: /health, every: 500ms}}
drain: 10s
scale: {{on: [{{metric: concurrency, target: 6}}], every: 1s, down: {{stabilise: 8s}}}}
route: {{models: [llama-8b], concurrency: 8}}
"""
PARTS = ((6, 12.0), (26, 25.0), (34, 20.0), (12, 22.0), (24, 14.0))
"""Clients at a time, and for how many seconds."""
WIDTH, HEIGHT = 1200, 1180


class Clients:
    """So many clients as are wanted, each of which sends its next request when it has the answer."""

    def __init__(self, url: str) -> None:
        self.wanted = 0
        self._address = urlsplit(url).netloc
        self._threads: list[threading.Thread] = []

    def live(self, clients: int, seconds: float) -> None:
        """Be so many, for a while."""
        self.wanted = clients
        for number in range(len(self._threads), clients):
            self._threads.append(threading.Thread(target=self._ask, args=(number,), daemon=True))
            self._threads[-1].start()
        time.sleep(seconds)

    def close(self) -> None:
        """End all."""
        self.wanted = -1
        for thread in self._threads:
            thread.join()

    def _ask(self, number: int) -> None:
        body = json.dumps(
            {"model": "llama-8b", "prompt": "hello", "max_tokens": 16, "stream": True}
        )
        while self.wanted >= 0:
            if number >= self.wanted:
                time.sleep(0.1)
                continue
            connection = http.client.HTTPConnection(self._address, timeout=60)
            connection.request(
                "POST", "/v1/completions", body, {"Content-Type": "application/json"}
            )
            connection.getresponse().read()
            connection.close()


@contextmanager
def routed(daemon: Daemon) -> Iterator[str]:
    """`gantree route` of a daemon, and its address."""
    command = [
        sys.executable,
        "-m",
        "gantree",
        "route",
        "--state",
        str(daemon.state_dir),
        "--listen",
        "127.0.0.1:0",
    ]
    router = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert router.stdout is not None
        yield router.stdout.readline().split()[-1]
    finally:
        router.terminate()
        router.wait()


def shoot_service(browser: Browser, daemon: Daemon, images: Path) -> None:
    """The page in the middle of the day."""
    words = (str(SERVER), "--model", "llama-8b", "--seconds", "0.4", "--concurrency", "8")
    run = json.dumps([sys.executable, *words])
    daemon.client.submit(SERVICE.format(run=run), base_dir="/tmp", user="ada")
    with routed(daemon) as url:
        clients = Clients(url)
        try:
            for number, seconds in PARTS:
                clients.live(number, seconds)
            shoot(browser, daemon, images / "service.png")
        finally:
            clients.close()
            daemon.client.cancel_service("chat")


def shoot(browser: Browser, daemon: Daemon, path: Path) -> None:
    """One picture."""
    context = browser.new_context(
        base_url=daemon.url, viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light"
    )
    token = (daemon.state_dir / "token").read_text().strip()
    context.request.post("/v1/session", data={"token": token})
    page = context.new_page()
    page.goto("/services/chat")
    page.wait_for_timeout(2500)
    page.screenshot(path=path)
    print(f"docs/images/{path.name}  {path.stat().st_size // 1000} kB")
    context.close()
