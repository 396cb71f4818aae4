"""examples/racks on an API server: how long each gang of 16 pods waits, and who is stopped for whom.

    PYTHONPATH=tests python benchmarks/racks.py [counts|cells]...

The server is a real one where KUBEBUILDER_ASSETS names one, else that of the tests. Nobody runs anything: pods are
Running as soon as they are bound, and end when they are told to go.
"""

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.kubernetes.real import ETCD, is_asked_for, real_controllers, real_server
from support.kubernetes.shared import CONTROLLERS, SharedServer
from support.racks_story import Gang, RacksStage

POLICIES = ("counts", "cells")


@contextmanager
def server(place: Path) -> Iterator[str]:
    """Stages use a real server where there is one; gives which one they use."""
    if not is_asked_for():
        yield "test server"
        return
    with real_server(place) as (url, token), real_controllers(place, url, *CONTROLLERS):
        etcd = (place / ETCD).read_text()
        RacksStage.open_server = staticmethod(lambda _: SharedServer(url, token, etcd, False))
        yield "real server"


def said(gangs: list[Gang]) -> Iterator[str]:
    """A line for each gang of a whole rack, and for each that was stopped."""
    for gang in gangs:
        where = ", ".join(gang.racks) or "-"
        waited = "waits" if gang.waited_s is None else f"{gang.waited_s:.2f} s"
        more = gang.why if gang.waited_s is None else gang.stopped_for
        if gang.name.startswith("gec") or gang.stopped_for:
            yield f"{gang.name:10}{where:6}{waited:9}{more}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("policies", nargs="*", choices=[*POLICIES, []])
    wanted = parser.parse_args().policies or POLICIES
    with tempfile.TemporaryDirectory() as place, server(Path(place)) as which:
        for policy in wanted:
            state = Path(place) / policy
            state.mkdir()
            with RacksStage(state, policy) as stage:
                gangs = stage.play()
            print(f"{policy}, {which}", *said(gangs), sep="\n", flush=True)


if __name__ == "__main__":
    main()
