"""The ways to run a job that chooses its GPU model: each a job of its own, held to one model and market, best first.

Most jobs do not choose: they run as they are written. Ways depend on the job and the fabric alone, so they are kept by
signature. What is held, requeued and shown is always the job as it was written.
"""

from dataclasses import replace

from gantree.core.ledger import Ledger
from gantree.core.state import JobState
from gantree.model.jobs import Job
from gantree.model.verdicts import Refused
from gantree.planning.rightsize import Option, options, refused


class Ways:
    """Ways by signature, on the fabric of the moment."""

    def __init__(self, restart_s: float) -> None:
        self._restart_s = restart_s
        self._fabric: object = None
        self._open_of_signature: dict[int, tuple[Job, ...]] = {}

    def of(self, ledger: Ledger, state: JobState) -> tuple[Job, ...]:
        """The jobs to try for one that waits, in order; () where no way is open to it."""
        if not chooses(state.spec):
            return (state.spec,)
        fabric = ledger.rooms().fabric
        if self._fabric is not fabric:
            self._fabric = fabric
            self._open_of_signature.clear()
        ways = self._open_of_signature.get(state.signature)
        if ways is None:
            all_ways = options(state.spec, fabric, restart_s=self._restart_s)
            ways = tuple(way.job for way in all_ways if way.open)
            self._open_of_signature[state.signature] = ways
        return tuple(replace(way, name=state.spec.name) for way in ways)


def chooses(spec: Job) -> bool:
    """Whether the model that a job runs on is chosen by more than the room there is."""
    described = spec.trains is not None and bool(spec.gpus)
    return described or bool(
        spec.speeds or spec.choose != "order" or spec.budget_USD is not None or spec.spot
    )


def no_way(ledger: Ledger, spec: Job) -> Refused | None:
    """Why no way is open to a job; None where one is."""
    if not chooses(spec):
        return None
    ways: tuple[Option, ...] = options(
        spec, ledger.rooms().fabric, restart_s=ledger.policy.restart_s
    )
    return refused(spec, ways)
