"""The live local executor and its simulation agree: a daemon runs real processes, and its journal is replayed.

`make faithful` does the same with 300 jobs, and measures. Nothing here depends on how fast the machine is: order and
placement are compared up to the first moment at which two events lie within 100 ms.
"""

from collections.abc import Iterator, Sequence

import pytest

from gantree.formats import read_policy
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sqlite import SqliteReader
from gantree.model.events import ClusterObserved, Event, GangEnded, JobSubmitted, TimePassed
from gantree.model.facts import GangPlaced
from gantree.model.placements import Domain, MemberPlacement, Placement, Predicted
from gantree.sim.overheads import Overheads
from gantree.sim.replay.agreement import Agreement, agreement, first_close, placed_in
from gantree.sim.replay.batches import decide_again
from gantree.sim.replay.reading import batches, read_recording
from gantree.sim.replay.replaying import replay
from gantree.testing.builders import cluster, job
from support.daemon import Daemon
from support.live_runs import POLICY, SITE, spaced_jobs, submit_all, wait_for_all

JOBS = 12
CLOSE_S = 0.1
RULED = read_policy(POLICY, "policy.yaml")


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlJournal]:
    """The journal of a daemon that has run some short jobs."""
    folder = tmp_path_factory.mktemp("live")
    jobs = spaced_jobs(JOBS, 2, folder / "saves")
    with Daemon(folder / "state", SITE, POLICY) as daemon:
        submit_all(daemon.client, jobs)
        wait_for_all(daemon.client, len(jobs))
    journal = SqliteReader(folder / "state")
    yield journal
    journal.close()


def test_the_batches_of_the_journal_decided_again_give_its_facts(journal: SqlJournal) -> None:
    facts = [each.fact for each in journal.facts()]
    assert decide_again(batches(journal), RULED, read_policy) == facts


def test_order_and_placement_follow_from_submissions_until_two_events_are_close(
    journal: SqlJournal,
) -> None:
    events = [event for batch in batches(journal) for event in batch]
    until = first_close(events, CLOSE_S)
    placed = placed_in(each.fact for each in journal.facts())
    simulated = replay(read_recording(journal, RULED), RULED)
    found = agreement(placed, simulated.placements, until)
    assert found.alike == found.compared
    assert found.in_all == len(placed) >= JOBS * 2 // 3


def test_every_job_ends_in_the_simulation_as_it_did(journal: SqlJournal) -> None:
    recording = read_recording(journal, RULED)
    assert recording.measured.starts == sum(each.outcome.attempts for each in recording.jobs)
    assert {job.outcome for job in replay(recording, RULED).jobs} == {"succeeded"}
    constants = Overheads(start_s=0.3, stop_s=0.2)
    assert {job.outcome for job in replay(recording, RULED, constants).jobs} == {"succeeded"}


def place(*nodes: str) -> Placement:
    members = tuple(MemberPlacement("w", rank, node, (0,), ()) for rank, node in enumerate(nodes))
    return Placement(members, Domain("fabric", ""), Predicted(0.0, ()))


def facts(*found: tuple[float, str, str]) -> Sequence[GangPlaced]:
    return [GangPlaced(at=at, job=job, attempt=1, placement=place(node)) for at, job, node in found]


def test_placements_are_compared_in_their_order_up_to_a_moment() -> None:
    was = placed_in(facts((1, "a", "n0"), (2, "b", "n1"), (3, "c", "n2"), (4, "d", "n3")))
    then = placed_in(facts((1.5, "a", "n0"), (2, "b", "n0"), (3, "c", "n2")))
    assert agreement(was, then, 3.5) == Agreement(compared=3, alike=1, in_all=4)
    assert agreement(was, was, 2.5) == Agreement(compared=2, alike=2, in_all=4)


def test_events_of_one_job_and_events_that_decide_nothing_are_never_close() -> None:
    seen = ClusterObserved(id="site", observed_at=0, cluster=cluster())
    first = JobSubmitted(id="a", observed_at=0.05, job="a", spec=job("a"))
    told = [
        seen,
        first,
        ended(1, "a"),
        ended(1.05, "a"),
        TimePassed(id="t", observed_at=2),
        ended(2.05, "b"),
    ]
    assert first_close(told, CLOSE_S) == float("inf")
    assert first_close([*told, ended(2.1, "c")], CLOSE_S) == 2.05


def ended(at: float, job: str) -> Event:
    return GangEnded(id=f"{job}{at}", observed_at=at, job=job, attempt=1, exit_code=0)
