"""Lists: of all objects of a resource or of those that a query asks for, whole or in pages.

A page names the next one by a token. All pages of a list tell one revision: the first keeps what the others will tell.
That is forgotten with the changes (410), and when too many lists were begun and not read to their end.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from support.kubernetes.faults import Faults
from support.kubernetes.rules.resources import Resource
from support.kubernetes.server.queries import number
from support.kubernetes.server.selectors import Matches, both, field_matches, label_matches
from support.kubernetes.server.statuses import Json, Refusal, expired, invalid_option
from support.kubernetes.server.storage import Store, Stored, encode

KEPT_LISTS = 1_000
EXACT = "Exact"


@dataclass(frozen=True, slots=True)
class Question:
    """Which objects of a resource are asked for."""

    namespace: str
    matches: Matches | None

    @classmethod
    def read(cls, resource: Resource, namespace: str, query: Mapping[str, str]) -> "Question":
        """From a request's query."""
        labels = label_matches(query.get("labelSelector", ""))
        fields = field_matches(query.get("fieldSelector", ""), resource.selectable)
        return cls(namespace, both(labels, fields))

    def covers(self, stored: Stored) -> bool:
        """Whether an object is asked for."""
        if self.namespace and stored.content["metadata"].get("namespace") != self.namespace:
            return False
        return self.matches is None or self.matches(stored.content)


@dataclass(frozen=True, slots=True)
class _Rest:
    """What the next pages of a list tell."""

    revision: int
    items: Sequence[Stored]


class Lists:
    """The lists of a server, with those that are told in pages."""

    def __init__(self, store: Store, faults: Faults) -> None:
        self.store = store
        self.faults = faults
        self._rests: dict[str, _Rest] = {}

    def answer(self, resource: Resource, question: Question, query: Mapping[str, str]) -> bytes:
        """A list, or a page of one, as bytes."""
        limit = number(query, "limit")
        token = query.get("continue")
        rest = self._rest(token) if token else self._begin(resource, question, query)
        page = rest.items[:limit] if limit else rest.items
        metadata: Json = {"resourceVersion": str(rest.revision)}
        if len(page) < len(rest.items):
            metadata["continue"] = self._keep(_Rest(rest.revision, rest.items[len(page) :]))
            if question.matches is None:
                metadata["remainingItemCount"] = len(rest.items) - len(page)
        return _encoded(resource, metadata, page)

    def _begin(self, resource: Resource, question: Question, query: Mapping[str, str]) -> _Rest:
        revision, items = self._state(resource, query)
        return _Rest(revision, [stored for stored in items if question.covers(stored)])

    def _state(self, resource: Resource, query: Mapping[str, str]) -> tuple[int, Sequence[Stored]]:
        """The revision that a list tells, and all objects at it."""
        table = self.store.table(resource.group, resource.plural)
        asked, match = number(query, "resourceVersion"), query.get("resourceVersionMatch")
        if match:
            _check_match(asked, match)
        if match == EXACT and asked is not None:
            self._check_kept(table.forgotten, asked)
            return asked, table.as_of(asked)
        if asked is not None and asked > self.store.revision:
            raise _too_large(asked, self.store.revision)
        if asked is not None:
            behind = self.faults.old_lists(table, asked)
            if behind is not None:
                return behind, table.as_of(behind)
        return self.store.revision, table.sorted()

    def _check_kept(self, forgotten: int, revision: int) -> None:
        if revision < forgotten:
            raise expired(
                f"The resourceVersion for the provided list is too old: {revision} ({forgotten})"
            )
        if revision > self.store.revision:
            raise _too_large(revision, self.store.revision)

    def _keep(self, rest: _Rest) -> str:
        token = secrets.token_urlsafe(12)
        self._rests[token] = rest
        while len(self._rests) > KEPT_LISTS:
            del self._rests[next(iter(self._rests))]
        return token

    def _rest(self, token: str) -> _Rest:
        rest = self._rests.get(token)
        if rest is None or rest.revision < self.store.compacted:
            raise expired(
                "The provided continue parameter is too old to display a consistent list result. "
                "You must start a new list without the continue parameter."
            )
        return rest


def _check_match(asked: int | None, match: str) -> None:
    """Refuse a resourceVersionMatch that says nothing beside its resourceVersion."""
    why = None
    if asked is None:
        why = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
    elif match not in {EXACT, "NotOlderThan"}:
        why = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""'
    elif match == EXACT and asked == 0:
        why = 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
    if why:
        raise invalid_option("resourceVersionMatch", why)


def _too_large(asked: int, current: int) -> Refusal:
    """504: a state that this server has not seen yet."""
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    }
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return Refusal(504, "Timeout", message, details, retry_after_s=1)


def _encoded(resource: Resource, metadata: Json, items: Sequence[Stored]) -> bytes:
    """A list as bytes. Objects of a definition tell their kind, those of built-in resources do not."""
    opening = encode(
        {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata}
    )
    head = resource.head if resource.is_custom else b"{"
    told = b",".join([head + stored.encoded[1:] for stored in items])
    return opening[:-1] + b',"items":[' + told + b"]}"
