"""Progress that a job reports. It is an observation: no decision depends on it, and it is not in the journal."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """The last report of an attempt; None for what it did not report. at is when, in seconds since 1970."""

    step: int
    loss: float | None
    samples_per_s: float | None
    step_s: float | None
    at: float
