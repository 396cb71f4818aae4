"""One user submits four arrays of 10,000 jobs, one of them of a million members a job, which can never fit."""

from collections.abc import Iterator
from contextlib import contextmanager

from hostile.scene import Item
from hostile.site import CREATED, Site

ELEMENTS = 10_000
MEMBERS = (1_000_000, 2, 2, 2)


def array(members: int) -> dict[str, object]:
    """Fields of an array that waits for GPUs."""
    role = {"role": "w", "members": members, "each": {"gpus": 8}, "run": ["sleep", "600"]}
    return {"array": f"0-{ELEMENTS - 1}", "gang": [role]}


@contextmanager
def waiting(site: Site) -> Iterator[None]:
    """They wait for two nodes, of which one is free."""
    ids = []
    for members in MEMBERS:
        status, one = site.submit(site.caller, "hostile", **array(members))
        site.require(status == CREATED, f"an array was refused: {one}")
        ids.append(one)
    yield
    for one in ids:
        site.caller.ask("POST", f"/v1/jobs/{one}/cancel")


ITEM = Item("four arrays of 10,000, one of a million members a job", waiting)
