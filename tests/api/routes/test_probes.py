"""What watches a daemon: its metrics, probes and log, as a real one gives them; the dashboard and alerts on them."""

import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from gantree.api.client.client import Client
from gantree.api.http.unix_socket import FILE as SOCKET
from gantree.journal.sqlite import FILE as JOURNAL
from gantree.routing.cache_events.blocks import Prompt
from gantree.routing.cache_events.match import Held, Match
from gantree.routing.measurements import Now, Record
from gantree.routing.route_metrics import RouteMetrics
from gantree.routing.table import RoutedReplica, RoutedService, RouteTable
from support.daemon import Daemon, Program
from support.yaml_text import read_yaml

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
CLUSTER = """
name: pair
tiers: [leaf, node]
machines:
  m8: {gpus: 8, gpu: H100-80GB, cpus: 96, memory_GiB: 1024, nics: 8}
nodes:
  - {names: "n[0-1]", machine: m8, at: {leaf: l0}}
"""
JOB = "name: {name}\ngang:\n  - {{role: w, members: {members}, each: {{gpus: {gpus}}}, run: [sleep, '{s}']}}\n"
LABELS = {
    "version", "queue", "use", "tier", "kind", "gate", "cause", "purpose", "transaction", "route", "status", "le",
    "listener", "sign", "state", "service",
}  # fmt: skip
SERVICE_LABELS = {
    f"gantree_service_{name}": frozenset({"service", *labels})
    for name, *labels in (
        ("replicas", "state"),
        ("open_requests", "state"),
        ("held_gpus",),
        ("request_rate",),
        ("error_rate",),
        ("token_rate",),
        ("latency_p50_seconds",),
        ("latency_p99_seconds",),
        ("first_token_p99_seconds",),
    )
}
FUNCTIONS = frozenset(
    [
        "absent",
        "and",
        "changes",
        "histogram_quantile",
        "increase",
        "max",
        "or",
        "rate",
        "sum",
        "time",
    ]
)
PROMETHEUS_ADDS = frozenset({"instance", "job"})


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("watched") / "state", CLUSTER) as daemon:
        daemon.client.submit(JOB.format(name="holder-of-all", members=2, gpus=8, s=60))
        daemon.wait("holder-of-all", until="running")
        daemon.client.submit(JOB.format(name="waits-for-room", members=1, gpus=8, s=0))
        yield daemon


@pytest.fixture(scope="module")
def http(daemon: Daemon) -> Iterator[httpx.Client]:
    with connected(daemon.state_dir) as client:
        yield client


def connected(state_dir: Path) -> httpx.Client:
    transport = httpx.HTTPTransport(uds=str(state_dir / SOCKET))
    return httpx.Client(transport=transport, base_url="http://localhost", timeout=300)


def families(http: httpx.Client) -> list[Metric]:
    answer = http.get("/metrics")
    assert answer.status_code == 200
    return list(text_string_to_metric_families(answer.text))


def samples(http: httpx.Client) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families(http)
        for sample in family.samples
    }


def sample(http: httpx.Client, name: str, **labels: str) -> float:
    return samples(http)[name, frozenset(labels.items())]


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not what():
        assert time.monotonic() < deadline, "it has not come to that"
        time.sleep(0.05)


def test_metrics_tell_of_queues_gpus_and_refusals(http: httpx.Client) -> None:
    until(lambda: sample(http, "gantree_queue_waiting_jobs", queue="default") == 1)
    found = samples(http)

    def one(name: str, **labels: str) -> float:
        return found[name, frozenset(labels.items())]

    assert one("gantree_queue_running_gangs", queue="default") == 1
    assert one("gantree_queue_held_gpus", queue="default") == 16
    assert one("gantree_gpu_utilisation_ratio") == 1
    assert one("gantree_waiting_jobs", gate="ROOM") == 1
    assert one("gantree_refusals_total", gate="ROOM") == 1
    assert one("gantree_facts_total", kind="GangPlaced") == 1
    assert one("gantree_orders_total", kind="StartGang") == 1
    assert one("gantree_turn_seconds_count") >= one("gantree_decision_seconds_count") >= 3
    assert one("gantree_http_requests_total", route="POST /v1/jobs", status="201") == 2
    assert one("gantree_epoch") == 1


def test_metrics_keep_to_the_conventions_and_name_no_job(http: httpx.Client) -> None:
    text = http.get("/metrics").text
    assert "holder-of-all" not in text
    assert "waits-for-room" not in text
    for family in families(http):
        assert family.name.startswith("gantree_"), family.name
        assert family.documentation, family.name
        assert family.type != "counter" or all(
            each.name.endswith(("_total", "_created")) for each in family.samples
        ), family.name
        assert not re.search(r"_(ms|us|minutes|hours|percent|kb|mb)(_|$)", family.name), family.name
        assert {label for each in family.samples for label in each.labels} <= LABELS, family.name


def test_a_path_that_somebody_made_up_is_no_label(http: httpx.Client) -> None:
    for path in ("/v1/nothing", "/v1/jobs/no-such-job", "/etc/passwd"):
        assert http.get(path).status_code == 404
    http.request("BREW", "/v1/jobs")
    routes = {dict(labels)["route"] for name, labels in samples(http) if "http_requests" in name}
    assert "(unknown)" in routes
    assert not [route for route in routes if "nothing" in route or "no-such" in route]
    assert not [route for route in routes if "BREW" in route]
    assert (
        sample(http, "gantree_http_requests_total", route="GET /v1/jobs/{word}", status="404") == 1
    )


def test_open_streams_are_counted_until_they_end(daemon: Daemon, http: httpx.Client) -> None:
    def open_now() -> float:
        return samples(http).get(
            ("gantree_http_open_streams", frozenset({("route", "GET /v1/facts")})), 0.0
        )

    with (
        connected(daemon.state_dir) as other,
        other.stream("GET", "/v1/facts", params={"follow": "1"}) as facts,
    ):
        lines = facts.iter_lines()  # kept: the answer is closed with it
        assert next(lines)
        assert open_now() == 1
    daemon.client.submit(JOB.format(name="wakes-the-stream", members=1, gpus=1, s=0))
    until(lambda: open_now() == 0)


def test_probes_need_nobody_and_say_who_leads(http: httpx.Client) -> None:
    assert http.get("/healthz").json() == {"alive": True}
    ready = http.get("/readyz")
    assert (ready.status_code, ready.json()["role"]) == (200, "leader")
    assert ready.json()["epoch"] == 1


def test_a_daemon_whose_journal_cannot_be_written_is_alive_and_not_ready(tmp_path: Path) -> None:
    with Daemon(tmp_path / "state", CLUSTER) as daemon, connected(daemon.state_dir) as http:
        other = sqlite3.connect(daemon.state_dir / JOURNAL, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        unready = http.get("/readyz")
        assert unready.status_code == 503
        assert unready.headers["content-type"] == "application/problem+json"
        assert "control loop" in unready.json()["detail"] or "locked" in unready.json()["detail"]
        assert http.get("/healthz").status_code == 200
        assert "gantree_turn_seconds_count" in http.get("/metrics").text, "no scrape waits for it"
        other.execute("ROLLBACK")
        other.close()
        until(lambda: http.get("/readyz").status_code == 200)


def test_the_log_of_a_daemon_is_json_with_the_cause_of_each_order(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    state = tmp_path / "state"
    words = ("up", "--cluster", str(tmp_path / "cluster.yaml"), "--state", str(state))
    with Program(*words, "--log-level", "info") as daemon:
        said = []
        while " ready: " not in (line := daemon.said.readline()):
            said.append(line)
            assert line, said
        client = Client(state)
        client.submit(JOB.format(name="a", members=1, gpus=1, s=0))
        assert client.job("a", wait_s=300)["phase"] == "succeeded"
        assert daemon.stop() == 0
        said += daemon.said
    assert said.pop() == "stopped; no gang was running\n"
    lines = [json.loads(line) for line in said]
    (order,) = [line for line in lines if line["event"] == "order a/1/start: StartGang"]
    fields = {name: order[name] for name in ("job", "attempt", "cause", "epoch", "level")}
    assert fields == {
        "job": "a", "attempt": 1, "cause": "a/submitted", "epoch": 1, "level": "info",
    }  # fmt: skip
    assert order["turn"] >= 2
    assert [
        line for line in lines if line.get("route") == "POST /v1/jobs" and line["status"] == 201
    ]


def metrics_in(expression: str) -> set[str]:
    """The names of metrics in an expression of PromQL: words that are no function, label, duration or text."""
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', "", expression)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", bare)
    bare = re.sub(r"\b(by|on|ignoring|without|group_left)\s*\([^)]*\)", "", bare)
    return set(re.findall(r"[a-zA-Z_:][a-zA-Z0-9_:]*", bare)) - FUNCTIONS


def labels_in(expression: str) -> set[str]:
    """The labels that an expression of PromQL selects or groups by."""
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expression)
    groups = re.findall(r"\b(?:by|on|ignoring|without|group_left)\s*\(([^)]*)\)", bare)
    selected = re.findall(r"([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)\s*\"\"", bare)
    return {name.strip() for group in groups for name in group.split(",") if name.strip()} | set(
        selected
    )


def check_expression(expression: str, known: dict[str, set[str]]) -> None:
    """Raise AssertionError for brackets that do not match, names that /metrics lacks, labels that they do not have."""
    for left, right in ("()", "[]", "{}"):
        assert expression.count(left) == expression.count(right), expression
    named = metrics_in(expression)
    assert named, f"no metric in {expression}"
    assert named <= known.keys(), f"{sorted(named - known.keys())} in {expression}"
    had = set().union(*(known[name] for name in named)) | PROMETHEUS_ADDS
    assert labels_in(expression) <= had, f"{sorted(labels_in(expression) - had)} in {expression}"


@pytest.fixture(scope="module")
def known(http: httpx.Client) -> dict[str, set[str]]:
    """The names of samples that a daemon tells, with their labels."""
    found: dict[str, set[str]] = {}
    for family in families(http):
        found.setdefault(family.name if family.type != "counter" else family.name + "_total", set())
        for each in family.samples:
            found.setdefault(each.name, set()).update(each.labels)
    streams = "gantree_http_open_streams"
    found[streams].add("route")  # none may have been opened yet
    for name in ("used_ratio", "forecast_ratio", "closed"):  # its policy has no budgets
        found[f"gantree_budget_{name}"] |= {"queue", "period"}
    for name in found.keys() & SERVICE_LABELS.keys():  # none runs
        found[name] |= SERVICE_LABELS[name]
    return found | routers_metrics()


def routers_metrics() -> dict[str, set[str]]:
    """The names of samples that a router tells, with their labels."""
    metrics = RouteMetrics()
    metrics.record("chat", Record("chat", "chat.1_1", 502, 0.1, 0.2, 1, "closest", is_shed=False))
    replica = RoutedReplica("chat.1", 1, "127.0.0.1", 8000)
    metrics.sample(RouteTable((RoutedService("chat", replicas=(replica,)),)), Now({}, {}), 0.0)
    metrics.looked_up("chat", None, 0.01)
    metrics.looked_up("chat", Match(Prompt((1, 2), "chat"), {"chat.1_1": 2}), 0.01)
    metrics.sample_cache("chat", Held(1, 1, 0))
    found: dict[str, set[str]] = {}
    for family in metrics.registry.collect():
        for each in family.samples:
            if not each.name.endswith("_created"):
                found.setdefault(each.name, set()).update(each.labels)
    return found


def rules() -> list[dict[str, Any]]:
    groups = read_yaml((DEPLOY / "prometheus" / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_is_well_formed_and_uses_metrics_that_exist(
    rule: dict[str, Any], known: dict[str, set[str]]
) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"Gantree[A-Za-z]+", rule["alert"])
    assert re.fullmatch(r"\d+[smhd]", rule.get("for", "0s"))
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert set(rule["annotations"]) == {"summary", "action"}
    check_expression(rule["expr"], known)


def test_every_alert_says_above_it_where_its_threshold_comes_from() -> None:
    lines = (DEPLOY / "prometheus" / "alerts.yaml").read_text().splitlines()
    above = [lines[number - 1] for number, line in enumerate(lines) if "- alert:" in line]
    assert above
    assert [line for line in above if not line.strip().startswith("#")] == []


def test_the_dashboard_uses_metrics_that_exist(known: dict[str, set[str]]) -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "gantree.json").read_text())
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert len(panels) > 20
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for panel in panels:
        for target in panel["targets"]:
            check_expression(target["expr"], known)
            shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            had = set().union(*(known[name] for name in metrics_in(target["expr"])))
            assert shown <= had | PROMETHEUS_ADDS


def test_the_dashboard_or_an_alert_shows_every_metric(known: dict[str, set[str]]) -> None:
    texts = [rule["expr"] for rule in rules()]
    dashboard = json.loads((DEPLOY / "grafana" / "gantree.json").read_text())
    texts += [
        target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())
    ]
    used = set().union(*map(metrics_in, texts))
    shown = {re.sub(r"_(bucket|count|sum)$", "", name) for name in used}
    assert {re.sub(r"_(bucket|count|sum)$", "", name) for name in known} - shown == set()


def test_the_page_of_metrics_lists_what_is_told(http: httpx.Client) -> None:
    page = (DEPLOY.parent / "docs" / "observability.md").read_text()
    listed = set(re.findall(r"^\| `(gantree_\w+)`", page, flags=re.MULTILINE))
    told = {
        family.name + ("_total" if family.type == "counter" else "") for family in families(http)
    }
    assert listed == told


@pytest.mark.parametrize(
    "expression",
    [
        "rate(gantree_nothing_total[5m]) > 0",
        "sum by (job_id) (gantree_gpus)",
        'gantree_gpus{colour="red"}',
        "sum(gantree_gpus",
        "1 > 0",
    ],
)
def test_the_check_of_expressions_sees(expression: str, known: dict[str, set[str]]) -> None:
    with pytest.raises(AssertionError):
        check_expression(expression, known)
