"""What gantree may ask of an API server, and why: the rows of its ClusterRole, and what preflight asks about.

Tests hold the role that is installed equal to this, and run gantree with no more than it.
"""

from dataclasses import dataclass

LOOK = ("list", "watch")


@dataclass(frozen=True, slots=True)
class Right:
    """Verbs on one resource of an API group, "" for the core; a subresource stands behind a slash."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    why: str


RIGHTS = (
    Right("", "nodes", LOOK, "the site"),
    Right(
        "",
        "pods",
        (*LOOK, "get", "delete"),
        "who waits and what runs; to look up a binding whose answer was lost; to stop gangs",
    ),
    Right("", "pods/binding", ("create",), "to start gangs"),
    Right("", "pods/status", ("patch",), "to say why a pod waits"),
    Right("", "events", ("create",), "to say what is not honoured, and why gangs wait"),
    Right("scheduling.k8s.io", "podgroups", LOOK, "gangs of Kubernetes' own API"),
    Right("scheduling.k8s.io", "podgroups/status", ("patch",), "to say why a gang waits"),
    Right("scheduling.x-k8s.io", "podgroups", LOOK, "gangs of scheduler-plugins"),
    Right("scheduling.volcano.sh", "podgroups", LOOK, "gangs of Volcano"),
    Right("scheduling.run.ai", "podgroups", LOOK, "gangs of KAI"),
)
