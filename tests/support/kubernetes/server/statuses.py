"""How an API server says no: a `Status` object with a code, a reason, a sentence and, for some, causes."""

from typing import Any

Json = dict[str, Any]


class Refusal(Exception):
    """A request that is answered with a Status of failure."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Json | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after_s = retry_after_s
        told = dict(details or {})
        if retry_after_s is not None:
            told["retryAfterSeconds"] = retry_after_s
        self.status = status_of(code, reason, message, told)


def status_of(code: int, reason: str, message: str, details: Json | None = None) -> Json:
    """A Status of failure."""
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return {**status, "details": details} if details else status


def success(code: int = 200, details: Json | None = None) -> Json:
    """A Status of success."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return {**status, "details": details} if details else {**status, "code": code}


def qualified(plural: str, group: str) -> str:
    """A resource as sentences name it: pods, podgroups.scheduling.k8s.io."""
    return f"{plural}.{group}" if group else plural


def bad_request(message: str) -> Refusal:
    """400: the request itself cannot be understood."""
    return Refusal(400, "BadRequest", message)


def not_allowed() -> Refusal:
    """405: a resource has no such verb."""
    message = "the server does not allow this method on the requested resource"
    return Refusal(405, "MethodNotAllowed", message)


def not_found(plural: str, group: str, name: str) -> Refusal:
    """404 for an object."""
    details = {"name": name, "group": group, "kind": plural}
    return Refusal(404, "NotFound", f'{qualified(plural, group)} "{name}" not found', details)


class NoSuchPath(Exception):
    """404 for a path that leads to no resource: where no group is served that is no Status but a line of text."""


NO_RESOURCE = {
    **status_of(404, "NotFound", "the server could not find the requested resource"),
    "details": {},
}
"""The same below a built-in group."""


def already_exists(plural: str, group: str, name: str) -> Refusal:
    """409 for a creation."""
    details = {"name": name, "group": group, "kind": plural}
    message = f'{qualified(plural, group)} "{name}" already exists'
    return Refusal(409, "AlreadyExists", message, details)


def conflict(plural: str, group: str, name: str, why: str) -> Refusal:
    """409 for a write that rests on something that has changed."""
    message = f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {why}'
    return Refusal(409, "Conflict", message, {"name": name, "group": group, "kind": plural})


STALE = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def forbidden(plural: str, group: str, name: str, why: str) -> Refusal:
    """403, of access or of an admission check."""
    about = f'{qualified(plural, group)} "{name}"' if name else qualified(plural, group)
    details = {"name": name, "group": group, "kind": plural}
    return Refusal(403, "Forbidden", f"{about} is forbidden: {why}", details)


def invalid(kind: str, group: str, name: str, *causes: tuple[str, str]) -> Refusal:
    """422: the object breaks rules. causes are (field, what is wrong with it)."""
    told = "; ".join(f"{field}: {wrong}" for field, wrong in causes)
    details = {
        "name": name,
        "group": group,
        "kind": kind,
        "causes": [
            {"reason": _cause(wrong), "message": wrong, "field": field} for field, wrong in causes
        ],
    }
    about = f"{kind}.{group}" if group else kind
    return Refusal(422, "Invalid", f'{about} "{name}" is invalid: {told}', details)


def invalid_option(field: str, why: str) -> Refusal:
    """422: the query of a list or a watch contradicts itself."""
    return invalid("ListOptions", "meta.k8s.io", "", (field, why))


def _cause(wrong: str) -> str:
    """The reason of a cause, by how its sentence begins."""
    for start, reason in (
        ("Required", "FieldValueRequired"),
        ("Forbidden", "FieldValueForbidden"),
        ("Duplicate", "FieldValueDuplicate"),
        ("Unsupported", "FieldValueNotSupported"),
        ("Too many", "FieldValueTooMany"),
    ):
        if wrong.startswith(start):
            return reason
    return "FieldValueInvalid"


def expired(message: str) -> Refusal:
    """410: what the request names is no longer kept."""
    return Refusal(410, "Expired", message)


def too_many_requests(message: str, retry_after_s: int) -> Refusal:
    """429, with the time after which to ask again."""
    return Refusal(429, "TooManyRequests", message, retry_after_s=retry_after_s)
