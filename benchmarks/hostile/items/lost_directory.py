"""The state directory is deleted under a running daemon; an operator starts one anew."""

import json
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager

from gantree.api.client.client import Client
from gantree.api.client.request import Request
from gantree.model.errors import GantreeError
from hostile.scene import READY_WRONG_S, Item
from hostile.site import Site, job


def refused(client: Client, path: str) -> bool:
    """Whether it answers otherwise than with a 2XX within READY_WRONG_S."""
    deadline = time.monotonic() + READY_WRONG_S
    while True:
        try:
            if path == "/readyz":
                client.send(Request[object]("GET", path))
            else:
                client.submit(json.dumps(job("lost", "other")), base_dir="/tmp")
                return False
        except GantreeError:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)


@contextmanager
def deleted(site: Site) -> Iterator[None]:
    """What was acknowledged before is gone with the directory; nothing may be acknowledged from then on."""
    token = (site.daemon.state / "token").read_text().strip()
    (url,) = re.findall(r"http://[0-9.:]+", site.daemon.log.read_text())[-1:]
    shutil.rmtree(site.daemon.state)
    site.forget_acknowledged(time.monotonic())
    over_tcp = Client(url, token)  # the Unix socket went with the directory
    try:
        site.require(refused(over_tcp, "/readyz"), "/readyz said 200 without a directory")
        site.require(refused(over_tcp, "/v1/jobs"), "a job was acknowledged without a directory")
        yield
    finally:
        site.require(not site.acknowledged, "jobs were acknowledged without a directory")
        site.daemon.stop()
        site.daemon.start()


ITEM = Item(
    "the state directory is deleted",
    deleted,
    rounds=1,
    refuses=True,
    options=("--listen", "127.0.0.1:0"),
)
