"""Services in lives under faults: two of them, with updates, scaling, readiness, drains and ends."""

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from gantree.model.events import (
    CancelRequested,
    ReplicaDrained,
    ReplicaReadinessChanged,
    ServiceScaleRequested,
    ServiceSubmitted,
)
from gantree.model.jobs import Role, Shape
from gantree.model.phases import ENDED
from gantree.model.replicas import Readiness
from gantree.model.services import ReplicaCount, ServiceSpec, Update
from support.faults.attempt import SimulatedAttempt
from support.random_lives import a_job

if TYPE_CHECKING:
    from support.faults.life import Life

NAMES = ("chat", "rank")


def serve(life: "Life", lots: Random) -> None:
    """A user submits a service, or another description of a live one."""
    spec = _service(lots)
    life.emit(
        lambda id_, at: ServiceSubmitted(id=id_, observed_at=at, service=spec.name, spec=spec)
    )


def scale_service(life: "Life", lots: Random) -> None:
    """The autoscaler wants another number of replicas."""
    name, number = lots.choice(NAMES), lots.randint(0, 4)
    life.emit(
        lambda id_, at: ServiceScaleRequested(
            id=id_, observed_at=at, service=name, replicas=number, reason="queue", automatic=True
        )
    )


def end_service(life: "Life", lots: Random) -> None:
    """A user ends a service."""
    _cancel(life, lots.choice(NAMES))


def drained(life: "Life", lots: Random) -> None:
    """Routers have no request left on a replica; or, at times, of one that does not drain or has ended."""
    living = (state for state in life.jobs() if state.phase not in ENDED)
    there = [state for state in living if state.spec.service is not None]
    draining = [state for state in there if state.replica.draining] or there
    if draining:
        state = lots.choice(draining)
        job, attempt = state.job, max(0, state.attempt - lots.choice((0, 0, 0, 1)))
        life.emit(lambda id_, at: ReplicaDrained(id=id_, observed_at=at, job=job, attempt=attempt))


def end_all_services(life: "Life") -> None:
    """Cancel the services that are live, as a life is to end."""
    leader = life.leader()
    assert leader is not None and leader.controller is not None
    for name, service in leader.controller.ledger.services.items():
        if service.is_live and not service.is_ending:
            _cancel(life, name)


def readiness(attempt: SimulatedAttempt, number: int, at: float) -> ReplicaReadinessChanged:
    """A change of the readiness of a replica: odd numbers say that it is ready."""
    return ReplicaReadinessChanged(
        id=f"{attempt.prefix}/readiness-{number}",
        observed_at=at,
        job=attempt.job,
        attempt=attempt.number,
        ready=number % 2 == 1,
    )


def _cancel(life: "Life", name: str) -> None:
    life.emit(lambda id_, at: CancelRequested(id=id_, observed_at=at, job=name))


def _service(lots: Random) -> ServiceSpec:
    name, least = lots.choice(NAMES), lots.randint(0, 2)
    role = Role("worker", lots.choice((1, 1, 2)), Shape(gpus=lots.choice((1, 1, 2))))
    template = replace(
        a_job(lots, name, [], guesses=False),
        roles=(replace(role, run=("serve", str(lots.randint(1, 3)))),),
        elastic=None,
        time_limit_s=None,
        expected_s=None,
        after=(),
        held=False,
    )
    return ServiceSpec(
        name,
        template,
        ReplicaCount(least, least + 2, floor=lots.choice((0, 0, 1))),
        ready=Readiness(within_s=lots.choice((20.0, 500.0))),
        update=Update(lots.randint(0, 2), lots.randint(0, 1)),
        drain_s=lots.choice((0.0, 10.0, 60.0)),
        spread=lots.choice((None, "node")),
    )
