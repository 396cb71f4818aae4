"""`gantree route` before a real daemon: no request fails while replicas are replaced, added, drained and killed."""

import json
import os
import re
import shutil
import signal
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from support.daemon import Daemon, Program
from support.services import CLUSTER, SERVER, WITHIN_S, Site

pytestmark = pytest.mark.skipif(not shutil.which("haproxy"), reason="HAProxy is not here")
ROUTE = """
import sys
from gantree.cli.main import main
main(["route", "--listen", "127.0.0.1:0", "--state", sys.argv[1]])
"""
ONE_NODE = """
name: one
tiers: [leaf, node]
machines: {m4: {gpus: 4, gpu: H100-80GB}}
nodes: [{names: n0, machine: m4, at: {leaf: l0}}]
"""
URGENT = """
name: urgent-{number}
priority: serving
gang: [{{role: w, members: 1, each: {{gpus: 2}}, run: [sleep, "0.1"]}}]
"""
FINISHES = "threading.Thread(target=server.shutdown).start()"
"""What the server of examples/services does at SIGTERM."""
CLIENTS = 6
BODY = json.dumps({"model": "chat", "prompt": "hello", "max_tokens": 4})
STREAM = json.dumps({"model": "chat", "prompt": "hello", "max_tokens": 8, "stream": True})


def until_succeeded(site: Site, job: str) -> None:
    """Wait for the end of a job."""
    site.until(lambda: site.client.job(job)["phase"] == "succeeded")


def ask(url: str, body: str = BODY) -> tuple[int, str]:
    """Status and body of the answer to a completion; 0 and why where none came."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=WITHIN_S)
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/completions", body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (OSError, HTTPException) as error:
        return 0, repr(error)
    finally:
        connection.close()


def model_names(url: str) -> list[str]:
    """The models that the router knows of."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=WITHIN_S)
    try:
        connection.request("GET", "/v1/models")
        return [row["id"] for row in json.loads(connection.getresponse().read())["data"]]
    finally:
        connection.close()


class Clients:
    """Ask for completions without a pause, each in a thread of its own, until told to stop."""

    def __init__(self, url: str, body: str = BODY) -> None:
        self.answers: list[tuple[int, str]] = []
        self._body = body
        self._url, self._enough = url, threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        while not self._enough.is_set():
            self.answers.append(ask(self._url, self._body))

    def stop(self) -> None:
        self._enough.set()
        for thread in self._threads:
            thread.join(WITHIN_S)

    def by(self) -> set[str]:
        """The replicas that have answered."""
        good = [told for status, told in self.answers if status == 200]
        return {json.loads(told)["system_fingerprint"] for told in good}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Daemon(tmp_path / "state", CLUSTER) as daemon:
        yield Site(daemon)


def until_serving(site: Site, replicas: int) -> None:
    """Wait until so many replicas of the newest revision are ready; others may drain."""

    def is_so() -> bool:
        row = site.client.service("chat")
        return bool(row["ready"] == row["current"] == row["wanted"] == replicas)

    site.until(is_so)


def test_no_request_fails_while_replicas_are_replaced_added_drained_and_killed(site: Site) -> None:
    site.submit("chat", "2", drain="20s")
    until_serving(site, 2)
    with Program("-c", ROUTE, str(site.daemon.state_dir)) as route:
        url = re.findall(r"http://\S+", route.says("listens at"))[0]
        site.until(lambda: ask(url)[0] == 200)
        clients = Clients(url)
        try:
            site.until(lambda: clients.by() == {"chat.1", "chat.2"})
            site.submit("chat", "{min: 1, max: 3}", "other", drain="20s")
            until_serving(site, 2)
            site.client.scale_service("chat", 3)
            until_serving(site, 3)
            site.until(lambda: "chat.5" in clients.by())
            os.kill(site.process_of("chat.3"), signal.SIGKILL)
            site.until(lambda: site.client.job("chat.3")["failures"] == 1)
            until_serving(site, 3)
            site.client.scale_service("chat", 1)
            site.until_ready("chat", 1)
        finally:
            clients.stop()
        assert [each for each in clients.answers if each[0] != 200] == []
        site.client.cancel_service("chat")
        site.until(lambda: site.client.service("chat")["state"] == "ended")
        assert route.stop() == 0


def test_no_answer_of_a_server_that_dies_of_sigterm_breaks_off_when_it_is_preempted(
    tmp_path: Path,
) -> None:
    """As many engines do: what they work on at SIGTERM is lost."""
    text = SERVER.read_text()
    server = tmp_path / "server.py"
    server.write_text(text.replace(FINISHES, "os._exit(0)"))
    assert FINISHES in text
    policy = "preset: gantree\nevictions: {grace: 2m}\n"
    with Daemon(tmp_path / "state", ONE_NODE, policy) as daemon:
        site = Site(daemon)
        site.submit("chat", "4", drain="2m", seconds="0.3", server=server)
        site.until_ready("chat", 4)
        with Program("-c", ROUTE, str(daemon.state_dir)) as route:
            url = re.findall(r"http://\S+", route.says("listens at"))[0]
            site.until(lambda: ask(url, STREAM)[0] == 200)
            clients = Clients(url, STREAM)
            try:
                site.until(lambda: len(clients.answers) > 4)
                for number in range(4):
                    daemon.client.submit(URGENT.format(number=number))
                    until_succeeded(site, f"urgent-{number}")
                    site.until_ready("chat", 4)
            finally:
                clients.stop()
            assert [each for each in clients.answers if each[0] != 200] == []
            assert any(fact["fact"] == "GangPreempted" for fact in site.facts("chat"))
            daemon.client.cancel_service("chat")
            site.until(lambda: daemon.client.service("chat")["state"] == "ended")
            assert route.stop() == 0


def test_without_a_router_nobody_waits_for_a_preempted_replica_to_drain(tmp_path: Path) -> None:
    """The drain and the grace are longer than this test waits."""
    policy = "preset: gantree\nevictions: {grace: 30m}\n"
    with Daemon(tmp_path / "state", ONE_NODE, policy) as daemon:
        site = Site(daemon)
        site.submit("chat", "4", drain="30m")
        site.until_ready("chat", 4)
        daemon.client.submit(URGENT.format(number=0))
        try:
            until_succeeded(site, "urgent-0")
        finally:
            site.submit("chat", "4", drain="0s")
        assert any(fact["fact"] == "ReplicaDraining" for fact in site.facts("chat"))


def test_the_first_request_of_a_service_without_replicas_starts_one_and_is_answered(
    site: Site,
) -> None:
    scale = "{on: [{metric: concurrency, target: 4}], every: 1s}"
    site.submit("chat", "{min: 0, max: 2}", scale=scale)
    site.until(lambda: site.client.service("chat")["state"] == "at zero")
    with Program("-c", ROUTE, str(site.daemon.state_dir)) as route:
        url = re.findall(r"http://\S+", route.says("listens at"))[0]
        site.until(lambda: "chat" in model_names(url))
        status, told = ask(url)
        assert (status, json.loads(told)["system_fingerprint"]) == (200, "chat.1")
        (scaling,) = site.client.service("chat")["scalings"]
        assert scaling["reason"] == "a request waits and there is no replica"
        site.client.cancel_service("chat")
        site.until(lambda: site.client.service("chat")["state"] == "ended")
        assert route.stop() == 0
