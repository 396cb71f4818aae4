"""What each question that `service_load.py` asks costs the reader: its processor time, in one process, without HTTP.

Jobs wait on a full cluster; a controller takes them in, and a follower of its journal answers. Every tenth question one
more job has come, as what is kept from one answer to the next is good until then.

    PYTHONPATH=tests python benchmarks/question_costs.py [--pending 10000] [--times 60]

Prints for each question the median and the largest milliseconds, what of the median is pickling, and the answer's size.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from gantree.api.access.access import EVERYTHING, Caller
from gantree.api.views import queries
from gantree.api.views.job_list import Filter
from gantree.control.engine.controller import Controller
from gantree.control.garbage import set_all_apart
from gantree.control.readers.follower import Follower
from gantree.control.readers.frames import Reply, packed
from gantree.control.requests.read_view import ReadView
from gantree.control.requests.submissions import JobSubmission
from gantree.formats.cluster.reader import read_cluster
from gantree.formats.job.reader import read_submission_objects
from gantree.formats.policy.reader import PRESETS
from gantree.journal.sqlite import SqliteJournal, SqliteReader
from gantree.topology.hardware.prices import LIST_PRICES
from gantree.web.pages import overview
from gantree.web.pages.heat_map import feed as heat_feed
from gantree.web.pages.jobs import job as job_page
from gantree.web.pages.jobs import rows as job_rows
from gantree.web.pages.queues import page as shares
from gantree.web.pages.timeline import rows as latest
from loading import CLUSTER, TAKEN, job
from support.recording import RecordingCluster

BATCH = 100
ONE_MORE_EVERY = 10
ME = Caller("op", EVERYTHING, "socket")
Question = Callable[[ReadView, str], Any]
QUESTIONS: dict[str, Question] = {
    "GET /v1/jobs?limit=100": lambda at, _: queries.jobs(at, ME, Filter(), None, 100),
    "GET /v1/jobs/JOB": lambda at, job: queries.job(at, ME, job, None),
    "GET /v1/jobs/JOB/why": lambda at, job: queries.explained(at, ME, job),
    "GET /v1/jobs/JOB/when": lambda at, job: queries.start(at, ME, job),
    "GET /v1/queues": lambda at, _: queries.queues(at, ME),
    "GET /v1/nodes": lambda at, _: queries.nodes(at, ME),
    "page /": lambda at, _: overview.overview_of(at, ME),
    "page /queue": lambda at, _: job_rows.job_rows(at, job_rows.JobQuery(), ME),
    "page /queues": lambda at, _: shares.queue_shares(at, ME),
    "page /cluster": lambda at, _: heat_feed.latest_scene(at, -1),
    "page /jobs/JOB": lambda at, job: job_page.found(at, job, ME, LIST_PRICES),
    "page /jobs/JOB, its facts": lambda at, job: latest.facts_of_job(at, job, 0),
}


def hand_in(controller: Controller, names: list[str]) -> None:
    """Take jobs of these names in, and decide."""
    submission = read_submission_objects([job(name) for name in names], "benchmark")
    controller.submit_batch([JobSubmission(submission.jobs, "/tmp")])
    controller.step()


def costs_ms(follower: Follower, question: Question, more: Iterator[None], times: int) -> list[Any]:
    """(all, of it pickling, bytes) of each answer."""
    found = []
    jobs = list(follower.ledger.jobs)
    for number in range(times):
        if number % ONE_MORE_EVERY == ONE_MORE_EVERY // 2:
            next(more)
        reading = follower.read_view(follower.now)
        began_s = time.process_time()
        value = question(reading, jobs[number * 7919 % len(jobs)])
        answered_s = time.process_time()
        size = len(packed(Reply(1, value, reading.at, 0.0, 0.0)))
        ended_s = time.process_time()
        found.append((1e3 * (ended_s - began_s), 1e3 * (ended_s - answered_s), size))
    return sorted(found)


def main() -> None:
    """Print a line for each question."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pending", type=int, default=10_000)
    parser.add_argument("--times", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gantree-bench-") as directory:
        place, policy = Path(directory), PRESETS["gantree"]
        site = read_cluster(CLUSTER + TAKEN, "cluster.yaml")
        controller = Controller(SqliteJournal(place), policy, RecordingCluster, site=site)
        controller.recover()
        for first in range(0, options.pending, BATCH):
            hand_in(controller, [f"job-{n}" for n in range(first, first + BATCH)])
        follower = Follower(SqliteReader(place), policy)
        set_all_apart()

        def one_more() -> Iterator[None]:
            for number in count():
                hand_in(controller, [f"late-{number}"])
                follower.catch_up()
                yield

        more = one_more()
        print(f"{'':28} {'median ms':>9} {'max ms':>9} {'pickled ms':>10} {'bytes':>8}")
        for name, question in QUESTIONS.items():
            found = costs_ms(follower, question, more, options.times)
            middle_ms, pickled_ms, size = found[len(found) // 2]
            print(f"{name:28} {middle_ms:9.3f} {found[-1][0]:9.3f} {pickled_ms:10.3f} {size:8}")


if __name__ == "__main__":
    main()
