"""Cluster, queues and timeline as seen by a caller who may not read every job.

`permissions` decides which jobs are hidden; this module redacts the answers that have a shape of their own.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gantree.api.access.access import Caller
from gantree.api.access.permissions import ANOTHER, Need, has, redacted_for, sees, sees_queue
from gantree.core.ledger.ledger import Ledger
from gantree.core.reservations.reservations import job_of
from gantree.executors.local.recording.redaction import REDACTED, redacted_command
from gantree.model.jobs import Job

Json = dict[str, Any]


def cluster_visible_to(caller: Caller, ledger: Ledger, value: Json) -> Json:
    """The site: GPUs that a job holds which the caller may not see are another job's."""
    if caller.sees_all:
        return value
    owners = {
        node: [None if owner is None else _owner(caller, ledger, owner) for owner in of_gpus]
        for node, of_gpus in value["owners"].items()
    }
    held: dict[str, list[Json]] = {}
    for owner, members in value["held"].items():
        held.setdefault(_owner(caller, ledger, owner), []).extend(members)
    return {**value, "owners": owners, "held": held}


def _owner(caller: Caller, ledger: Ledger, owner: str) -> str:
    state = ledger.jobs.get(job_of(owner))
    return owner if state is not None and sees(caller, state) else ANOTHER


def queues_visible_to(caller: Caller, rows: Iterable[Json]) -> list[Json]:
    """Return the queues of a grant with those above them; of users the caller, and those whose jobs he may see."""
    if caller.sees_all:
        return list(rows)
    return [row for row in rows if _is_visible(caller, row)]


def _is_visible(caller: Caller, row: Json) -> bool:
    if row["kind"] == "user":
        return has(caller, Need.SEE, row["user"], row["queue"] or "")
    return row["queue"] is None or sees_queue(caller, row["queue"])


def facts_visible_to(caller: Caller, ledger: Ledger, facts: list[Json]) -> list[Json]:
    """The facts on jobs that a caller may see, with others' jobs and what he may not read left out."""
    if caller.reads_all:
        return facts
    return [found for fact in facts if (found := _fact(caller, ledger, fact)) is not None]


def _fact(caller: Caller, ledger: Ledger, fact: Json) -> Json | None:
    """Facts that concern no job and no service are visible to callers who may see all jobs."""
    data = fact["data"]
    of_whom = _concerned(ledger, data)
    spec = data.get("spec")
    if of_whom is None and not caller.sees_all:
        return None
    if of_whom is not None and not has(caller, Need.SEE, of_whom.user, of_whom.queue):
        return None
    if spec is not None and "replica" in spec:
        data = {**data, "spec": service_spec_visible_to(caller, spec)}
    elif spec is not None:
        data = {**data, "spec": spec_visible_to(caller, spec)}
    return {**fact, "data": redacted_for(caller, ledger, data)}


def _concerned(ledger: Ledger, data: Json) -> Job | None:
    """The job, or a replica of the service, that a fact is about."""
    service = ledger.services.get(data.get("service", ""))
    if service is not None:
        return service.spec.replica
    return ledger.spec_of(data.get("job") or data.get("array", ""))


def detail_visible_to(caller: Caller, ledger: Ledger, detail: Json) -> Json:
    """Return a job's detail; without command and environment if the caller may see but not read the job."""
    if detail["spec"] is not None:
        detail = {**detail, "spec": spec_visible_to(caller, detail["spec"])}
    value: Json = redacted_for(caller, ledger, detail)
    return value


def spec_visible_to(caller: Caller, spec: Json) -> Json:
    """Return a job's specification; without command and environment if the caller may see but not read the job."""
    may_read = has(caller, Need.READ, spec["user"], spec["queue"])
    return spec if may_read else without_environment(spec)


def service_spec_visible_to(caller: Caller, spec: Json) -> Json:
    """Return a service's specification; without command and environment if the caller may not read its replicas."""
    return {**spec, "replica": spec_visible_to(caller, spec["replica"])}


def without_environment(spec: Mapping[str, Any]) -> Json:
    """A specification without values that may be confidential: those of variables, and what of commands looks so."""
    roles = [
        {
            **role,
            "env": [[name, REDACTED] for name, _ in role["env"]],
            "run": redacted_command(role["run"]),
        }
        for role in spec["roles"]
    ]
    secrets = [[name, REDACTED] for name, _ in spec["secrets"]]
    return {
        **spec,
        "roles": roles,
        "secrets": secrets,
        "notify": _without_addresses(spec["notify"]),
    }


def _without_addresses(notify: Mapping[str, Any] | None) -> Json | None:
    """Which events are announced, but not to whom: the URL of a webhook is often its password."""
    if notify is None:
        return None
    hidden = {each: notify[each] and REDACTED for each in ("webhook", "mail")}
    return {**notify, **hidden}
