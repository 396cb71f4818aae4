"""The metadata of objects: what a writer may set, what the server sets, and which names and labels are allowed."""

import random
import re
from functools import lru_cache
from uuid import uuid4

from support.kubernetes.server.statuses import STALE, Json, Refusal, conflict, invalid

WRITABLE = ("labels", "annotations", "ownerReferences", "finalizers")
SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
MAX_ANNOTATION_BYTES = 256 * 1024
NAME_FORM = "lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character"
LABEL_FORM = "at most 63 alphanumeric characters, '-', '_' or '.', starting and ending with an alphanumeric character"

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_suffixes = random.Random()


def created(kind: str, group: str, told: Json, namespace: str, now: str) -> Json:
    """The metadata of a new object. told is what its maker said."""
    name = told.get("name") or ""
    if told.get("resourceVersion"):
        raise Refusal(500, "", "resourceVersion should not be set on objects to be created")
    if not name and told.get("generateName"):
        name = told["generateName"] + "".join(_suffixes.choices(SUFFIX, k=5))
    if not name:
        raise invalid(
            kind, group, "", ("metadata.name", "Required value: name or generateName is required")
        )
    metadata: Json = {"name": name, "uid": str(uuid4()), "creationTimestamp": now}
    if told.get("generateName"):
        metadata["generateName"] = told["generateName"]
    if namespace:
        metadata["namespace"] = namespace
    metadata |= _writable(told)
    check(kind, group, metadata)
    return metadata


def _writable(told: Json) -> Json:
    return {name: told[name] for name in WRITABLE if told.get(name)}


def updated(kind: str, group: str, plural: str, old: Json, told: Json) -> Json:
    """The metadata of a changed object: all that its writer may not set stays as it was."""
    metadata = {name: value for name, value in old.items() if name not in WRITABLE}
    metadata |= _writable(told)
    guard(plural, group, old, told)
    if "deletionTimestamp" in old:
        added = set(metadata.get("finalizers", ())) - set(old.get("finalizers", ()))
        if added:
            why = f"Forbidden: no new finalizers can be added if the object is being deleted: {sorted(added)}"
            raise invalid(kind, group, old["name"], ("metadata.finalizers", why))
    if any(metadata.get(name) != old.get(name) for name in WRITABLE):
        check(kind, group, metadata)
    return metadata


def keep_uid(kind: str, group: str, old: Json, told: Json) -> None:
    """Refuse a patch with another uid: it is no guard there, but a change of a field that never changes."""
    uid = told.get("uid")
    if uid and uid != old["uid"]:
        why = f'Invalid value: "{uid}": field is immutable'
        raise invalid(kind, group, old["name"], ("metadata.uid", why))


def guard(plural: str, group: str, old: Json, told: Json) -> None:
    """Refuse a write that was meant for another object or for another state of it."""
    uid, version = told.get("uid"), told.get("resourceVersion")
    if uid and uid != old["uid"]:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old['uid']}"
        raise conflict(plural, group, old["name"], why)
    if version and version != old["resourceVersion"]:
        raise conflict(plural, group, old["name"], STALE)


def check(kind: str, group: str, metadata: Json) -> None:
    """Refuse names, labels and annotations that no server takes."""
    causes = [*_bad_name(metadata["name"]), *_bad_labels(metadata.get("labels") or {})]
    annotations = metadata.get("annotations") or {}
    causes += [("metadata.annotations", why) for key in annotations for why in _bad_key(key)]
    size = sum(len(key.encode()) + len(str(value).encode()) for key, value in annotations.items())
    if size > MAX_ANNOTATION_BYTES:
        causes.append(
            ("metadata.annotations", f"Too long: may not be more than {MAX_ANNOTATION_BYTES} bytes")
        )
    if causes:
        raise invalid(kind, group, metadata["name"], *causes)


def _bad_name(name: str) -> list[tuple[str, str]]:
    if len(name) <= 253 and all(_SUBDOMAIN.fullmatch(part) for part in name.split(".")):
        return []
    why = f"Invalid value: {name!r}: a lowercase RFC 1123 subdomain must consist of {NAME_FORM}"
    return [("metadata.name", why)]


def _bad_labels(labels: Json) -> list[tuple[str, str]]:
    causes = [("metadata.labels", why) for key in labels for why in _bad_key(key)]
    for value in labels.values():
        if (
            not isinstance(value, str)
            or len(value) > 63
            or (value and not _LABEL_NAME.fullmatch(value))
        ):
            why = f"Invalid value: {value!r}: a valid label must be an empty string or {LABEL_FORM}"
            causes.append(("metadata.labels", why))
    return causes


@lru_cache(maxsize=4096)
def _bad_key(key: str) -> tuple[str, ...]:
    """What is wrong with a label's or an annotation's key: PREFIX/NAME or NAME. There are few, and each comes often."""
    prefix, slash, name = key.rpartition("/")
    fine = len(name) <= 63 and _LABEL_NAME.fullmatch(name)
    if fine and (not slash or (len(prefix) <= 253 and _SUBDOMAIN.fullmatch(prefix))):
        return ()
    return (
        f"Invalid value: {key!r}: name part must be {LABEL_FORM}; with an optional DNS subdomain prefix and '/'",
    )
