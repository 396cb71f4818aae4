"""Fields of `notify` in job.yaml: which events of a job are announced, and to whom."""

import re
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field, PlainValidator, WithJsonSchema

from gantree.formats.validation.fields import matching, one_of, wrong
from gantree.formats.validation.forms import Form, Listed
from gantree.model.jobs import NOTIFY_EVENTS

MAX_URL = 2048
DEFAULT_EVENTS = ("end", "failure")

_URL = re.compile(
    r"https?://(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?"
    r"(?:[/?][!-\"$-\[\]-~]*)?",
    re.ASCII,
)
"""Strict, so that every program finds the same host in it: no user, no fragment, no backslash."""
_MAIL = r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,253}"


def _webhook(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_URL or not _URL.fullmatch(value):
        raise wrong("a URL such as https://HOST/PATH, without user, password or fragment")
    try:
        urlsplit(value).port  # noqa: B018 - it is checked when read
    except ValueError:
        raise wrong("a URL with a port up to 65535") from None
    return value


mail_address = matching(_MAIL, "an address of mail such as ann@example.org")

NotifyEvent = Annotated[
    str, PlainValidator(one_of(NOTIFY_EVENTS)), WithJsonSchema({"enum": list(NOTIFY_EVENTS)})
]
Webhook = Annotated[
    str,
    PlainValidator(_webhook),
    WithJsonSchema({"type": "string", "pattern": "^https?://", "maxLength": MAX_URL}),
]
Mail = Annotated[
    str, PlainValidator(mail_address), WithJsonSchema({"type": "string", "pattern": f"^{_MAIL}$"})
]


class NotifyForm(Form):
    """Which events of the job are announced, and to whom."""

    on: Listed[NotifyEvent] = Field(default_factory=lambda: [*DEFAULT_EVENTS])
    webhook: Webhook | None = None
    mail: Mail | None = None
