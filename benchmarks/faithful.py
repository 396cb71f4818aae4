"""Whether the live local executor and its simulation agree, on short jobs with real processes.

A daemon runs jobs that sleep for seconds on a described cluster of six nodes, all of them this machine: mixed sizes,
two queues, two classes of priority, some that save on a signal, some that are preempted. Then its journal is compared:

* batches: the journal's batches of events, decided again, give its facts, one by one (order and placement included);
* replay: submissions and recorded work, each attempt with the start, stop and end that it had;
* written: submissions alone: seconds as the job files have them, and one constant for all starts, one for all stops and
  one for all ends, the medians of the record.

For the last two: absolute differences of first starts, the makespan, and how many placements are alike, in order,
before the first moment at which two events lie within 100 ms. All must be for "replay"; for "written", starts that vary
by more than that change the order. --spaced makes events lie apart if it can.

    PYTHONPATH=src:tests python benchmarks/faithful.py [--jobs 300] [--every 0.8] [--longest 4] [--seed 1] [--keep DIR]
    PYTHONPATH=src:tests python benchmarks/faithful.py --jobs 40 --spaced

Prints a table; exits 1 where a target is missed: all batches, the makespan within 1 %, 95 % of the starts within 2 s.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from gantree.formats import read_policy
from gantree.journal.sqlite import SqliteReader
from gantree.sim.overheads import Overheads
from gantree.sim.replay.agreement import Agreement, Placed, agreement, first_close, placed_in
from gantree.sim.replay.batches import decide_again
from gantree.sim.replay.comparison import Comparison
from gantree.sim.replay.fold import TOGETHER_S
from gantree.sim.replay.reading import batches, read_recording
from gantree.sim.replay.recording import Recording
from gantree.sim.replay.replaying import Replayed, replay
from support.daemon import Daemon
from support.live_runs import (
    POLICY,
    SITE,
    ShortJob,
    short_jobs,
    spaced_jobs,
    submit_all,
    wait_for_all,
)

CLOSE_S = 0.1
MAKESPAN = 0.01
START_P95_S = 2.0
WRITTEN = "written"


@dataclass(frozen=True, slots=True)
class Row:
    """One simulation beside the record."""

    name: str
    makespan: float
    start_p50_s: float
    start_p95_s: float
    start_max_s: float
    preemptions: int
    placements: Agreement

    @property
    def holds(self) -> bool:
        """Whether it meets the targets."""
        alike = self.placements.alike == self.placements.compared or self.name == WRITTEN
        return alike and abs(self.makespan) <= MAKESPAN and self.start_p95_s <= START_P95_S


def live(state: Path, jobs: Sequence[ShortJob]) -> None:
    """Run the jobs to their ends."""
    with Daemon(state, SITE, POLICY) as daemon:
        submit_all(daemon.client, jobs)
        wait_for_all(daemon.client, len(jobs))


def jobs_of(options: argparse.Namespace, saves: Path) -> list[ShortJob]:
    """What is to be run."""
    if options.spaced:
        return spaced_jobs(options.jobs, options.seed, saves)
    return short_jobs(options.jobs, options.seed, options.every, options.longest, saves)


def compared(state: Path) -> tuple[bool, Recording, list[Row]]:
    """Whether all batches agree, the recording, and the simulations."""
    policy, journal = read_policy(POLICY, "policy.yaml"), SqliteReader(state)
    facts = [each.fact for each in journal.facts()]
    told = list(batches(journal))
    same = decide_again(told, policy, read_policy) == facts
    recording = read_recording(journal, policy)
    journal.close()
    until = first_close((event for batch in told for event in batch), CLOSE_S)
    placed = placed_in(facts)
    own = replay(recording, policy)
    written, constants = as_written(recording)
    return (
        same,
        recording,
        [
            _row("replay", recording, own, placed, until),
            _row(WRITTEN, recording, replay(written, policy, constants), placed, until),
        ],
    )


def as_written(recording: Recording) -> tuple[Recording, Overheads]:
    """The jobs with the seconds of their files, and one constant for each kind of order."""
    jobs = tuple(replace(job, work_s=job.spec.expected_s or 0.0) for job in recording.jobs)
    measured = recording.measured.overheads
    more_s = median(was.work_s - now.work_s for was, now in zip(recording.jobs, jobs, strict=True))
    constants = Overheads(
        start_s=measured.start_s,
        stop_s=measured.stop_s,
        save_s=measured.save_s,
        end_s=max(0.0, measured.end_s + more_s),
        together_s=TOGETHER_S,
    )
    return replace(recording, jobs=jobs), constants


def _row(
    name: str, recording: Recording, simulated: Replayed, placed: list[Placed], until: float
) -> Row:
    document = Comparison(recording, simulated, simulated).document()
    error = document["error"]
    return Row(
        name,
        error["makespan"],
        error["start_s"]["p50"],
        error["start_s"]["p95"],
        error["start_s"]["max"],
        document["recorded_policy"]["preemptions"],
        agreement(placed, simulated.placements, until),
    )


def lines(same: bool, recording: Recording, rows: list[Row]) -> Iterator[str]:
    """The table."""
    measured = recording.measured
    preemptions = sum(job.outcome.preemptions for job in recording.jobs)
    makespan_s = max(job.outcome.ended_at or 0.0 for job in recording.jobs) - recording.began_at
    yield (
        f"{len(recording.jobs)} jobs, {preemptions} preemptions, {measured.saves} requested checkpoints,"
        f" {makespan_s:.0f} s"
    )
    yield (
        f"medians: a start {measured.overheads.start_s:.3f} s, a stop {measured.overheads.stop_s:.3f} s, a checkpoint"
        f" {measured.overheads.save_s:.3f} s, an end is known after {measured.overheads.end_s:.3f} s"
    )
    yield f"batches decided again give the recorded facts: {'yes' if same else 'NO'}"
    yield "simulation  makespan  starts p50      p95      max  preemptions  placements alike"
    for row in rows:
        found = row.placements
        starts = f"{row.start_p50_s:8.3f} s {row.start_p95_s:6.3f} s {row.start_max_s:6.2f} s"
        alike = f"{found.alike} of {found.compared} before close events, {found.in_all} in all"
        yield (
            f"{row.name:10}  {row.makespan:+8.2%}  {starts}  {row.preemptions:11}  {alike}"
            f"  {'holds' if row.holds else 'MISSED'}"
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--every", type=float, default=0.8, help="seconds between submissions")
    parser.add_argument("--longest", type=float, default=4.0, help="seconds of the longest job")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--spaced", action="store_true", help="events that lie apart")
    parser.add_argument("--keep", type=Path, help="compare the run in DIR, or run there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gantree-faithful-") as scratch:
        state = options.keep or Path(scratch) / "state"
        if not (state / "journal.sqlite3").exists():
            live(state, jobs_of(options, state / "saves"))
        same, recording, rows = compared(state)
    print("\n".join(lines(same, recording, rows)))
    sys.exit(not (same and all(row.holds for row in rows)))


if __name__ == "__main__":
    main()
