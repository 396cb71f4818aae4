"""The notifier, round by round, on real journals and a real receiver, with a clock of the test's own."""

import asyncio
import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gantree.api.observability import log_format
from gantree.api.observability.log_format import Format, Level
from gantree.control.engine.controller import Controller
from gantree.control.metrics.metrics import Metrics
from gantree.control.notifications import delivery
from gantree.control.notifications import notifier as notifying
from gantree.control.notifications.delivery import Sender
from gantree.control.notifications.messages import announced, spec_of
from gantree.control.notifications.notifier import Notifier
from gantree.control.notifications.settings import (
    NotifySettings,
    check_notify,
    target_of,
    unannounced_budgets,
)
from gantree.control.requests.submission_checks import Receipt
from gantree.control.requests.submissions import JobSubmission
from gantree.journal.notification_store import NotificationStore
from gantree.journal.postgres import PostgresJournal
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sqlite import SqliteJournal
from gantree.model.errors import NotLeading, Unsupported
from gantree.model.events import CancelRequested, GangEnded, GangStarted
from gantree.model.idle_facts import GangIdleWarned, GangReclaimed
from gantree.model.jobs import SERVICE_NOTIFY_EVENTS, Job, Notify, Restarts
from gantree.model.services import ServiceSpec
from gantree.policy.rules import Budget, Policy, QueueRule
from gantree.testing.builders import cluster, job
from support.receivers import MailReceiver, Posted, WebhookReceiver
from support.recording import RecordingCluster

EVENTS = ("start", "end", "failure", "preemption")


def test_an_idle_gang_is_announced_with_what_comes_and_how_to_prevent_it() -> None:
    warned = GangIdleWarned(at=600.0, job="j", attempt=2, action="stop", reclaim_at=900.0)
    alone = GangIdleWarned(at=600.0, job="j", attempt=2, action="warn")
    reclaimed = GangReclaimed(at=900.0, job="j", attempt=2, action="stop", since=0.0)
    told = [announced(fact) for fact in (warned, alone, reclaimed)]
    assert {(one.job, one.event, one.attempt) for one in told} == {("j", "idle", 2)}
    assert [one.reason for one in told] == [
        "its GPUs do not compute; stop in 5 min (gantree extend j 2h)",
        "its GPUs do not compute",
        "reclaimed after 15 min: stop",
    ]


@pytest.fixture(params=["sqlite", "postgres"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> SqlJournal:
    if request.param == "sqlite":
        return SqliteJournal(tmp_path)
    return PostgresJournal(request.getfixturevalue("database_url"))


class Site:
    """A controller whose jobs may be announced, and rounds of a notifier, each on a new one as after a kill -9."""

    def __init__(self, journal: SqlJournal, settings: NotifySettings) -> None:
        self.settings = settings
        self.journal = journal
        self.store = NotificationStore(journal.database)
        self.store.begin()
        self.controller = Controller(
            journal, Policy(), RecordingCluster, site=cluster(leaves=1, nodes=2), notify=settings
        )
        self.controller.recover()
        self.metrics = Metrics()
        self.now = self.controller.clock()

    def submit(self, name: str, url: str | None, *, mail: str | None = None, **fields: Any) -> Job:
        asked = replace(job(name, gpus=8), notify=Notify(EVENTS, url, mail), **fields)
        self.controller.submit([asked], None, {}, "ann")
        self.controller.step()
        return asked

    def run(self, name: str, exit_code: int | None = 0) -> None:
        """Let it start, and end unless exit_code is None."""
        at = self.controller.clock()
        started = GangStarted(id=f"{name}/started", job=name, attempt=1, observed_at=at)
        self.controller.inbox.enqueue(started)
        self.controller.step()
        if exit_code is not None:
            ended = GangEnded(
                id=f"{name}/ended", job=name, attempt=1, exit_code=exit_code, observed_at=at
            )
            self.controller.inbox.enqueue(ended)
            self.controller.step()
        self.now = self.controller.clock()

    def serve(self, url: str) -> None:
        """Submit the service `chat`, of one replica."""
        notify, restarts = Notify(SERVICE_NOTIFY_EVENTS, url, None), Restarts(backoff_s=0.0)
        replica = replace(job("chat", gpus=8), notify=notify, restarts=restarts)
        asked = JobSubmission((), user="ann", services=[ServiceSpec("chat", replica)])
        (taken,) = self.controller.submit_batch([asked])
        assert isinstance(taken, Receipt), taken
        self.controller.step()

    def attempt(self, name: str, attempt: int, exit_code: int) -> None:
        """Let an attempt start and end."""
        said, at = f"{name}/{attempt}", self.controller.clock()
        for event in (
            GangStarted(id=f"{said}/started", job=name, attempt=attempt, observed_at=at),
            GangEnded(
                id=f"{said}/ended", job=name, attempt=attempt, exit_code=exit_code, observed_at=at
            ),
        ):
            self.controller.inbox.enqueue(event)
            self.controller.step()
        self.now = self.controller.clock()

    def new_notifier(self) -> Notifier:
        async def budget_notify(queue: str, period: str) -> Notify | None:
            return None

        async def live_spec(name: str) -> Job | None:
            return spec_of(self.controller.ledger, name)

        sender = Sender(self.settings)
        return Notifier(
            self.journal,
            self.store,
            sender,
            self.metrics,
            live_spec,
            budget_notify,
            lambda: self.now,
        )

    def round(self, notifier: Notifier | None = None) -> Notifier:
        """Scan and deliver once."""

        async def once() -> Notifier:
            now = notifier or self.new_notifier()
            await now.scan()
            await now.deliver()
            return now

        return asyncio.run(once())

    def count(self, channel: str, outcome: str) -> float:
        labels = {"channel": channel, "outcome": outcome}
        name = "gantree_notifications_total"
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


MakeSite = Callable[..., Site]


@pytest.fixture
def site_of(journal: SqlJournal, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeSite]:
    """On a slow machine a round may take longer than a daemon lets it."""
    monkeypatch.setattr(notifying, "ROUND_S", 300.0)
    monkeypatch.setattr(delivery, "SEND_WITHIN_S", 60.0)
    made: list[Site] = []

    def make(*hosts: str, smtp: str = "") -> Site:
        host, _, port = smtp.partition(":")
        server = (host, int(port)) if smtp else None
        made.append(Site(journal, NotifySettings(frozenset(hosts), server, "gantree@example.org")))
        return made[0]

    yield make
    for site in made:
        site.controller.close()


def told(posted: list[Posted]) -> list[tuple[str, str, str, int | None, int]]:
    names = ("job", "event", "phase", "exit_code", "attempt")
    return [tuple(each.body[name] for name in names) for each in posted]


def test_each_event_is_posted_once_by_whichever_notifier_comes(site_of: MakeSite) -> None:
    with WebhookReceiver() as receiver:
        site = site_of(receiver.host)
        site.submit("a", receiver.url())
        site.run("a", exit_code=None)
        site.round()
        site.round()
        assert told(receiver.all()) == [("a", "start", "running", None, 1)]
        site.run("a", exit_code=0)
        site.submit("quiet", None, mail=None)
        site.run("quiet")
        site.round()
        site.round()
        assert told(receiver.all())[1:] == [("a", "end", "succeeded", 0, 1)]
        first, last = receiver.all()
        assert first.key != last.key
        assert last.body | {"at": 0, "id": ""} == {
            "id": "", "job": "a", "name": "a", "queue": "default", "user": "ann", "event": "end", "at": 0,
            "phase": "succeeded", "exit_code": 0, "reason": "all ranks ended with 0", "attempt": 1,
        }  # fmt: skip
        assert site.count("webhook", "delivered") == 2


def test_a_receiver_that_fails_gets_the_same_message_again_and_others_need_not_wait(
    site_of: MakeSite,
) -> None:
    statuses = iter([503, 503])
    with WebhookReceiver(answer=lambda path: next(statuses, 204)) as bad, WebhookReceiver() as good:
        site = site_of(bad.host, good.host)
        site.submit("a", bad.url("/secret"))
        site.submit("b", good.url())
        site.run("a", exit_code=None)
        site.run("b", exit_code=None)
        notifier = site.round()
        assert (len(bad.all()), len(good.all())) == (1, 1)
        site.round(notifier)
        assert len(bad.all()) == 1  # it is left alone for a second
        for wait_s in (1.1, 2.1, 4.1):
            site.now += wait_s
            site.round(notifier)
        assert [each.status for each in bad.all()] == [503, 503, 204]
        assert len({each.key for each in bad.all()}) == 1
        assert site.count("webhook", "failed") == 2


def test_a_redirect_is_not_followed_and_refusals_are_given_up_without_the_url_in_the_log(
    site_of: MakeSite, kept_logging: None
) -> None:
    lines = io.StringIO()
    log_format.set_up(Level.DEBUG, Format.JSON, lines)
    with WebhookReceiver(answer=lambda path: 302) as receiver:
        site = site_of(receiver.host)
        site.submit("a", receiver.url("/token-of-mine"))
        site.run("a", exit_code=None)
        notifier = site.round()
        for _ in range(notifying.MOST_REFUSALS + 2):
            site.now += notifying.LONGEST_WAIT_S
            site.round(notifier)
        assert {each.path for each in receiver.all()} == {"/token-of-mine"}
        assert len(receiver.all()) == notifying.MOST_REFUSALS
        assert site.count("webhook", "given-up") == 1
        assert "given up: HTTP status 302" in lines.getvalue()
        assert "token-of-mine" not in lines.getvalue()


def test_what_cannot_be_delivered_for_a_day_is_given_up_and_said_once(
    site_of: MakeSite, caplog: pytest.LogCaptureFixture
) -> None:
    with WebhookReceiver() as gone:
        pass
    site = site_of(gone.host)
    site.submit("a", gone.url())
    site.run("a")
    site.round()
    site.now += notifying.GIVE_UP_AFTER_S + 60
    site.round()
    site.round()
    assert caplog.text.count("2 notifications to") == 1
    assert site.count("webhook", "given-up") == 2


def test_a_host_that_was_taken_off_the_list_is_sent_nothing(site_of: MakeSite) -> None:
    with WebhookReceiver() as receiver:
        site = site_of(receiver.host)
        site.submit("a", receiver.url())
        site.run("a")
        site.settings = NotifySettings(frozenset({"elsewhere"}))
        site.round()
        assert receiver.all() == []
        assert site.count("webhook", "given-up") == 2


def test_mail_says_what_happened(site_of: MakeSite) -> None:
    with MailReceiver() as server:
        site = site_of(smtp=server.host)
        site.submit("a", None, mail="ann@example.org")
        site.run("a", exit_code=None)
        site.round()
        site.round()
        (mail,) = server.all()
        assert (mail.sender, mail.recipients) == ("gantree@example.org", ["ann@example.org"])
        assert mail.message["Subject"] == "gantree: job a started"
        assert mail.message["Message-ID"].endswith(".a@example.org>")
        assert "attempt: 1" in mail.message.get_payload().splitlines()


def test_a_mail_server_that_refuses_for_good_is_given_up(site_of: MakeSite) -> None:
    with MailReceiver(refuse="550 nobody of that name") as server:
        site = site_of(smtp=server.host)
        site.submit("a", None, mail="nobody@example.org")
        site.run("a", exit_code=None)
        notifier = site.round()
        for _ in range(notifying.MOST_REFUSALS):
            site.now += notifying.LONGEST_WAIT_S
            site.round(notifier)
        assert server.all() == []
        assert site.count("mail", "given-up") == 1


def test_elements_of_an_array_are_announced_each_and_those_cancelled_together_as_one(
    site_of: MakeSite,
) -> None:
    with WebhookReceiver() as receiver:
        site = site_of(receiver.host)
        site.submit("s", receiver.url(), array=((0, 199),))
        site.run("s-0", exit_code=0)
        at = site.controller.clock()
        site.controller.inbox.append([CancelRequested(id="c", observed_at=at, job="s")])
        site.controller.step()
        site.now = site.controller.clock()
        notifier = site.round()
        for _ in range(3):
            site.round(notifier)
        posted = told(receiver.all())
        assert ("s-0", "start", "running", None, 1) in posted
        assert ("s-0", "end", "succeeded", 0, 1) in posted
        assert ("s", "end", "cancelled", None, 0) in posted
        assert len(posted) == len(set(posted)) < 200


def test_facts_from_before_notifications_were_switched_on_are_not_announced(
    journal: SqlJournal,
) -> None:
    with WebhookReceiver() as receiver:
        controller = Controller(
            journal, Policy(), RecordingCluster, site=cluster(leaves=1, nodes=2),
            notify=NotifySettings(frozenset({receiver.host})),
        )  # fmt: skip
        controller.recover()
        store = NotificationStore(journal.database)
        store.begin()
        begun = store.cursor()
        assert begun == journal.last_fact() > 0
        controller.submit([job("a", gpus=8)], None, {}, "")
        controller.step()
        store.begin()
        assert store.cursor() == begun < journal.last_fact()
        with pytest.raises(NotLeading, match="another daemon"):
            store.add([], begun - 1, begun)
        assert store.cursor() == begun
        controller.close()


@pytest.mark.parametrize(
    ("url", "is_allowed"),
    [
        ("https://hooks.example.org/x", True),
        ("http://HOOKS.example.org/x", True),
        ("https://hooks.example.org:443/", True),
        ("https://hooks.example.org:8443/", False),
        ("https://a.hooks.example.org/", False),
        ("https://hooks.example.org.evil.org/", False),
        ("http://10.0.0.1:9000/x", True),
        ("http://10.0.0.1/x", False),
        ("https://[::1]:1/x", True),
        ("https://[::2]:1/x", False),
        ("ftp://hooks.example.org/", False),
    ],
)
def test_a_webhook_is_allowed_by_host_and_port(url: str, is_allowed: bool) -> None:
    settings = NotifySettings(frozenset({"hooks.example.org", "10.0.0.1:9000", "[::1]:1"}))
    assert settings.allows(url) is is_allowed
    if is_allowed:
        check_notify(Notify(EVENTS, url), settings)
    else:
        with pytest.raises(Unsupported, match=r"notify\.webhook: .* allowed: 10\.0\.0\.1:9000"):
            check_notify(Notify(EVENTS, url), settings)


def test_budgets_that_may_not_be_announced_are_named() -> None:
    budget = Budget("month", 1.0, "USD", 3600.0, {}, 1.0)
    told = replace(budget, period="week", notify=Notify(("budget",), "https://h.example/x"))
    mailed = replace(budget, notify=Notify(("budget",), None, "ann@example.org"))
    rules = Policy(
        queues=(QueueRule("a", budgets=(budget, told)), QueueRule("b", budgets=(mailed,)))
    )
    hook, mail = unannounced_budgets(rules, NotifySettings(frozenset({"other.example"})))
    assert hook.startswith("queue a: budget.week.notify.webhook: h.example:443 is not a host")
    assert mail.startswith("queue b: budget.month.notify.mail: this site sends no mail")
    allowed = NotifySettings(frozenset({"h.example"}), ("localhost", 25), "gantree@example.org")
    assert unannounced_budgets(rules, allowed) == []


def test_a_target_has_neither_path_nor_query() -> None:
    assert target_of("https://h.example/secret?t=1") == "h.example:443"


def test_of_a_service_its_end_is_announced_and_the_first_failure_of_a_replica(
    site_of: MakeSite,
) -> None:
    with WebhookReceiver() as receiver:
        site = site_of(receiver.host)
        site.serve(receiver.url())
        site.attempt("chat.1", 1, exit_code=3)
        site.attempt("chat.1", 2, exit_code=3)
        site.round()
        assert told(receiver.all()) == [("chat.1", "failure", "pending", None, 0)]
        assert receiver.all()[0].body["reason"] == "it failed: rank-failed"
        site.controller.services.cancel("chat")
        site.controller.step()
        site.attempt("chat.1", 3, exit_code=143)
        assert site.controller.ledger.services["chat"].ended_at is not None
        site.round()
        assert told(receiver.all())[1:] == [("chat", "end", "cancelled", None, 0)]
