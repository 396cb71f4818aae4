"""The options of `gantree up` for notifications of users about their jobs."""

import re
from typing import Annotated

import typer
from pydantic_core import PydanticCustomError

from gantree.control.notifications.settings import NotifySettings
from gantree.formats.job.notify_form import mail_address
from gantree.model.errors import BadInput

SMTP_PORT = 25

WebhookHostOption = Annotated[
    list[str] | None,
    typer.Option(
        "--notify-webhook-host",
        metavar="HOST[:PORT]",
        help="Host that webhooks of jobs may reach; may be repeated. [default: none]",
    ),
]
SmtpOption = Annotated[
    str | None,
    typer.Option(
        "--smtp", metavar="HOST[:PORT]", help="Mail server for notifications. [default: no mail]"
    ),
]
MailFromOption = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Sender of mail; needed with --smtp."),
]

_HOST = re.compile(r"([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::([0-9]{1,5}))?", re.ASCII)


def notify_settings(
    hosts: list[str] | None, smtp: str | None, mail_from: str | None
) -> NotifySettings:
    """The settings that the options make. Raises BadInput."""
    if (smtp is None) != (mail_from is None):
        raise BadInput("--smtp and --mail-from need each other")
    listed = (_host_and_port("--notify-webhook-host", each) for each in hosts or ())
    allowed = frozenset(host if port is None else f"{host}:{port}" for host, port in listed)
    if smtp is None or mail_from is None:
        return NotifySettings(allowed)
    try:
        mail_address(mail_from)
    except PydanticCustomError as error:
        raise BadInput(f"--mail-from: found {mail_from!r}; allowed: {error.message()}") from None
    host, port = _host_and_port("--smtp", smtp)
    return NotifySettings(allowed, (host.strip("[]"), port or SMTP_PORT), mail_from)


def _host_and_port(option: str, text: str) -> tuple[str, int | None]:
    found = _HOST.fullmatch(text)
    port = int(found[2]) if found and found[2] else None
    if found is None or (port is not None and not 0 < port < 65536):
        raise BadInput(f"{option}: found {text!r}; allowed: HOST or HOST:PORT, without http://")
    return found[1].lower(), port
