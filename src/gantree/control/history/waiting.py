"""Jobs that wait and are not held back, elements of arrays among them: how many of each queue, user and project."""

from gantree.accounting.meter import WAITING, UsageMeter
from gantree.accounting.usage import NO_MODEL, UsageKey
from gantree.core.ledger.ledger import Ledger
from gantree.model.jobs import Job
from gantree.model.phases import Phase


class WaitingJobs:
    """Counts jobs that wait. One that is on hold does not."""

    def __init__(self, meter: UsageMeter, ledger: Ledger) -> None:
        self._meter = meter
        self._pending = {job: key_of(ledger.jobs[job].spec) for job in _pending(ledger)}
        self._on_hold = {
            state.job for state in ledger.jobs.values() if state.held and state.ended_at is None
        }
        self._unsplit = {array: one.unsplit for array, one in ledger.unsplit.items()}
        self._held_arrays = {array for array, one in ledger.unsplit.items() if one.held}

    def job_comes(self, at: float, job: str, spec: Job, array: str) -> None:
        """A job waits from now on; until now as an unsplit element, where array says so."""
        if array and array in self._unsplit:
            self._unsplit[array] -= 1
            self._add(at, spec, 0 if array in self._held_arrays else -1)
        if spec.held:
            self._on_hold.add(job)
        self.waits(at, job, spec)

    def waits(self, at: float, job: str, spec: Job) -> None:
        """A job waits."""
        self._pending[job] = key_of(spec)
        self._add(at, spec, 0 if job in self._on_hold else 1)

    def waits_no_more(self, at: float, job: str) -> None:
        """A job is placed, or has ended."""
        key = self._pending.pop(job, None)
        if key is not None and job not in self._on_hold:
            self._meter.add(at, key, {WAITING: -1.0})

    def ends(self, at: float, job: str) -> None:
        """A job has ended."""
        self.waits_no_more(at, job)
        self._on_hold.discard(job)

    def holds(self, at: float, job: str) -> None:
        """A job is held back."""
        if job not in self._on_hold and job in self._pending:
            self._meter.add(at, self._pending[job], {WAITING: -1.0})
        self._on_hold.add(job)

    def released(self, at: float, job: str) -> None:
        """A job is held back no more."""
        if job in self._on_hold and job in self._pending:
            self._meter.add(at, self._pending[job], {WAITING: 1.0})
        self._on_hold.discard(job)

    def array_comes(self, at: float, array: str, spec: Job, elements: int) -> None:
        """All elements of an array wait."""
        self._unsplit[array] = elements
        if spec.held:
            self._held_arrays.add(array)
        self._add(at, spec, 0 if spec.held else elements)

    def array_held(self, at: float, array: str, spec: Job, *, held: bool) -> None:
        """The unsplit elements of an array are held back, or no more."""
        if held == (array in self._held_arrays):
            return
        (self._held_arrays.add if held else self._held_arrays.discard)(array)
        unsplit = self._unsplit.get(array, 0)
        self._add(at, spec, -unsplit if held else unsplit)

    def array_ends(self, at: float, array: str, spec: Job) -> None:
        """The unsplit elements of an array have ended."""
        unsplit = self._unsplit.pop(array, 0)
        self._add(at, spec, 0 if array in self._held_arrays else -unsplit)
        self._held_arrays.discard(array)

    def _add(self, at: float, spec: Job, jobs: int) -> None:
        if jobs:
            self._meter.add(at, key_of(spec), {WAITING: float(jobs)})


def key_of(spec: Job) -> UsageKey:
    """The key under which a job is counted that holds nothing."""
    return UsageKey(spec.queue, spec.user, NO_MODEL, spec.project)


def waiting_of(ledger: Ledger) -> dict[UsageKey, float]:
    """How many jobs wait now, by key."""
    found: dict[UsageKey, float] = {}
    for job in _pending(ledger):
        state = ledger.jobs[job]
        if not state.held:
            key = key_of(state.spec)
            found[key] = found.get(key, 0.0) + 1.0
    for array in ledger.unsplit.values():
        if not array.held:
            key = key_of(array.spec)
            found[key] = found.get(key, 0.0) + array.unsplit
    return found


def _pending(ledger: Ledger) -> list[str]:
    return [state.job for state in ledger.jobs.values() if state.phase is Phase.PENDING]
