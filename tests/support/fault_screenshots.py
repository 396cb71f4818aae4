"""Screenshots of the documentation on faults: links that carry less, faulty GPUs, a slow rank."""

import json
import sys
from pathlib import Path

from playwright.sync_api import Browser

from support.daemon import Daemon

POLICY = "preset: gantree\nevictions: {restart: 2h}\n"
"""Moving costs so much that nobody moves while the pictures are taken."""
TRAIN = """
import time
from gantree import training
for step in range(100_000):
    with training.step():
        time.sleep(0.2 * (1.3 if training.rank() == 5 else 1.0))
    training.progress(step, loss=2.1)
    time.sleep(0.3)
"""
JOB = """
name: llama-13b
gang: [{{role: worker, members: 12, each: {{gpus: 8}}, run: {run}}}]
checkpoint: {{every: 30m}}
parallelism: {{tensor: 8, data: 12}}
model: {{parameters: 13B, layers: 40, hidden: 5120, sequence: 4096, batch: 96}}
"""
SHOTS = (
    ("links", "/cluster", "dark", 1200, 780),
    ("sick-node", "/nodes/n21", "light", 1200, 620),
    ("degraded-job", "/jobs/llama-13b", "light", 1200, 620),
)
SLOW_RANK_NAMED_MS = 30_000


def fail(daemon: Daemon) -> None:
    """A gang over two leaves of which one loses up-links, with a slow rank, and faults of two nodes."""
    script = daemon.state_dir / "train.py"
    script.write_text(TRAIN)
    run = json.dumps([sys.executable, str(script)])
    daemon.client.submit(JOB.format(run=run), base_dir="/tmp", user="ada")
    daemon.wait("llama-13b", until="running")
    client = daemon.client
    client.degrade("leaf:s0/l1", 0.5, reason="2 of 4 up-links are down", source="ufm")
    client.degrade("nic:n21/mlx5_0", 0.5, reason="2x of 4x lanes", source="node-exporter")
    client.node_fault("n21", gpu=3, xid=48)
    client.node_fault("n20", gpu=0, xid=79)


def shoot_faults(browser: Browser, daemon: Daemon, images: Path) -> None:
    """One picture after the other, once the slow rank is named."""
    fail(daemon)
    for number, (name, path, scheme, width, height) in enumerate(SHOTS):
        context = browser.new_context(
            base_url=daemon.url,
            viewport={"width": width, "height": height},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        token = (daemon.state_dir / "token").read_text().strip()
        context.request.post("/v1/session", data={"token": token})
        page = context.new_page()
        if number == 0:
            page.wait_for_timeout(SLOW_RANK_NAMED_MS)
        page.goto(path)
        page.wait_for_timeout(2500)
        if path == "/cluster":
            page.get_by_role("radio", name="health").check()
            page.wait_for_timeout(2500)
        page.screenshot(path=images / f"{name}.png")
        context.close()
