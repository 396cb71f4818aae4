"""Where notifications may go, as the daemon was started: hosts of webhooks and a mail server. None by default.

A webhook makes the daemon send requests into its own network, on behalf of whoever submits a job. So a site lists the
hosts that may be reached that way.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

from gantree.model.errors import Unsupported
from gantree.model.jobs import Notify
from gantree.policy.rules import Policy

DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class NotifySettings:
    """webhook_hosts are hosts (with the usual port of the scheme) and host:port, in small letters.

    smtp is the mail server's (host, port), mail_from the sender.
    """

    webhook_hosts: frozenset[str] = frozenset()
    smtp: tuple[str, int] | None = None
    mail_from: str = ""

    @property
    def is_on(self) -> bool:
        """Whether anything may be announced."""
        return bool(self.webhook_hosts) or self.smtp is not None

    def allows(self, url: str) -> bool:
        """Whether a webhook may be at a URL."""
        parts = urlsplit(url)
        usual = DEFAULT_PORTS.get(parts.scheme)
        host = _in_brackets(parts.hostname or "")
        port = parts.port or usual
        if f"{host}:{port}" in self.webhook_hosts:
            return usual is not None
        return port == usual is not None and host in self.webhook_hosts


NO_NOTIFICATIONS = NotifySettings()


def target_of(url: str) -> str:
    """Host and port of a URL: what messages and the log may say of it; the rest may be a secret."""
    parts = urlsplit(url)
    return f"{_in_brackets(parts.hostname or '')}:{parts.port or DEFAULT_PORTS.get(parts.scheme)}"


def check_notify(notify: Notify | None, settings: NotifySettings) -> None:
    """Raise Unsupported for notifications that this daemon may not send."""
    if notify is None:
        return
    if notify.webhook is not None and not settings.allows(notify.webhook):
        host = target_of(notify.webhook)
        listed = ", ".join(sorted(settings.webhook_hosts)) or "none"
        raise Unsupported(
            f"notify.webhook: {host} is not a host that this site sends webhooks to; allowed: {listed}."
            " The operator adds one with `gantree up --notify-webhook-host HOST[:PORT]`"
        )
    if notify.mail is not None and settings.smtp is None:
        raise Unsupported(
            "notify.mail: this site sends no mail; the operator names a mail server with"
            " `gantree up --smtp HOST[:PORT] --mail-from ADDRESS`"
        )


def unannounced_budgets(policy: Policy, settings: NotifySettings) -> list[str]:
    """Sentences on budgets of which this daemon may not tell those who are named."""
    found = []
    for rule in policy.queues:
        for budget in rule.budgets:
            try:
                check_notify(budget.notify, settings)
            except Unsupported as error:
                found.append(f"queue {rule.path}: budget.{budget.period}.{error}")
    return found


def _in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host else host
