"""A budget of a real daemon: levels reach a webhook, running work saves and stops, and goes on after a raise."""

import json
import sys
import time
from pathlib import Path
from typing import Any

from gantree.api.client.client import Client
from support.daemon import Program
from support.receivers import WebhookReceiver

POLICY = """\
evictions: {grace: 2s}
queues:
  - name: research
    budget: {total: AMOUNT GPU-minutes, alerts: [50%], at_limit: stop, notify: {webhook: "URL"}}
"""
SAVES = """\
import time
from gantree.training import saved, should_checkpoint
step = 0
while True:
    step += 1
    if should_checkpoint(step):
        saved(step)
    time.sleep(0.02)
"""


def policy_of(amount: float, hook: WebhookReceiver) -> str:
    return POLICY.replace("AMOUNT", f"{amount:g}").replace("URL", hook.url())


def until_phase(client: Client, phase: str) -> dict[str, Any]:
    """The job, once it is in a phase."""
    while (job := client.job("saves"))["phase"] != phase:
        time.sleep(0.05)
    return job


def test_a_budget_is_announced_stops_work_after_a_save_and_is_raised(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SAVES)
    role = {"role": "w", "members": 1, "each": {"gpus": 4}, "run": [sys.executable, str(script)]}
    job = {
        "name": "saves",
        "queue": "research",
        "gang": [role],
        "checkpoint": {"every": "1h", "grace": "60s"},
    }
    with WebhookReceiver() as hook:
        policy = tmp_path / "policy.yaml"
        policy.write_text(policy_of(0.2, hook))  # three seconds of four GPUs
        site = ("--virtual", "dgx-h100:1", "--policy", str(policy), "--state", str(tmp_path / "s"))
        client = Client(tmp_path / "s")
        with Program("up", *site, "--notify-webhook-host", hook.host) as program:
            program.says("ready")
            client.submit(json.dumps(job))
            posted = [each.body for each in hook.wait(lambda all_: len(all_) >= 2)]
            until_phase(client, "pending")
            waits = client.why("saves")
            client.apply_policy(policy_of(1000.0, hook), "raised.yaml")
            again = until_phase(client, "running")
            (row,) = [each for each in client.queues() if each["queue"] == "research"]
            client.cancel("saves")
            program.says("is used up")
            program.stop()
    assert [(each["event"], each["level"], each["closed"]) for each in posted] == [
        ("budget", 0.5, False),
        ("budget", 0.5, True),
    ]
    assert posted[0]["queue"] == "research" and posted[0]["unit"] == "GPU-minutes"
    assert "queue research has used" in waits["sentence"]
    assert again["attempt"] == 2 and again["preemptions"] == 0 and again["checkpoint_step"]
    (budget,) = row["budgets"]
    assert budget["amount"] == 1000.0 and not budget["closed"] and budget["per_hour"] == 240.0
