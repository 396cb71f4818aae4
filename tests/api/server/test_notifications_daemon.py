"""Notifications of a real daemon: start, end, failure and preemption by webhook and mail, over a kill -9."""

from pathlib import Path

import pytest

from gantree.api.client.client import Client
from gantree.model.errors import GantreeError
from support.daemon import Program
from support.receivers import MailReceiver, WebhookReceiver

POLICY = "preset: gantree\nevictions: {min_run: 0s, grace: 1s}\n"
JOB = """\
name: NAME
priority: PRIORITY
restarts: 0
gang: [{role: w, members: 1, each: {gpus: 8}, run: [sh, -c, 'RUN']}]
notify: {on: [start, end, failure, preemption], webhook: 'URL', mail: ann@example.org}
"""


def job_text(name: str, run: str, url: str, priority: str = "batch") -> str:
    text = JOB.replace("NAME", name).replace("RUN", run).replace("URL", url)
    return text.replace("PRIORITY", priority)


class Up:
    """Words of `gantree up` on one GPU machine, and a client for it."""

    def __init__(self, place: Path, *words: str) -> None:
        policy = place / "policy.yaml"
        policy.write_text(POLICY)
        self.state = place / "state"
        site = ("--virtual", "dgx-h100:1", "--policy", str(policy), "--state", str(self.state))
        self.words = ("up", *site, *words)
        self.client = Client(self.state)


def said(bodies: list[dict[str, object]]) -> list[tuple[object, ...]]:
    return [(each["job"], each["event"], each["phase"], each["attempt"]) for each in bodies]


def test_start_preemption_failure_and_end_reach_webhook_and_mail(tmp_path: Path) -> None:
    with WebhookReceiver() as hook, MailReceiver() as post:
        words = ("--notify-webhook-host", hook.host, "--smtp", post.host)
        up = Up(tmp_path, *words, "--mail-from", "gantree@example.org")
        with Program(*up.words) as program:
            program.says("ready")
            up.client.submit(job_text("low", "sleep 600", hook.url()))
            up.client.job("low", wait_s=60, until="running")
            up.client.submit(job_text("high", "exit 3", hook.url(), "production"))
            hook.wait(lambda all_: len([each for each in all_ if each.body["job"] == "low"]) >= 3)
            up.client.cancel("low")
            posted = hook.wait(lambda all_: len(all_) >= 6)
            mails = post.wait(lambda all_: len(all_) >= 6)
            program.stop()
    bodies = [each.body for each in posted]
    assert said([each for each in bodies if each["job"] == "low"]) == [
        ("low", "start", "running", 1),
        ("low", "preemption", "stopping", 1),
        ("low", "start", "running", 2),
        ("low", "end", "cancelled", 2),
    ]
    high = [each for each in bodies if each["job"] == "high"]
    assert said(high) == [("high", "start", "running", 1), ("high", "failure", "failed", 1)]
    assert (high[-1]["exit_code"], bool(high[-1]["reason"])) == (3, True)
    assert sorted(each.message["Subject"] for each in mails) == sorted(
        f"gantree: job {name} {what}"
        for name, what in (
            ("low", "started"),
            ("low", "is preempted"),
            ("low", "started"),
            ("low", "ended"),
            ("high", "started"),
            ("high", "failed"),
        )
    )


def test_what_a_killed_daemon_had_not_delivered_comes_from_the_next(tmp_path: Path) -> None:
    with WebhookReceiver() as reserved, MailReceiver() as post:
        port = reserved.port
    up = Up(tmp_path, "--notify-webhook-host", f"127.0.0.1:{port}", "--smtp", post.host,
            "--mail-from", "gantree@example.org")  # fmt: skip
    with Program(*up.words) as program:
        program.says("ready")
        up.client.submit(job_text("a", "true", f"http://127.0.0.1:{port}/hook"))
        up.client.job("a", wait_s=60, until="ended")
        program.process.kill()
        program.process.wait(60)
    with WebhookReceiver(port) as hook, Program(*up.words) as program:
        program.says("ready")
        posted = hook.wait(lambda all_: len(all_) >= 2)
        program.stop()
    assert said([each.body for each in posted]) == [
        ("a", "start", "running", 1),
        ("a", "end", "succeeded", 1),
    ]


def test_what_the_site_does_not_send_is_refused_at_submit(tmp_path: Path) -> None:
    up = Up(tmp_path, "--notify-webhook-host", "10.0.0.1:81")
    with Program(*up.words) as program:
        program.says("ready")
        with pytest.raises(
            GantreeError, match=r"10\.0\.0\.1:80 is not a host .* allowed: 10\.0\.0\.1:81"
        ):
            up.client.submit(job_text("a", "true", "http://10.0.0.1/latest/meta-data"))
        with pytest.raises(GantreeError, match=r"notify\.mail: this site sends no mail"):
            up.client.submit(job_text("a", "true", "http://10.0.0.1:81/"))
        assert up.client.jobs() == []
        program.stop()
