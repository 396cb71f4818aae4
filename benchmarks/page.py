"""The map of a large cluster as a browser gets it: bytes, milliseconds of the daemon, first paint in real Chromium.

A site in this process whose gangs run at once and do nothing (`support.pretended`), with 16,384 GPUs in 2,048
nodes, nearly full; then the page in Chromium, loaded several times with an empty cache.

    PYTHONPATH=tests python benchmarks/page.py [--jobs 640] [--single] [--loads 7]

--single: every job has one GPU, which is the most that a map can have to tell.
`first_paint_ms` is from the beginning of the navigation to the end of the first drawing of all GPUs, by the page's own
clock; daemon and browser share the machine. `page_cpu_ms` is the processor time of the page's main thread until then,
`scene_ms` and `whole_ms` that of the daemon: they say the same on a busy machine.
"""

import argparse
import gzip
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from gantree.model.jobs import Job
from gantree.testing.builders import cluster, job
from gantree.web.pages.heat_map.feed import LEVEL
from gantree.web.pages.heat_map.layout import heat_map, heat_map_json
from gantree.web.pages.heat_map.messages import compact, delta_json, whole_json
from gantree.web.pages.heat_map.scene import HeatScene, heat_scene
from support.chromium import chromium
from support.pretended import TOKEN, PretendedSite

SHAPE = (4, 16, 32)
SIZES = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8), (8, 8), (16, 8))
QUEUES, USERS = 20, 100
FULL = 2048 * 8


def jobs(count: int, *, single: bool) -> Iterator[Job]:
    """Jobs of many sizes, users and queues."""
    chance = Random(1)
    for number in range(FULL if single else count):
        members, gpus = (1, 1) if single else chance.choice(SIZES)
        made = job(f"train-{number}", members, gpus, time_limit_s=7200.0)
        queue, user = f"team-{chance.randrange(QUEUES)}", f"user{chance.randrange(USERS)}"
        yield replace(made, queue=queue, user=user)


def everybody(user: str, queue: str) -> bool:
    """An operator's sight."""
    return True


def timed_ms(work: Callable[[], object], times: int = 9) -> float:
    """Median milliseconds of processor time: the same on a busy machine."""
    taken = []
    for _ in range(times):
        start = time.thread_time()
        work()
        taken.append(1000 * (time.thread_time() - start))
    return round(statistics.median(taken), 1)


def sizes(text: str) -> dict[str, int]:
    """Bytes as they are, and as they go to a browser."""
    content = text.encode()
    return {"bytes": len(content), "squeezed": len(gzip.compress(content, LEVEL, mtime=0))}


def scene_of(site: PretendedSite) -> HeatScene:
    """The scene as it is now."""
    found = site.ask(lambda controller: heat_scene(controller.ledger, controller.clock()))
    assert found is not None
    return found


def measure_daemon(site: PretendedSite) -> dict[str, Any]:
    """What the daemon does for the page, and what it sends."""
    fabric = site.ask(lambda controller: controller.ledger.fabric)
    assert fabric is not None
    before = scene_of(site)
    running = site.ask(lambda controller: next(iter(controller.ledger.holding)))
    scene_ms = site.ask(lambda controller: timed_ms(lambda: heat_scene(controller.ledger, 0.0)))
    site.end(running)
    after = scene_of(site)
    return {
        "holders": len(before.holders),
        "map": sizes(compact(heat_map_json(heat_map(fabric)))),
        "map_ms": timed_ms(lambda: heat_map_json(heat_map(fabric)), 3),
        "whole": sizes(compact(whole_json(before, everybody))),
        "whole_ms": timed_ms(lambda: compact(whole_json(before, everybody))),
        "scene_ms": scene_ms,
        "delta": sizes(compact(delta_json(before, after, everybody) or {})),
        "delta_ms": timed_ms(lambda: delta_json(before, after, everybody)),
    }


def measure_paint(site: PretendedSite, loads: int) -> dict[str, Any]:
    """First paints, each in a context of its own."""
    paints, cpu = [], []
    with chromium() as browser:
        for _ in range(loads):
            shown = {"Authorization": f"Bearer {TOKEN}"}
            context = browser.new_context(base_url=site.url, extra_http_headers=shown)
            page = context.new_page()
            tools = context.new_cdp_session(page)
            tools.send("Performance.enable", {"timeDomain": "threadTicks"})
            page.goto("/cluster")
            page.locator("#map[data-drawn]").wait_for()
            paints.append(page.evaluate("performance.getEntriesByName('map-drawn')[0].startTime"))
            metrics = tools.send("Performance.getMetrics")["metrics"]
            cpu += [1000 * each["value"] for each in metrics if each["name"] == "TaskDuration"]
            context.close()
    return {
        "first_paint_ms": {
            "median": round(statistics.median(paints)),
            "least": round(min(paints)),
            "most": round(max(paints)),
        },
        "page_cpu_ms": round(statistics.median(cpu)),
    }


def main() -> None:
    """Measure, print JSON."""
    options = argparse.ArgumentParser(description="The map of a large cluster in a browser.")
    options.add_argument("--jobs", type=int, default=640)
    options.add_argument("--single", action="store_true")
    options.add_argument("--loads", type=int, default=7)
    given = options.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="gantree-bench-") as directory,
        PretendedSite(Path(directory), cluster(*SHAPE, 8, 8)) as site,
    ):
        site.submit(*jobs(given.jobs, single=given.single))
        told = {**measure_daemon(site), **measure_paint(site, given.loads)}
    print(json.dumps({"gpus": FULL, **told}, indent=1))


if __name__ == "__main__":
    main()
