"""Takes the screenshots of the documentation: a daemon of its own, jobs that wait and run, a simulation, a browser.

Pictures lie in docs/images and are committed; a test does not take them, as fonts differ from machine to machine.
"""

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import Browser

from gantree.formats import read_cluster, read_policy
from gantree.formats.traces import TraceJob
from gantree.sim import files
from gantree.sim.cluster import Overheads
from gantree.sim.run import simulate
from support.chromium import chromium
from support.daemon import Daemon
from support.fault_screenshots import POLICY as FAULT_POLICY
from support.fault_screenshots import shoot_faults
from support.recorded_week import CLUSTER as WEEK
from support.recorded_week import RecordedWeek
from support.service_screenshots import shoot_service
from support.serving import serving

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
CLUSTER = """
name: four-leaves
tiers: [spine, leaf, node]
nodes:
  - {names: "n[00-07]", machine: dgx-h100, at: {spine: s0, leaf: l0}}
  - {names: "n[08-15]", machine: dgx-h100, at: {spine: s0, leaf: l1}}
  - {names: "n[16-23]", machine: dgx-h100, at: {spine: s1, leaf: l2}}
  - {names: "n[24-31]", machine: dgx-h100, at: {spine: s1, leaf: l3}}
"""
POLICY = """
preset: fair
queues:
  - {name: research, weight: 2, guarantee: {gpus: 96}, queues: [{name: nlp}, {name: vision}]}
  - {name: serving, weight: 1, guarantee: {gpus: 32}}
"""
SCRIPT = """
import time
from gantree import training
for step in range(100_000):
    print(f"step {step}: loss 2.1", flush=True)
    training.progress(step, loss=2.1, samples_per_s=410)
    time.sleep(1)
"""
MODEL = (
    "parallelism: {tensor: 8, data: 8}\n"
    "model: {parameters: 7B, layers: 32, hidden: 4096, sequence: 4096, batch: 256}"
)
JOBS = (
    ("llama-7b", "research/nlp", 8, 8, "8h", MODEL),
    ("clip-large", "research/vision", 6, 8, "3h", ""),
    ("chat-prod", "serving", 4, 8, "24h", ""),
    ("sweep", "research/vision", 5, 4, "90m", "array: 0-2"),
    ("mixtral", "research/nlp", 16, 8, "12h", "topology: {required: spine}"),
    ("vit-huge", "research/vision", 8, 8, "4h", "topology: {required: leaf}"),
    ("eval", "research/nlp", 12, 8, "30m", ""),
)
Shot = tuple[str, str, str, int, int]
"""Name, path, colours, width and height of a picture."""
WEEK_S = 7 * 86_400.0
FLEET_SHOTS: Sequence[Shot] = (("fleet", "/fleet?period=7d", "light", 1200, 1240),)
SHOTS: Sequence[Shot] = (
    ("overview", "/", "light", 1200, 760),
    ("jobs", "/queue", "light", 1200, 500),
    ("job", "/jobs/llama-7b", "light", 1200, 960),
    ("job-phone", "/jobs/mixtral", "dark", 375, 760),
    ("cluster", "/cluster", "dark", 1200, 780),
    ("cluster-use", "/cluster#use", "light", 1200, 1000),
    ("gantt", "/gantt", "light", 1200, 620),
    ("queues", "/queues", "light", 1200, 620),
    ("submit", "/submit", "dark", 1200, 640),
)


def submit(daemon: Daemon) -> None:
    """Jobs that run, and jobs that wait for one reason or another."""
    script = daemon.state_dir / "train.py"
    script.write_text(SCRIPT)
    for name, queue, members, gpus, limit, more in JOBS:
        command = "exec sleep 3600"
        if name == "llama-7b":
            command = f"[ $RANK = 0 ] && exec {sys.executable} {script}; {command}"
        run = json.dumps(["sh", "-c", command])
        gang = f"role: worker, members: {members}, each: {{gpus: {gpus}}}, run: {run}"
        about = f"name: {name}\nqueue: {queue}\ntime_limit: {limit}\n{more}\n"
        daemon.client.submit(f"{about}gang: [{{{gang}}}]\n", base_dir="/tmp", user="ada")
    daemon.wait("llama-7b", until="running")


class Exporter(BaseHTTPRequestHandler):
    """What a DCGM exporter would tell of each node: its path is the node."""

    def do_GET(self) -> None:
        """GPUs that are the busier the further back the node, a few of them idle."""
        number = int(self.path.removeprefix("/n"))
        lines = []
        for gpu in range(8):
            busy = 3 if (number + gpu) % 11 == 0 else 20 + (number * 29 + gpu * 5) % 80
            labels = f'{{gpu="{gpu}",Hostname="n{number:02}"}}'
            figures = {
                "GPU_UTIL": busy,
                "FB_USED": 700 * busy,
                "FB_FREE": 81_559 - 700 * busy,
                "POWER_USAGE": 6 * busy + 90,
            }
            lines += [f"DCGM_FI_DEV_{name}{labels} {value}" for name, value in figures.items()]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(("\n".join(lines) + "\n").encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def shoot(browser: Browser, daemon: Daemon, shots: Sequence[Shot] = SHOTS) -> None:
    """One picture after the other."""
    for name, path, scheme, width, height in shots:
        context = browser.new_context(
            base_url=daemon.url,
            viewport={"width": width, "height": height},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        token = (daemon.state_dir / "token").read_text().strip()
        context.request.post("/v1/session", data={"token": token})
        page = context.new_page()
        page.goto(path)
        page.wait_for_timeout(2500)
        if path.endswith("#use"):
            page.get_by_role("radio", name="use").check()
            page.wait_for_timeout(4000)
        page.screenshot(path=IMAGES / f"{name}.png")
        size_kB = (IMAGES / f"{name}.png").stat().st_size // 1000
        print(f"docs/images/{name}.png  {size_kB} kB")
        context.close()


def shoot_report(browser: Browser, scratch: Path) -> None:
    """The part of report.html of a simulation that shows its charts over time."""
    trace = [
        TraceJob(
            f"j{n}",
            submit_s=float(n * 331 % 36_000),
            duration_s=float(900 + n * 7_919 % 7_200),
            members=(1, 1, 2, 1, 4, 1, 8)[n % 7],
            gpus_per_member=(8, 2, 8, 4, 8)[n % 5],
            queue=("research/nlp", "research/vision", "serving")[n % 3],
            priority=("research", "batch", "serving")[n % 3],
            checkpoint_s=600,
        )
        for n in range(220)
    ]
    cluster, policy = read_cluster(CLUSTER, "cluster.yaml"), read_policy(POLICY, "policy.yaml")
    overheads = Overheads(start_s=60, stop_s=10, save_s=20)
    files.write(simulate(cluster, trace, policy, overheads=overheads), scratch)
    page = browser.new_page(viewport={"width": 1000, "height": 1150})
    page.goto((scratch / "report.html").as_uri())
    page.wait_for_selector("body[data-drawn=yes]")
    page.evaluate("document.querySelectorAll('h2')[1].scrollIntoView()")
    page.screenshot(path=IMAGES / "report.png")
    page.close()


def shoot_fleet(browser: Browser, state: Path) -> None:
    """What a week of a small fleet was good for."""
    week = RecordedWeek(state, begin=time.time() // 3600 * 3600 - WEEK_S)
    week.live()
    week.journal.close()
    with Daemon(state, WEEK, listen="127.0.0.1:0", pages=True) as daemon:
        shoot(browser, daemon, FLEET_SHOTS)


def main() -> None:
    """All of them."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        exporter = ThreadingHTTPServer(("127.0.0.1", 0), Exporter)
        made = Daemon(
            Path(scratch) / "state",
            CLUSTER,
            POLICY,
            listen="127.0.0.1:0",
            pages=True,
            gpu_metrics=f"http://127.0.0.1:{exporter.server_port}/{{node}}",
        )
        with serving(exporter), made as daemon, chromium() as browser:
            submit(daemon)
            shoot(browser, daemon)
            shoot_report(browser, Path(scratch) / "simulation")
            shoot_fleet(browser, Path(scratch) / "week")
            shoot_service(browser, daemon, IMAGES)
        sick = Daemon(
            Path(scratch) / "sick", CLUSTER, FAULT_POLICY, listen="127.0.0.1:0", pages=True
        )
        with sick as daemon, chromium() as browser:
            shoot_faults(browser, daemon, IMAGES)


if __name__ == "__main__":
    main()
