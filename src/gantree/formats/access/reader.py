"""access.yaml to `AccessRules`: roles of users and groups, the Unix users of their jobs, and the OIDC provider."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from gantree.formats.access.form import AccessForm, GranteeForm, OidcForm
from gantree.formats.validation.forms import only_document, read_form, refuse
from gantree.model.access import Grant, grant_of
from gantree.model.errors import Problem
from gantree.text.document import read_documents

MAX_ACCESS_FILE_BYTES = 4 * 1024 * 1024
OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class OidcRules:
    """An OIDC provider. Without a client_id there is no log-in by browser. url is the daemon's address for browsers."""

    issuer: str
    audience: str
    client_id: str | None = None
    client_secret_file: str | None = None
    username_claim: str = "preferred_username"
    groups_claim: str = "groups"
    scopes: tuple[str, ...] = ("openid", "profile")
    url: str | None = None


@dataclass(frozen=True, slots=True)
class AccessRules:
    """Grants, groups and Unix users by name. unix_of_user has the users whose Unix name differs."""

    grants_of_user: Mapping[str, tuple[Grant, ...]] = field(default_factory=dict)
    grants_of_group: Mapping[str, tuple[Grant, ...]] = field(default_factory=dict)
    groups_of_user: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unix_of_user: Mapping[str, str] = field(default_factory=dict)
    oidc: OidcRules | None = None

    def grants(self, user: str, groups: Iterable[str] = ()) -> tuple[Grant, ...]:
        """All grants of a user. groups are further groups, as of an OIDC token."""
        found = list(self.grants_of_user.get(user, ()))
        for group in dict.fromkeys([*self.groups_of_user.get(user, ()), *groups]):
            found += self.grants_of_group.get(group, ())
        return tuple(dict.fromkeys(found))

    def user_of_unix(self, name: str) -> str | None:
        """The user of a Unix name; None if it is ambiguous."""
        users = [user for user, unix in self.unix_of_user.items() if unix == name]
        if name not in self.unix_of_user and (not users or self._is_named(name)):
            users.append(name)  # a user without an entry runs jobs under the same name
        return users[0] if len(users) == 1 else None

    def _is_named(self, user: str) -> bool:
        return user in self.grants_of_user or user in self.groups_of_user


def read_access(text: str, source: str) -> AccessRules:
    """Read the text of an access file. source names it in errors. Raises BadFields."""
    problems: list[Problem] = []
    documents = read_documents(text, source, problems, MAX_ACCESS_FILE_BYTES)
    document = only_document(AccessForm, documents, problems)
    form = read_form(AccessForm, document, problems) if document else None
    problems += _problems(form) if form else []
    refuse(problems, source)
    assert form is not None
    return _rules(form)


def _problems(form: AccessForm) -> Iterator[Problem]:
    for grantees in (form.users, form.groups):
        for grantee in grantees.values():
            for grant in grantee.grants:
                if grant.role == OPERATOR and grant.queue is not None and not grant.lost:
                    hint = "The role for one queue and the queues below it is `queue_admin`."
                    allowed = "no queue: the role operator covers the whole site"
                    yield grant.problem("queue", repr(grant.queue), allowed, hint)
    for user, unix in form.unix.items():
        if unix == "root":
            yield form.problem("unix", "'root'", "any user but root", at=(user,))
    if form.oidc is not None and form.oidc.client_secret_file is not None:
        file = form.oidc.client_secret_file
        if not PurePosixPath(file).is_absolute():
            yield form.oidc.problem("client_secret_file", repr(file), "an absolute path")


def _rules(form: AccessForm) -> AccessRules:
    groups_of_user: dict[str, tuple[str, ...]] = {}
    for name, group in form.groups.items():
        for user in group.members:
            groups_of_user[user] = (*groups_of_user.get(user, ()), name)
    return AccessRules(
        {name: _grants(each) for name, each in form.users.items()},
        {name: _grants(each) for name, each in form.groups.items()},
        groups_of_user,
        dict(form.unix),
        None if form.oidc is None else _oidc(form.oidc),
    )


def _grants(form: GranteeForm) -> tuple[Grant, ...]:
    return tuple(grant_of(each.role, each.queue or "") for each in form.grants)


def _oidc(form: OidcForm) -> OidcRules:
    return OidcRules(
        form.issuer,
        form.audience,
        form.client_id,
        form.client_secret_file,
        form.username_claim,
        form.groups_claim,
        tuple(form.scopes),
        None if form.url is None else form.url.rstrip("/"),
    )
