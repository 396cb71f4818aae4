"""Services on a real daemon: real servers as replicas, probed, scaled, drained, updated, killed and taken over.

The server is that of examples/services. What must hold at any moment of an update is read from the facts on record,
which have every moment; nothing here depends on how fast the machine is.
"""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from gantree.model.errors import BadFields, BadInput, Conflict, NotFound
from support.daemon import Daemon
from support.services import CLUSTER, SERVER, WITHIN_S, Json, Site, ask, figure, text


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Daemon(tmp_path_factory.mktemp("services") / "state", CLUSTER) as daemon:
        yield Site(daemon)


def test_a_service_is_submitted_and_its_replicas_answer_where_the_table_says(site: Site) -> None:
    before = site.client.routes()["version"]
    site.submit("one", "{min: 2, max: 3}")
    row = site.until_ready("one", 2)
    assert (row["state"], row["wanted"], row["revision"]) == ("ready", 2, 1)
    routes = site.routes("one")
    assert [(each["replica"], each["ready"], each["draining"]) for each in routes] == [
        ("one.1", True, False),
        ("one.2", True, False),
    ]
    assert [ask(each)["system_fingerprint"] for each in routes] == ["one.1", "one.2"]
    assert routes[0]["place"] == ["l0", routes[0]["node"]]
    assert site.client.routes(before)["version"] != before
    assert "2 are ready" in site.client.why("one")["sentence"]
    site.client.cancel_service("one")
    site.until(lambda: site.client.service("one")["state"] == "ended")
    with pytest.raises(Conflict, match="has ended"):
        site.client.scale_service("one", 2)


def test_a_router_that_waits_is_told_when_a_row_changes(site: Site) -> None:
    site.submit("told", "{min: 1, max: 2}")
    site.until_ready("told", 1)
    version = site.client.routes()["version"]
    assert site.client.routes(version)["version"] == version
    told: list[Json] = []
    waiting = threading.Thread(
        target=lambda: told.append(site.client.routes(version, wait_s=WITHIN_S))
    )
    waiting.start()
    site.client.scale_service("told", 2)
    waiting.join(WITHIN_S)
    assert int(told[0]["version"]) > int(version)


def test_a_drain_ends_as_soon_as_routers_have_no_request_left_and_no_sooner(site: Site) -> None:
    site.submit("drains", "{min: 1, max: 2}", seconds="1.5", drain="1h")
    site.client.scale_service("drains", 2)
    site.until_ready("drains", 2)
    last = site.routes("drains")[1]
    answers: list[Json] = []
    asking = threading.Thread(target=lambda: answers.append(ask(last)))
    asking.start()
    site.until(lambda: " 1\n" in figure(last, "vllm:num_requests_running"))
    site.client.scale_service("drains", 1)
    site.until(lambda: site.routes("drains")[1]["draining"])
    site.report("drains", 1, "drains.2")
    asking.join(WITHIN_S)
    assert answers[0]["system_fingerprint"] == "drains.2"
    assert site.client.job("drains.2")["phase"] == "running"
    load = site.client.service("drains")["load"]
    assert (load["in_flight"], load["rate"]) == (1, 4.0)
    site.report("drains")
    ended = site.daemon.wait("drains.2", within_s=WITHIN_S)
    assert (ended["phase"], ended["reason"]) == ("cancelled", "scaled down to 1")
    site.client.cancel_service("drains")
    site.until(lambda: site.client.service("drains")["draining"])
    site.report("drains")
    site.until(lambda: site.client.service("drains")["state"] == "ended")


def test_an_update_never_leaves_fewer_replicas_than_are_wanted(site: Site) -> None:
    site.submit("rolls", "3", drain="100ms")
    site.until_ready("rolls", 3)
    site.submit("rolls", "3", "other", drain="100ms")
    row = site.until_ready("rolls", 3)
    assert (row["revision"], {each["revision"] for each in row["replicas"]}) == (2, {2})
    assert {ask(each)["model"] for each in site.routes("rolls")} == {"other"}
    assert site.fewest_ready("rolls", 3) == 3
    site.client.cancel_service("rolls")


def test_a_replica_that_is_killed_starts_again_elsewhere_in_the_table(site: Site) -> None:
    site.submit("dies", "1")
    (before,) = site.until_ready("dies", 1)["replicas"]
    os.kill(site.process_of("dies.1"), signal.SIGKILL)
    site.until(lambda: (rows := site.routes("dies")) == [] or rows[0]["attempt"] == 2)
    (after,) = site.until_ready("dies", 1)["replicas"]
    assert (before["attempt"], after["attempt"], after["failures"]) == (1, 2, 1)
    assert ask(site.routes("dies")[0])["system_fingerprint"] == "dies.1"
    site.client.cancel_service("dies")


def test_a_replica_that_answers_badly_is_not_ready_and_says_why(site: Site) -> None:
    site.submit("ill", "1", ready="{http: /nothing, every: 50ms, failures: 1}")
    site.until(lambda: "answers 404" in site.client.service("ill")["replicas"][0]["reason"])
    assert [(each["ready"], each["draining"]) for each in site.routes("ill")] == [(False, False)]
    site.client.cancel_service("ill")


def test_readiness_on_record_is_looked_at_anew_by_the_next_daemon(site: Site) -> None:
    site.submit("hangs", "1", ready="{http: /health, every: 50ms, timeout: 200ms, failures: 2}")
    site.until_ready("hangs", 1)
    site.daemon.kill()
    process = site.process_of("hangs.1")
    os.kill(process, signal.SIGSTOP)
    site.daemon.start()
    row = site.until(lambda: not (found := site.client.service("hangs"))["ready"] and found)
    assert "no answer from /health" in row["replicas"][0]["reason"]
    os.kill(process, signal.SIGCONT)
    (replica,) = site.until_ready("hangs", 1)["replicas"]
    assert (replica["attempt"], replica["failures"]) == (1, 0)
    told = [
        fact["data"]["ready"]
        for fact in site.facts("hangs")
        if fact["fact"] == "ReplicaReadinessNoted"
    ]
    assert len(told) >= 3 and told == [number % 2 == 0 for number in range(len(told))]
    site.client.cancel_service("hangs")


def test_an_update_goes_on_after_the_daemon_was_killed_in_the_middle(site: Site) -> None:
    site.submit("lives", "2", drain="100ms")
    old = {each["replica"]: each["port"] for each in site.until_ready("lives", 2)["replicas"]}
    site.submit("lives", "2", "other", drain="100ms")
    site.until(lambda: len(site.client.service("lives")["replicas"]) > 2)
    site.daemon.kill()
    answers = [ask({"host": "127.0.0.1", "port": port}) for port in old.values()]
    assert [each["model"] for each in answers] == ["tiny", "tiny"]
    site.daemon.start()
    row = site.until_ready("lives", 2)
    assert {each["revision"] for each in row["replicas"]} == {2}
    assert {ask(each)["model"] for each in site.routes("lives")} == {"other"}
    assert site.fewest_ready("lives", 2) == 2
    assert all(each["attempt"] == 1 for each in row["replicas"])
    site.client.cancel_service("lives")


def test_what_is_wrong_is_refused_and_changes_nothing(site: Site) -> None:
    site.submit("bad", "{min: 1, max: 2}")
    site.until_ready("bad", 1)
    with pytest.raises(BadInput, match="allowed for bad: 1 to 2"):
        site.client.scale_service("bad", 3)
    with pytest.raises(BadFields, match="array"):
        site.client.submit(text("bad", more="array: 0-3"))
    with pytest.raises(BadInput, match="spread: found rack; allowed: leaf, node"):
        site.client.submit(text("bad", spread="rack"))
    with pytest.raises(BadInput, match="nobody"):
        site.client.submit(text("bad", priority="nobody"))
    with pytest.raises(NotFound, match="it is a service"):
        site.client.record("bad")
    assert site.client.service("bad")["revision"] == 1
    job = "name: bad\ngang: [{role: r, members: 1, run: ['true']}]\n"
    assert site.client.submit(job)["jobs"][0]["job"] == "bad-2"
    second = text("bad.1")
    with pytest.raises(Conflict, match=r"bad\.1 is the id of a job"):
        site.client.submit(second)
    site.client.cancel_service("bad")


def test_a_submission_that_is_sent_again_is_taken_once(site: Site) -> None:
    first = site.client.submit(text("again"), idempotency_key="k1")
    site.until_ready("again", 1)
    site.submit("again", "1", "other")
    assert site.client.submit(text("again"), idempotency_key="k1") == first
    assert site.client.service("again")["revision"] == 2
    site.client.cancel_service("again")


def test_requests_to_a_replica_of_several_roles_go_to_its_first_member(site: Site) -> None:
    example = SERVER.parent / "disaggregated.yaml"
    site.client.submit(example.read_text(), base_dir=str(example.parent))
    site.until_ready("llama", 2)
    routes = site.routes("llama")
    assert [ask(each)["model"] for each in routes] == ["llama-70b"] * 2
    site.client.cancel_service("llama")
