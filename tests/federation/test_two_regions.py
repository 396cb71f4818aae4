"""Two daemons as two regions behind a front, all of them processes, with links between them that are cut."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from urllib.parse import urlsplit
from urllib.request import urlopen

import httpx
import pytest

from gantree.api.client.client import Client
from gantree.api.client.request import Request
from gantree.api.http.response_models.jobs import JobRow
from gantree.model.errors import BadInput, Conflict, Unsupported
from support.daemon import Daemon, Program
from support.federation.cut_link import CutLink
from support.federation.world import World, until
from support.routed import haproxy
from support.services import text

CLUSTER = """
name: {name}
tiers: [node]
machines: {{m: {{gpus: 4, gpu: H100-80GB, cpus: 8, memory_GiB: 64}}}}
nodes: [{{names: "n[0-1]", machine: m}}]
"""
FEDERATION = """
name: world
lease: 3s
margin: 500ms
heartbeat: 200ms
lost_after: 1s
move_waiting: 500ms
clusters:
  - {{name: east, url: "{east}", token_file: "{east_token}", region: eu, data: [imagenet], storage: [/]}}
  - {{name: west, url: "{west}", token_file: "{west_token}", region: us, storage: [/]}}
links: [{{between: [eu, us], USD_per_GiB: 0.02, bandwidth_GBps: 1}}]
"""
SERVICE = """
kind: service
name: chat
gang: [{role: server, members: 1, each: {gpus: 1}, run: [python3, -I, -S, -c,
  "import os, socket, time; a = socket.create_server(('127.0.0.1', int(os.environ['PORT']))); time.sleep(3600)"]}]
replicas: 1
ready: {every: 100ms}
drain: 0s
"""
ROUTE = """
import sys
from gantree.cli.main import main
main(["route", "--listen", "127.0.0.1:0", "--state", sys.argv[1], "--at", sys.argv[2], "--explain"])
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    with ExitStack() as opened:
        daemons, links = {}, {}
        for name in ("east", "west"):
            daemon = Daemon(folder / name, CLUSTER.format(name=name), listen="127.0.0.1:0")
            daemons[name] = opened.enter_context(daemon)
            daemon.keep_address()
            port = urlsplit(daemon.url).port
            assert port is not None
            links[name] = opened.enter_context(CutLink(port))
        urls = {name: link.url for name, link in links.items()}
        tokens = {f"{name}_token": folder / name / "token" for name in daemons}
        (folder / "federation.yaml").write_text(FEDERATION.format(**urls, **tokens))
        client = Client(folder / "front")
        made = World(folder, daemons, links, client)
        made.start_front()
        until(lambda: all(row["state"] == "ready" for row in made.status().values()))
        yield made
        for link in links.values():
            link.mend()
        made.kill_front()


def test_a_job_goes_to_its_data_and_why_has_the_figures_of_both_clusters(world: World) -> None:
    said = world.submit("near", extra="data: [{name: imagenet, GiB: 1000}]")
    until(lambda: world.is_at("near", "east"))
    sentence = world.client.why("near")["sentence"]
    assert (
        "near is in east as near: east has the earliest start: east starts it at once" in sentence
    )
    assert (
        "west starts it at once, moves imagenet (1000 GiB) from eu: 18 min, 20.00 USD" in sentence
    )
    assert "Holds 1 GPU on 1 node" in sentence  # what east says itself
    (row,) = [row for row in world.client.jobs() if row["job"] == "near"]
    assert set(JobRow.model_fields) <= row.keys()
    until(said.read_text)
    world.client.cancel("near")
    until(lambda: world.job("near")["phase"] == "cancelled")
    until(lambda: world.daemons["east"].client.job("near")["phase"] == "cancelled")


def test_what_no_cluster_can_ever_start_is_refused_with_each_reason(world: World) -> None:
    with pytest.raises(BadInput, match=r"east cannot start it.*west cannot start it"):
        world.client.submit("name: big\ngang: [{role: w, members: 1, each: {gpus: 64}, run: [a]}]")
    with pytest.raises(BadInput, match=r"job.yaml:1"):
        world.client.submit("nme: x")
    with pytest.raises(
        Unsupported, match=r"does not answer GET /v1/nodes; ask a cluster: east \(http"
    ):
        world.client.nodes()


def test_the_front_has_metrics(world: World) -> None:
    transport = httpx.HTTPTransport(uds=str(world.folder / "front" / "gantree.sock"))
    with httpx.Client(transport=transport, base_url="http://front") as client:
        answer = client.get("/metrics")
    assert answer.status_code == 200
    assert 'gantree_federation_cluster_ready{cluster="east",region="eu"} 1.0' in answer.text


@pytest.mark.parametrize("query", [{"after": "x"}, {"after": "-1"}, {"limit": "0"}])
def test_pages_of_jobs_that_cannot_be_are_refused(world: World, query: dict[str, str]) -> None:
    with pytest.raises(BadInput, match=next(iter(query))):
        world.client.send(Request("GET", "/v1/jobs", query=query))


def test_a_front_that_is_killed_goes_on_and_takes_nothing_twice(world: World) -> None:
    text = "name: kept\ngang: [{role: w, members: 1, each: {gpus: 1}, run: [sleep, '3600']}]"
    taken = world.client.submit(text, idempotency_key="k", base_dir="/tmp")
    until(lambda: world.job("kept")["phase"] == "running")
    world.kill_front()
    world.start_front()
    again = world.client.submit(text, idempotency_key="k", base_dir="/tmp")
    assert again["jobs"] == taken["jobs"] == [{"job": "kept", "name": "kept", "array": None}]
    until(lambda: all(row["state"] == "ready" for row in world.status().values()))
    until(lambda: world.job("kept")["phase"] == "running")
    world.client.cancel("kept")
    until(lambda: world.job("kept")["phase"] == "cancelled")
    rows = [row for each in world.daemons.values() for row in each.client.jobs()]
    assert len([row for row in rows if row["name"] == "kept"]) == 1


def test_a_cut_link_moves_a_service_at_once_and_training_after_the_lease_and_nothing_runs_twice(
    world: World,
) -> None:
    east, west = world.daemons["east"].client, world.daemons["west"].client
    near = "data: [{name: imagenet, GiB: 1000}]"
    said = world.submit("train", extra=f"{near}\ncheckpoint: {{path: ckpt}}")
    world.client.submit(SERVICE + near)
    until(lambda: world.is_at("train", "east") and "alone" in said.read_text())
    until(lambda: world.replicas() == {"east/chat.1": ["eu", "eu/east"]})
    assert [row["cluster"] for row in world.client.services()] == ["east"]
    assert world.client.service("chat")["replicas"][0]["replica"] == "chat.1"
    with pytest.raises(Conflict, match="chat came by assignment world/chat/1"):
        east.cancel_service("chat", assignment="world/chat/9")
    world.links["east"].cut()
    until(lambda: world.replicas() == {"west/chat.1": ["us", "us/west"]})
    until(lambda: world.is_at("train", "west"))
    until(lambda: said.read_text().count("alone") > 1)
    sentence = world.client.why("train")["sentence"]
    assert "It goes on from its last checkpoint in" in sentence, sentence
    assert east.job("train")["held"]
    world.links["east"].mend()
    until(lambda: world.status()["east"]["state"] == "ready")
    until(lambda: east.job("train")["phase"] == "cancelled")
    until(lambda: east.services() == [])
    until(lambda: world.is_at("train", "west"))
    assert [row["service"] for row in west.services()] == ["chat"]
    for job in ("train", "chat"):
        world.client.cancel(job)
        until(partial(world.has_ended, job))
    assert "TWICE" not in said.read_text()


def is_full(client: Client, job: str) -> bool:
    return bool(client.job(job)["phase"] == "running")


def test_a_job_that_waits_is_moved_to_the_cluster_that_starts_it_at_once(world: World) -> None:
    full = "name: full\ngang: [{role: w, members: 2, each: {gpus: 4}, run: [sleep, '3600']}]"
    clients = {name: daemon.client for name, daemon in world.daemons.items()}
    jobs = {name: each.submit(full)["jobs"][0]["job"] for name, each in clients.items()}
    until(lambda: all(is_full(each, jobs[name]) for name, each in clients.items()))
    said = world.submit("patient")
    until(lambda: world.job("patient")["stage"] == "placed")
    first = world.job("patient")["cluster"]
    (other,) = clients.keys() - {first}
    clients[other].cancel(jobs[other])
    until(lambda: world.is_at("patient", other) and "alone" in said.read_text())
    sentence = world.client.why("patient")["sentence"]
    assert f"patient is in {other} as patient: {other} has the earliest start" in sentence
    assert clients[first].job("patient")["phase"] == "cancelled"
    clients[first].cancel(jobs[first])
    world.client.cancel("patient")
    until(partial(world.has_ended, "patient"))
    assert "TWICE" not in said.read_text()


def test_a_service_of_two_regions_runs_in_both_and_a_lost_copy_waits_for_a_free_region(
    world: World,
) -> None:
    clients = {name: daemon.client for name, daemon in world.daemons.items()}
    pair = SERVICE.replace("chat", "duo")
    world.client.submit(f"{pair}regions: all\n")
    until(lambda: world.replicas().keys() == {"east/duo.1", "west/duo.1"})
    (row,) = world.client.services()
    assert (row["service"], row["ready"], row["wanted"]) == ("duo", 2, 2)
    assert [each["cluster"] for each in row["clusters"]] == ["east", "west"]
    replicas = world.client.service("duo")["replicas"]
    assert [each["replica"] for each in replicas] == ["east/duo.1", "west/duo.1"]
    assert "duo.region2 is in west" in world.client.why("duo")["sentence"]
    world.links["east"].cut()
    until(lambda: world.replicas().keys() == {"west/duo.1"})
    until(lambda: world.job("duo")["stage"] == "choosing")
    world.links["east"].mend()
    until(lambda: world.replicas().keys() == {"east/duo.1", "west/duo.1"})
    with pytest.raises(BadInput, match=r"regions: there is no mars; there are eu, us"):
        world.client.submit(f"{pair}regions: [mars]\n")
    with pytest.raises(Unsupported, match="regions: a cluster is in one"):
        clients["east"].submit(f"{SERVICE}regions: 2\n")
    world.client.submit(f"{pair.replace('replicas: 1', 'replicas: 2')}regions: [us]\n")
    until(lambda: world.replicas().keys() == {"west/duo.1", "west/duo.2"})
    until(lambda: clients["east"].services() == [])
    world.client.cancel_service("duo")
    until(lambda: clients["west"].services() == [])
    until(partial(world.has_ended, "duo.region2"))


def test_a_daemon_that_is_killed_leaves_nothing_running_beyond_the_lease(world: World) -> None:
    near = "data: [{name: imagenet, GiB: 1000}]"
    said = world.submit("orphan", extra=near)
    until(lambda: world.is_at("orphan", "east") and "alone" in said.read_text())
    world.daemons["east"].kill()
    until(lambda: world.is_at("orphan", "west"))
    until(lambda: said.read_text().count("alone") > 1)
    world.daemons["east"].start()
    until(lambda: world.status()["east"]["state"] == "ready")
    there = world.daemons["east"].client.job("orphan")
    assert (there["phase"], there["failures"]) == ("cancelled", 0)
    until(lambda: world.is_at("orphan", "west"))
    world.client.cancel("orphan")
    until(lambda: world.job("orphan")["phase"] == "cancelled")
    assert "TWICE" not in said.read_text()


def test_requests_go_to_the_nearest_region_with_room_and_each_cluster_gets_its_part(
    world: World,
) -> None:
    haproxy()
    scale = "scale: {on: {metric: concurrency, target: 1}, every: 500ms, down: {stabilise: 1h}}"
    route = "route: {concurrency: 2, models: [tiny]}"
    for daemon in world.daemons.values():
        daemon.client.submit(text("web", "{min: 1, max: 2}", more=f"{scale}\n{route}"))
    until(lambda: {"east/web.1", "west/web.1"} <= world.replicas().keys())

    def regions(count: int) -> list[str]:
        """The clusters that have answered so many requests at once."""
        with ThreadPoolExecutor(count) as pool:
            return sorted(pool.map(lambda _: answered_by(url), range(count)))

    with Program("-c", ROUTE, str(world.folder / "front"), "us") as router:
        url = re.findall(r"http://\S+", router.says("listens at"))[0]
        until(lambda: regions(1) == ["west"])
        until(lambda: regions(4) == ["east", "east", "west", "west"])  # two at once fill it
        until(lambda: regions(2) and world.daemons["west"].client.service("web")["wanted"] == 2)
        assert regions(1) == ["west"]
        world.links["west"].cut()
        until(lambda: regions(1) == ["east"])
        world.links["west"].mend()
        until(lambda: regions(1) == ["west"])
        until(lambda: world.daemons["east"].client.service("web")["load"])
        assert router.stop() == 0
    for daemon in world.daemons.values():
        daemon.client.cancel_service("web")


def answered_by(url: str) -> str:
    """The cluster whose replica answers a completion; what came instead where none does."""
    body = json.dumps({"model": "tiny", "prompt": "x", "max_tokens": 1}).encode()
    try:
        with urlopen(f"{url}/v1/completions", body, timeout=60) as answer:
            return str(answer.headers["X-Gantree-Chosen"]).partition("/")[0]
    except OSError as error:
        return repr(error)
