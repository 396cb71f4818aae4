"""`gantree route` before a real daemon whose replicas publish their cache events: a new router knows their caches."""

import json
import re
import shutil
import sys
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.daemon import Daemon, Program
from support.services import CLUSTER, WITHIN_S, Site
from support.tokenizer import write_tokenizer

pytest.importorskip("zmq", reason="needs gantree[cache-events]")
pytest.importorskip("tokenizers", reason="needs gantree[cache-events]")
pytestmark = pytest.mark.skipif(not shutil.which("haproxy"), reason="HAProxy is not here")

ROUTE = """
import sys
from gantree.cli.main import main
main(["route", "--listen", "127.0.0.1:0", *sys.argv[1:]])
"""
SERVICE = f"""
kind: service
name: chat
replicas: 2
priority: batch
ready: {{every: 100ms, timeout: 1m}}
cache_events: true
route: {{affinity: cache}}
gang:
  - {{role: server, members: 1, each: {{gpus: 1}}, run: {json.dumps([sys.executable, "-m", "support.cache_engine"])}}}
"""
PROMPTS = [list(range(start, start + 40)) for start in range(0, 400, 40)]


def _asked(url: str, prompt: list[int]) -> Any:
    """What the replica says that a prompt went to."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=WITHIN_S)
    try:
        body = json.dumps({"model": "chat", "prompt": prompt})
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        return json.loads(answer.read())
    finally:
        connection.close()


def _until_known(route: Program) -> Any:
    """Wait until a router listens and reads the events of both replicas, in any order; its address."""
    said = ""
    while "listens at" not in said or said.count("its cache events are read") < 2:
        said += route.says("")
    return re.findall(r"listens at (\S+)", said)[0]


def test_another_router_finds_what_the_prompts_of_the_first_left_in_the_caches(
    tmp_path: Path,
) -> None:
    write_tokenizer(tmp_path / "tokenizers" / "chat")
    state = tmp_path / "state"
    options = [
        "--state",
        str(state),
        "--tokenizers",
        str(tmp_path / "tokenizers"),
        "--cache-wait",
        "1m",
    ]
    with Daemon(state, CLUSTER) as daemon:
        site = Site(daemon)
        site.client.submit(SERVICE)
        site.until_ready("chat", 2)
        with Program("-c", ROUTE, *options) as first:
            url = re.findall(r"http://\S+", first.says("listens at"))[0]
            by = [_asked(url, each)["by"] for each in PROMPTS]
        assert set(by) == {"chat.1", "chat.2"}
        with Program("-c", ROUTE, *options) as second:
            url = _until_known(second)
            for prompt, replica in zip(PROMPTS, by, strict=True):
                assert _asked(url, prompt) == {"by": replica, "cached_tokens": 40}
