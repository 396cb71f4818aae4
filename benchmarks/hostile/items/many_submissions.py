"""One user submits 10,000 jobs, one after the other, as fast as the daemon takes them."""

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hostile.scene import Item
from hostile.site import Site, job
from loading import drive, request

SUBMISSIONS = 10_000
CONNECTIONS = 4


def submit_all(state: Path) -> None:
    """The body of a process of its own."""
    bodies = ({"jobs": [job(f"many-{number}", "hostile")]} for number in range(SUBMISSIONS))
    drive(state, (request("POST", "/v1/jobs", body) for body in bodies), CONNECTIONS)


@contextmanager
def submitting(site: Site) -> Iterator[None]:
    """They are under way."""
    context = multiprocessing.get_context("spawn")
    user = context.Process(target=submit_all, args=(site.daemon.state,))
    user.start()
    try:
        yield
    finally:
        user.join()


ITEM = Item("10,000 submissions of one user", submitting, rounds=1)
