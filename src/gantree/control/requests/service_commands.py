"""Requests about services: scale, cancel. They are submitted as jobs are (`submissions`).

Each request is checked against the ledger and becomes an event in the inbox; the core decides what follows.
"""

from collections.abc import Callable

from gantree.control.requests.read_view import ReadView
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.service_state import ServiceState
from gantree.model.errors import BadInput, Conflict, NotFound
from gantree.model.events import CancelRequested, Event, ServiceScaleRequested


def service_named(ledger: Ledger, name: str) -> ServiceState:
    """The service of a name. Raises NotFound, also for one that was rejected, and says why."""
    service = ledger.services.get(name)
    if service is not None:
        return service
    reason = ledger.rejected_services.get(name)
    raise NotFound(
        f"there is no service {name}" + (f": it was rejected: {reason}" if reason else "")
    )


def live_service(ledger: Ledger, name: str) -> ServiceState:
    """The live service of a name. Raises NotFound, and Conflict for one that has ended."""
    service = service_named(ledger, name)
    if not service.is_live:
        raise Conflict(f"service {name} has ended: {service.reason}")
    return service


def check_within(service: ServiceState, replicas: int, way_out: str) -> None:
    """Raise BadInput for a number outside the bounds of a service."""
    count = service.spec.replicas
    if not count.min <= replicas <= count.max:
        raise BadInput(
            f"replicas: found {replicas}; allowed for {service.service}: {count.min} to {count.max}; {way_out}"
        )


class ServiceCommands:
    """Takes commands for services. view reads the ledger; append makes an event durable; new_id names one."""

    def __init__(
        self,
        view: Callable[[], ReadView],
        append: Callable[[Event], None],
        new_id: Callable[[str, str], str],
    ) -> None:
        self._view = view
        self._append = append
        self._new_id = new_id

    def scale(self, name: str, replicas: int, by: str = "") -> str:
        """Request another number of replicas; give the service's name.

        Raises NotFound, Conflict for one that ends or has ended, and BadInput for a number outside its bounds.
        """
        view = self._view()
        service = live_service(view.ledger, name)
        if service.is_ending:
            raise Conflict(f"service {name} ends: {service.reason}")
        check_within(service, replicas, "submit the service with other `replicas` for more")
        self._append(
            ServiceScaleRequested(
                id=self._new_id(name, "scale-requested"),
                observed_at=view.now,
                service=name,
                replicas=replicas,
                reason=by,
            )
        )
        return name

    def cancel(self, name: str) -> str:
        """Request that a service end: its replicas drain; give its name. Twice is the same as once.

        Raises NotFound, and Conflict for one that has ended.
        """
        view = self._view()
        service = live_service(view.ledger, name)
        if not service.is_ending:
            event_id = self._new_id(name, "cancel-requested")
            self._append(CancelRequested(id=event_id, observed_at=view.now, job=name))
        return name
