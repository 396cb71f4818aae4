"""Fields of access.yaml: users and groups with their roles, Unix users, and the OIDC provider.

Rules that join fields stand in `access`.
"""

# ruff: noqa: RUF012 - Pydantic copies the default of a field for every form

import re
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import PlainValidator, WithJsonSchema

from gantree.formats.validation.fields import QueuePath, Text, matching, one_of, wrong
from gantree.formats.validation.forms import Form, Listed
from gantree.model.access import ROLES
from gantree.text.document import written

LOOPBACK = ("localhost", "127.0.0.1", "::1")
LONGEST_USER = 256
_UNIX_NAME = r"[a-z_][a-z0-9_.-]{0,31}\$?"


def _user(value: Any) -> str:
    """A name as jobs carry it."""
    text = written(value) or ""
    is_name = 0 < len(text) <= LONGEST_USER and text.isprintable() and text == text.strip()
    if not is_name:
        raise wrong(f"a name of at most {LONGEST_USER} printable characters")
    return text


def _https_url(value: Any) -> str:
    """An address with TLS, or on this machine."""
    text = written(value) or ""
    allowed = "an address such as https://login.example.org (http only for this machine itself)"
    try:
        parts = urlsplit(text)
        host = parts.hostname
    except ValueError:
        raise wrong(allowed) from None
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and host in LOOPBACK)
    if not host or not is_safe or parts.username or parts.query or parts.fragment:
        raise wrong(allowed)
    if re.search(r"\s", text):
        raise wrong(allowed)
    return text


UserName = Annotated[
    str,
    PlainValidator(_user),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": LONGEST_USER}),
]
UnixName = Annotated[
    str,
    PlainValidator(matching(_UNIX_NAME, "a user of this machine, such as ada")),
    WithJsonSchema({"type": "string", "pattern": f"^{_UNIX_NAME}$"}),
]
RoleName = Annotated[str, PlainValidator(one_of(ROLES)), WithJsonSchema({"enum": list(ROLES)})]
Url = Annotated[
    str,
    PlainValidator(_https_url),
    WithJsonSchema({"type": "string", "format": "uri"}),
]


class GrantForm(Form):
    """A role, over a queue and all that are below it; without a queue over all."""

    role: RoleName
    queue: QueuePath | None = None


class GranteeForm(Form):
    """What a user may do."""

    grants: Listed[GrantForm] = []


class GroupForm(GranteeForm):
    """The roles of a group. Its members are those named here, and those that the OIDC provider names."""

    members: Listed[UserName] = []


class OidcForm(Form):
    """The OIDC provider of log-ins and tokens."""

    issuer: Url
    audience: Text
    client_id: Text | None = None
    client_secret_file: Text | None = None
    username_claim: Text = "preferred_username"
    groups_claim: Text = "groups"
    scopes: Listed[Text] = ["openid", "profile"]
    url: Url | None = None


class AccessForm(Form):
    """access.yaml: users, groups and their roles."""

    users: dict[UserName, GranteeForm] = {}
    groups: dict[UserName, GroupForm] = {}
    unix: dict[UserName, UnixName] = {}
    oidc: OidcForm | None = None
