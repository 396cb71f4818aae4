"""Arrays live as their elements would that were handed in one by one.

Of two schedulers one gets each array as a whole, the other a job for each element. After every moment the elements are
in the same phases, on the same places, with the same priorities. Windows are small here, so that most elements are not
split for most of the time, and what people ask of one element often splits it.
"""

from dataclasses import replace
from typing import Any

import pytest

from gantree.core.ledger.invariants import check
from gantree.core.ledger.state import JobState
from gantree.core.lifecycle import arrays
from gantree.core.scheduler import Scheduler, settled
from gantree.core.snapshot.ledger_snapshot import snapshot_of
from gantree.core.snapshot.restore import restored
from gantree.journal.encoding.codec import FACT_CODEC
from gantree.journal.encoding.snapshots import SnapshotCodec
from gantree.model.arrays import element_of, indices_of
from gantree.model.events import (
    CancelRequested,
    EndedJobsDue,
    Event,
    HoldRequested,
    JobSubmitted,
    PriorityRequested,
    ReleaseRequested,
    SuspendRequested,
)
from gantree.model.phases import ENDED, Phase
from gantree.policy.rules import Policy
from support.examples import seeds
from support.random_lives import EVERY_KIND, WAYS, Lives, a_job, assert_same
from support.same_ledger import differences

STEPS = 24
REQUESTS = (CancelRequested, HoldRequested, ReleaseRequested, SuspendRequested)


class ArrayLives(Lives):
    """`scheduler` gets the elements one by one, `whole` each array as one."""

    def __init__(self, seed: int, policy: Policy) -> None:
        self.whole = Scheduler(policy)
        self.whole_facts: list[Any] = []
        self.elements: dict[str, tuple[str, ...]] = {}
        super().__init__(seed, policy)

    def ways(self) -> Any:
        plain = [
            way for name, way in WAYS.items() if name not in ("submit more", "forget", "scale")
        ]
        return [*plain, ArrayLives.submit_array, ArrayLives.submit_array, ArrayLives.ask_of_array]

    def handle(self, events: list[Event]) -> None:
        one_by_one = [each for event in events for each in self.spread(event)]
        self.facts += settled(self.scheduler, one_by_one, self.now).facts
        decision = settled(self.whole, events, self.now)
        self.whole_facts += decision.facts
        check(self.whole.ledger)
        self.compare()

    def spread(self, event: Event) -> list[Event]:
        """An event about an array as one for each of its elements."""
        if isinstance(event, JobSubmitted) and event.spec.array:
            jobs = tuple(f"{event.job}-{index}" for index in indices_of(event.spec.array))
            self.elements[event.job] = jobs
            specs = [element_of(event.spec, index) for index in indices_of(event.spec.array)]
            return [
                replace(event, id=f"{event.id}/{job}", job=job, spec=spec)
                for job, spec in zip(jobs, specs, strict=True)
            ]
        jobs = self.elements.get(getattr(event, "job", ""), ())
        return [replace(event, id=f"{event.id}/{job}", job=job) for job in jobs] or [event]  # type: ignore[call-arg]  # each event about jobs has one

    def submit_array(self) -> None:
        self.told += 1
        name = f"a{self.told}"
        spec = a_job(self.lots, name, list(self.scheduler.ledger.jobs), guesses=False)
        spans = self.lots.choice([((0, 0),), ((0, 6),), ((3, 4), (8, 11)), ((5, 5), (1, 3))])
        spec = replace(spec, array=spans, queue=self.lots.choice(["a/c", "a/d", "b"]))
        self.handle([JobSubmitted(id=f"s{name}", observed_at=self.now, job=name, spec=spec)])

    def ask_of_array(self) -> None:
        if not self.elements:
            return
        array = self.lots.choice(list(self.elements))
        if self.lots.random() < 0.3:
            priority = self.lots.choice(["batch", "production", "serving"])
            self.tell(PriorityRequested, job=array, priority=priority)
        else:
            self.tell(self.lots.choice(REQUESTS), job=array)

    def compare(self) -> None:
        of_elements, of_arrays = self.scheduler.ledger, self.whole.ledger
        unsplit = {
            array.job(offset): array
            for array in of_arrays.arrays.values()
            for offset in array.unsplit_offsets()
        }
        for job, state in of_elements.jobs.items():
            if job in of_arrays.jobs:
                assert _shown(of_arrays.jobs[job]) == _shown(state), job
            elif job in unsplit:
                assert (state.phase, state.held) == (Phase.PENDING, unsplit[job].held), job
                assert state.spec.priority == unsplit[job].spec.priority, job
            else:
                assert state.phase in (Phase.CANCELLED, Phase.FAILED), job


def _shown(state: JobState) -> tuple[Any, ...]:
    placement = state.phase not in ENDED and state.placement
    return state.phase, state.attempt, placement, state.held, state.priority, state.submitted_at


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "WINDOW", 2)


def _lives(policy: str, seed: int) -> ArrayLives:
    rules = EVERY_KIND[policy]
    return ArrayLives(seed, replace(rules, backfill=replace(rules.backfill, depth=1 + seed % 3)))


@pytest.mark.parametrize("policy", EVERY_KIND)
def test_elements_of_an_array_live_as_jobs_of_their_own_would(policy: str) -> None:
    for seed in seeds(20, fewest=1):
        lives = _lives(policy, seed)
        for _ in range(STEPS):
            lives.step()


@pytest.mark.parametrize("policy", ["as it comes", "models", "moves"])
def test_arrays_are_folded_and_restored_as_they_are(policy: str) -> None:
    """Through the text of facts and of snapshots; ended elements are forgotten, and in the end the arrays."""
    for seed in seeds(10, fewest=1):
        lives = _lives(policy, seed)
        for step in range(STEPS):
            lives.step()
            if step % 12 == 11:
                _check_recovered(lives)


def _check_recovered(lives: ArrayLives) -> None:
    fold = Scheduler(lives.policy)
    fold.recover(FACT_CODEC.decode(FACT_CODEC.encode(fact)) for fact in lives.whole_facts)
    assert differences(fold.ledger, lives.whole.ledger, any_order=True) == []
    codec = SnapshotCodec()
    text = codec.encode(snapshot_of(lives.whole, codec.begin(0)))
    back = restored(SnapshotCodec().decode(text), lives.policy)
    assert differences(back.ledger, lives.whole.ledger) == []
    due = EndedJobsDue(id=f"due{lives.now}", observed_at=lives.now, keep=0, ended_before=lives.now)
    assert_same("restored", settled(back, [due], lives.now), settled(fold, [due], lives.now))
    check(back.ledger)
