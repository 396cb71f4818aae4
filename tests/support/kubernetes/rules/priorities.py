"""Priority classes: the one that a pod or a group names, or the default, as the admission of priorities finds it."""

from support.kubernetes.rules.rules import Others
from support.kubernetes.server.statuses import Json

PREEMPTS = "PreemptLowerPriority"


def resolved(others: Others, name: str | None) -> tuple[int, str, str] | None:
    """(value, name of the class, whether it preempts); None: there is no such class. Without any class it is 0."""
    if name:
        found = others.lookup("scheduling.k8s.io", "priorityclasses", "", name)
        return _told(found) if found else None
    defaults = [
        each
        for each in others.listed("scheduling.k8s.io", "priorityclasses")
        if each.get("globalDefault")
    ]
    return _told(min(defaults, key=lambda each: each["value"])) if defaults else (0, "", PREEMPTS)


def _told(found: Json) -> tuple[int, str, str]:
    return found["value"], found["metadata"]["name"], found.get("preemptionPolicy", PREEMPTS)
