"""Services of a Kubernetes cluster at a daemon: listed, shown, explained, scaled and measured as services anywhere."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from playwright.sync_api import Page, expect

from gantree.api.client.client import Client
from gantree.api.client.service_requests import report_routes
from support.chromium import Complaints, chromium
from support.command_line import CommandLine
from support.daemon import Program
from support.kubernetes.server.statuses import Json
from support.page_rules import AUDIT
from support.pods import PodStage

CRDS = Path(__file__).parents[3] / "deploy/kubernetes/crds"
URL = "/apis/gantree.io/v1alpha1/namespaces/default/gangservices"
MANIFEST = """
apiVersion: gantree.io/v1alpha1
kind: GangService
metadata: {name: chat}
spec:
  replicas: {min: 1, max: 4, wanted: 2}
  port: 8000
  drainSeconds: 0
  route: {models: [llama-8b]}
  template:
    spec: {gang: [{role: worker, each: {gpus: 8}, template: {spec: {containers: [{name: serve, image: "serve:1"}]}}}]}
"""
WITHIN_S = 300.0
CHAT = "default.chat"


class Site:
    """Three nodes of eight GPUs, and a daemon on them."""

    def __init__(self, stage: PodStage, state: Path, gantree: CommandLine, url: str) -> None:
        self.stage, self.state, self._gantree, self.url = stage, state, gantree, url
        self.client = Client(state)

    def run(self, *words: object) -> Any:
        """A command at the daemon."""
        return self._gantree(*words, "--state", self.state)

    def service(self, name: str = CHAT) -> Json:
        """What the API says of a service."""
        return self.client.service(name)

    def until(self, is_so: Callable[[], object]) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + WITHIN_S
        while not is_so():
            assert time.monotonic() < deadline, self.client.services()
            time.sleep(0.05)

    def listed(self) -> dict[str, Json]:
        """The rows of the list by name."""
        return {row["service"]: row for row in self.client.services()}

    def ready(self, replicas: int, name: str = CHAT) -> bool:
        """Whether so many replicas are ready, and no other is there."""
        row = self.listed().get(name)
        return row is not None and (row["ready"], row["placed"]) == (replicas, replicas)


@pytest.fixture
def site(tmp_path: Path, gantree: CommandLine) -> Iterator[Site]:
    with PodStage(tmp_path / "unused") as stage:
        for name in ("gangjobs", "gangservices"):
            stage.api.define(yaml.safe_load((CRDS / f"{name}.yaml").read_text()))
        stage.nodes("n[0-2]", network_topology_nvidia_com__leaf="l0")
        state = tmp_path / "state"
        where = ("--api-server", stage.running.url, "--state", str(state), "--name", "a")
        with Program("kubernetes", *where, "--listen", "127.0.0.1:0") as daemon:
            line = daemon.says("ready: cluster kubernetes, ")
            yield Site(stage, state, gantree, re.findall(r"http://[0-9.:]+", line)[0])
            assert daemon.stop() == 0


def create(site: Site) -> None:
    answer = site.stage.api.post(URL, yaml.safe_load(MANIFEST))
    assert answer.status_code == 201, answer.text
    site.until(lambda: site.ready(2))


def deploy(site: Site, *names: str) -> None:
    """Pods as the controller of a Deployment makes them."""
    for name in names:
        site.stage.pod(
            name,
            labels={"gantree.io/service": "embed", "pod-template-hash": "7d9f"},
            annotations={"gantree.io/port": "9000"},
        )
    site.until(lambda: site.ready(len(names), "default.embed"))


def test_a_gangservice_is_listed_and_shown_with_its_replicas(site: Site) -> None:
    create(site)
    row = site.service()
    (pod, _) = (site.stage.pods()[f"chat-{number}-worker-0"] for number in (1, 2))
    first, second = row["replicas"]
    assert (row["keeper"], row["state"], row["wanted"], row["ready"]) == (
        "GangService",
        "ready",
        2,
        2,
    )
    assert (row["min"], row["max"], row["current"], row["gpus"]) == (1, 4, 2, 8)
    assert (row["queue"], row["user"], row["models"]) == ("default", "default", ["llama-8b"])
    assert (first["replica"], first["number"]) == ("default.chat-1", 1)
    assert site.client.job(first["job"])["name"] == "default/chat-1"
    assert site.run("why", "default/chat-1").out.startswith("Holds 8 GPUs on 1 node")
    assert (
        first["revision"]
        == row["revision"]
        == site.stage.api.get(f"{URL}/chat").json()["status"]["revision"]
    )
    assert first["nodes"] == [pod["spec"]["nodeName"]]
    assert first["domain"] == {"tier": "node", "name": f"l0/{first['nodes'][0]}"}
    assert (first["host"], first["port"]) == (pod["status"]["podIP"], 8000)
    assert (first["phase"], first["ready"], second["number"]) == ("running", True, 2)
    head, line = site.run("services").out.splitlines()
    assert head.split()[:4] == ["SERVICE", "STATE", "READY", "BOUNDS"]
    assert line.split()[:6] == [CHAT, "ready", "2/2", "1-4", row["revision"], "default"]
    told = site.run("services", CHAT).out
    assert told.startswith(f"{CHAT}: ready; 2 of 2 replicas are ready; 1 to 4 replicas, revision ")
    assert f"{first['host']}:8000" in told


def test_it_is_scaled_by_gantree_and_by_others_and_says_by_whom(site: Site) -> None:
    create(site)
    assert site.run("scale", CHAT, "--replicas", 4).out == f"{CHAT} is scaled\n"
    assert site.stage.api.get(f"{URL}/chat/scale").json()["spec"]["replicas"] == 4
    site.until(lambda: len(site.service()["scalings"]) == 1)
    site.until(lambda: site.ready(3))
    row = site.service()
    (scaling,) = row["scalings"]
    assert (scaling["before"], scaling["replicas"], scaling["automatic"]) == (2, 4, False)
    assert row["scaled_for"] == scaling["reason"] != ""
    why = site.run("why", CHAT).out
    assert why.startswith(
        f"{CHAT} wants 4 replicas (set by a user: {scaling['reason']}): 3 are ready, 1 waits."
    )
    assert "default.chat-4: Waiting: needs 8 GPUs" in why
    scale = {"spec": {"replicas": 1}}
    assert site.stage.api.patch(f"{URL}/chat/scale", scale).status_code == 200
    site.until(lambda: site.ready(1))
    site.until(lambda: len(site.service()["scalings"]) == 2)
    last = site.service()["scalings"][-1]
    assert (last["before"], last["replicas"]) == (4, 1)
    assert last["reason"] == "another client of the API server"
    refused = site.run("scale", CHAT, "--replicas", 9)
    assert refused.code != 0
    assert (
        "allowed for default.chat: 1 to 4; `kubectl edit gangservice chat -n default`"
        in refused.err
    )


def test_what_ends_it_is_a_command_of_kubectl(site: Site) -> None:
    create(site)
    refused = site.run("cancel", CHAT)
    assert refused.code != 0
    assert "`kubectl delete gangservice chat -n default` ends it" in refused.err
    assert site.ready(2)


def test_pods_of_other_controllers_are_a_service_whose_number_others_decide(site: Site) -> None:
    deploy(site, "embed-a", "embed-b")
    row = site.service("default.embed")
    assert (row["keeper"], row["wanted"], row["min"], row["max"]) == ("pods", None, None, None)
    assert (row["ready"], row["state"], row["revision"]) == (2, "ready", "7d9f")
    assert [each["replica"] for each in row["replicas"]] == ["default.embed-a", "default.embed-b"]
    assert {each["revision"] for each in row["replicas"]} == {"7d9f"}
    assert site.run("services").out.splitlines()[1].split()[:4] == [
        "default.embed",
        "ready",
        "2/-",
        "-",
    ]
    refused = site.run("scale", "default.embed", "--replicas", 3)
    assert "`kubectl scale deployment NAME --replicas 3 -n default`" in refused.err
    assert "delete what makes them" in site.run("cancel", "default.embed").err
    assert site.run("why", "default.embed").out.startswith(
        "default.embed has 2 pods of other controllers: 2 are ready."
    )


@pytest.fixture
def page(site: Site) -> Iterator[Page]:
    """A page of a user who has logged in, and must have nothing to complain of at the end."""
    expect.set_options(timeout=WITHIN_S * 1000)
    with chromium() as browser:
        context = browser.new_context(base_url=site.url, viewport={"width": 1200, "height": 1100})
        token = (site.state / "token").read_text().strip()
        context.request.post("/v1/session", data={"token": token})
        page, complaints = context.new_page(), Complaints()
        complaints.listen_to(page)
        yield page
        assert (complaints, page.evaluate(AUDIT)) == ([], [])


def test_its_page_shows_where_replicas_are_what_they_do_and_cost_and_scales(
    site: Site, page: Page
) -> None:
    create(site)
    deploy(site, "embed-a")
    load = {"service": CHAT, "rate": 12.0, "concurrency": 5.0, "in_flight": 5, "requests": 60}
    load |= {"latency_p50_s": 0.2, "latency_p99_s": 0.9, "ttft_p99_s": 0.1, "tokens_per_s": 300.0}
    site.client.send(report_routes("r1", WITHIN_S, [load]))
    page.goto("/services")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("2 of 2 (1 to 4)")
    expect(rows.nth(1)).to_contain_text("1 (pods of others)")
    page.get_by_role("link", name=CHAT).click()
    expect(page.locator("#why")).to_contain_text("2 of 2 wanted replicas are ready.")
    now = page.locator("#now")
    expect(now).to_contain_text("900 ms")
    expect(now.locator("div", has_text="1,000 requests").last).to_contain_text("$")
    expect(now.locator("div", has_text="A million tokens").last).to_contain_text("$")
    expect(page.locator("#map .seats .mine")).to_have_count(16)
    expect(page.locator("#do-end")).to_have_count(0)
    page.get_by_role("spinbutton", name="Replicas").fill("4")
    page.get_by_role("button", name="Scale").click()
    events = page.locator("#events-scroll")
    expect(events).to_contain_text("A user scaled service default.chat from 2 to 4 replicas")
    expect(page.locator("#replicas tbody tr")).to_have_count(4)
    expect(page.locator("#replicas")).to_contain_text("Waiting: needs 8 GPUs")
    page.get_by_role("link", name="default.chat-1").click()
    expect(page.locator("h1")).to_contain_text("default.chat-1.")
    page.goto("/services/default.embed")
    expect(page.locator("#why")).to_contain_text("1 pod is ready; the controller of the pods")
    expect(page.locator("#scale")).to_have_count(0)


def test_one_that_cannot_be_read_says_why(site: Site) -> None:
    body = yaml.safe_load(MANIFEST)
    body["spec"]["update"] = {"surge": 0, "unavailable": 0}
    assert site.stage.api.post(URL, body).status_code == 201
    site.until(lambda: CHAT in site.listed())
    assert site.service()["reason"].startswith("Misconfigured: update.surge and update.unavailable")
    assert "Misconfigured: update.surge" in site.run("why", CHAT).out
