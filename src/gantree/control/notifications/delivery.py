"""Sends one notification: a POST to a webhook, or a mail. When to try, and try again, is the notifier's.

Redirects are not followed, since they would lead past the list of hosts, and answers are not read. Nothing here says
more of an address than its host.
"""

import asyncio
import json
import smtplib
import socket
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate
from enum import StrEnum
from typing import Any

import httpx

from gantree import __version__
from gantree.control.notifications.messages import MAIL
from gantree.control.notifications.settings import NotifySettings
from gantree.journal.notification_store import Notification
from gantree.model.jobs import BUDGET_EVENT

SEND_WITHIN_S = 5.0
"""For the whole exchange with a webhook; for each answer of a mail server."""
LATER = frozenset({408, 425, 429})
"""Statuses of HTTP below 500 that say nothing against the message."""
TITLES = {
    "start": "started",
    "end": "ended",
    "failure": "failed",
    "preemption": "is preempted",
    "idle": "is idle",
}


class Outcome(StrEnum):
    """What became of a try: refused is about this message, unreachable about all for the target."""

    DELIVERED = "delivered"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    FORBIDDEN = "forbidden"


@dataclass(frozen=True, slots=True)
class Sent:
    """The outcome, and why it is none better, for the log."""

    outcome: Outcome
    why: str = ""


DELIVERED = Sent(Outcome.DELIVERED)


class Sender:
    """Sends notifications where the settings allow it."""

    def __init__(self, settings: NotifySettings) -> None:
        self._settings = settings
        once = httpx.Limits(max_keepalive_connections=0)
        self._client = httpx.AsyncClient(timeout=SEND_WITHIN_S, follow_redirects=False, limits=once)

    async def send(self, row: Notification) -> Sent:
        """Try once. Never raises for what the other side does."""
        if row.channel == MAIL:
            if self._settings.smtp is None:
                return Sent(Outcome.FORBIDDEN, "this daemon was started without --smtp")
            return await asyncio.to_thread(
                _mail, row, self._settings.smtp, self._settings.mail_from
            )
        if not self._settings.allows(row.address):
            return Sent(Outcome.FORBIDDEN, "the host is not on the list of --notify-webhook-host")
        return await _post(self._client, row)

    async def close(self) -> None:
        """End what is under way."""
        await self._client.aclose()


async def _post(client: httpx.AsyncClient, row: Notification) -> Sent:
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"gantree/{__version__}",
        "Idempotency-Key": json.loads(row.body)["id"],
    }
    try:
        async with (
            asyncio.timeout(SEND_WITHIN_S),
            client.stream("POST", row.address, content=row.body, headers=headers) as response,
        ):
            status = response.status_code
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        return Sent(Outcome.UNREACHABLE, type(error).__name__)
    if 200 <= status < 300:
        return DELIVERED
    is_refused = status < 500 and status not in LATER
    return Sent(Outcome.REFUSED if is_refused else Outcome.UNREACHABLE, f"HTTP status {status}")


def _mail(row: Notification, server: tuple[str, int], sender: str) -> Sent:
    host, port = server
    try:
        with smtplib.SMTP(host, port, socket.gethostname(), SEND_WITHIN_S) as smtp:
            smtp.send_message(_message(row, sender))
    except smtplib.SMTPRecipientsRefused as error:
        codes = [code for code, _ in error.recipients.values()]
        return _mail_refused(max(codes))
    except smtplib.SMTPResponseException as error:
        return _mail_refused(error.smtp_code)
    except (OSError, ValueError) as error:  # SMTPException is an OSError
        return Sent(Outcome.UNREACHABLE, type(error).__name__)
    return DELIVERED


def _mail_refused(code: int) -> Sent:
    return Sent(Outcome.REFUSED if code >= 500 else Outcome.UNREACHABLE, f"SMTP code {code}")


def _subject(fields: dict[str, Any]) -> str:
    if fields["event"] != BUDGET_EVENT:
        return f"job {fields['job']} {TITLES[fields['event']]}"
    part = "is used up" if fields["closed"] else f"is used to {100 * fields['level']:g} %"
    return f"the budget of queue {fields['queue']} {part}"


def _message(row: Notification, sender: str) -> EmailMessage:
    fields = json.loads(row.body)
    message = EmailMessage()
    message["From"], message["To"] = sender, row.address
    message["Subject"] = f"gantree: {_subject(fields)}"
    message["Date"] = formatdate(row.at)
    message["Message-ID"] = f"<{fields['id']}@{sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    said = {
        name: value for name, value in fields.items() if value not in (None, "") and name != "at"
    }
    lines = [f"{name}: {value}" for name, value in (*said.items(), ("at", message["Date"]))]
    message.set_content("\n".join(lines) + "\n")
    return message
