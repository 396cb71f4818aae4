"""Checks of a service before it is accepted, beside those of its replica, which is checked as a job is."""

from collections.abc import Callable
from dataclasses import replace

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.service_state import ServiceState
from gantree.formats.job.service_form import LONGEST_NAME
from gantree.model.errors import BadInput, Conflict, Forbidden
from gantree.model.federation import Assignment, assignment_of
from gantree.model.jobs import Job
from gantree.model.services import ServiceSpec


def is_of_service(ledger: Ledger, job: str) -> bool:
    """Whether an id is the name of a service, or that of one of its replicas, past ones included."""
    service, _, number = job.rpartition(".")
    known = ledger.services.get(service)
    if job in ledger.services:
        return True
    return known is not None and number.isdecimal() and int(number) < known.next_number


def live_owner(
    ledger: Ledger,
    name: str,
    may_update: Callable[[ServiceState], bool] | None,
    assignment: Assignment | None = None,
) -> str | None:
    """The user of the live service of a name, who stays its owner when it is updated; None where it would be new.

    Raises Conflict for a name that no service can have now, and Forbidden where this one is not the caller's to change,
    and BadInput for one that came from elsewhere.
    """
    if name in ledger.jobs or name in ledger.arrays:
        raise Conflict(f"{name} is the id of a job; give the service another name")
    service = ledger.services.get(name)
    if service is None or not service.is_live:
        return None
    if may_update is not None and not may_update(service):
        raise Forbidden(f"{name} is a service of somebody else; give yours another name")
    if service.is_ending:
        raise Conflict(
            f"service {name} ends, and its replicas drain; submit it again when it has ended"
        )
    check_origin(service.spec, assignment)
    return service.spec.replica.user


def check_origin(before: ServiceSpec, assignment: Assignment | None) -> None:
    """Raise BadInput where an update of a live service does not come from where the service came from."""
    known = before.replica.assignment
    origin = assignment_of(known).federation if known else ""
    asks = "" if assignment is None else assignment.federation
    if origin == asks:
        return
    if origin:
        raise BadInput(
            f"service {before.name} came from federation {origin}; submit it to the front, or take another name"
        )
    raise BadInput(
        f"a service {before.name} is here that did not come from federation {asks}; take another name"
    )


def with_replica(service: ServiceSpec, replica: Job, ledger: Ledger) -> ServiceSpec:
    """The service with its replica as it was checked. Raises BadInput for a name or a tier that cannot be."""
    if len(replica.name) > LONGEST_NAME:
        raise BadInput(
            f"name: found {len(replica.name)} characters; allowed: at most {LONGEST_NAME}"
        )
    if service.spread is not None and ledger.fabric is not None:
        site = ledger.fabric.cluster
        divisions = (name for node in site.nodes for name, _ in node.partitions)
        allowed = dict.fromkeys((*site.tiers, *divisions))
        if service.spread not in allowed:
            raise BadInput(f"spread: found {service.spread}; allowed: {', '.join(allowed)}")
    return replace(service, name=replica.name, replica=replica)
