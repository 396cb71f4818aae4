"""The questions that routes and pages read: functions of a Reading that give plain JSON values. No HTTP here.

Whoever asks is told what he may see (`permissions`), and nothing else.

Each is a function of this module, so that it can be sent to the reader by its name.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import islice
from typing import Any

from gantree.api.access.access import Caller
from gantree.api.access.permissions import Asked, Need, job_for, sight_of_jobs, told_to
from gantree.api.access.visibility import (
    cluster_told_to,
    detail_told_to,
    facts_told_to,
    queues_told_to,
)
from gantree.api.views import job_list, job_view, node_view, policy_view, queue_view, start_view
from gantree.control.requests.policy_text import PolicyText
from gantree.control.requests.policy_versions import tried, version_of
from gantree.control.requests.read_view import Reading
from gantree.core.alternatives import Change, alternatives
from gantree.core.explain.explain import why
from gantree.model.errors import NotFound
from gantree.model.phases import ENDED, HOLDING, Phase
from gantree.placement.request.sizes import sizes_of

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LogState:
    """What a reader needs to know of a job: its attempts so far, and whether the last of them is over.

    is_last: no later state will be told here.
    """

    attempt: int
    attempt_over: bool
    job_over: bool
    is_last: bool = False


def jobs(
    reading: Reading,
    caller: Caller,
    wanted: job_list.Filter,
    after: str | None,
    limit: int | None,
) -> Json:
    """A page of jobs."""
    sees = sight_of_jobs(caller)
    found = job_list.page_of(reading.ledger, wanted, after, limit, sees)
    return {**found, "jobs": told_to(caller, reading.ledger, found["jobs"])}


def job_id(reading: Reading, caller: Caller, word: str, need: Need) -> str:
    """The id of the job that a caller means. Raises NotFound and Forbidden."""
    return job_for(reading, caller, word, need)


def job(
    reading: Reading, caller: Caller, word: str, wanted: AbstractSet[Phase] | None
) -> Json | None:
    """A job if it is in a wanted phase, None: any; many wait for one at once, and its detail takes long to tell."""
    state = reading.ledger.jobs.get(job_for(reading, caller, word, Need.SEE))
    if state is not None and wanted is not None and state.phase not in wanted:
        return None
    return detail(reading, caller, word)


def detail(asked: Asked, caller: Caller, word: str) -> Json:
    """All of a job. Raises NotFound."""
    job = job_for(asked, caller, word, Need.SEE)
    return detail_told_to(caller, asked.ledger, job_view.job_detail(asked.ledger, job))


def facts(
    reading: Reading, caller: Caller, after: int, limit: int
) -> tuple[int | None, list[Json]]:
    """The seq of the last of the next facts, None where there are none, and those that the caller is told."""
    page = list(islice(reading.journal.facts(after), limit))
    told = facts_told_to(caller, reading.ledger, [job_view.fact(recorded) for recorded in page])
    return page[-1].seq if page else None, told


def compacted_to(reading: Reading) -> int:
    """The seq up to which facts are gone."""
    return reading.journal.compacted_to()


def log_of(reading: Reading, caller: Caller, word: str) -> tuple[str, int, int]:
    """The job's id, the most processes that an attempt of it may have or have had, and how many attempts there were."""
    job = job_for(reading, caller, word, Need.READ)
    state = reading.ledger.jobs.get(job)
    if state is None:
        raise NotFound(f"{job} was rejected, so it never wrote anything")
    return job, state.at_size(max(sizes_of(state.spec))).processes, state.attempt


def log_state(reading: Reading, job: str) -> LogState:
    """How far a job is whose output is read."""
    state = reading.ledger.jobs.get(job)
    if state is None:  # it ended so long ago that it is forgotten
        return LogState(0, attempt_over=True, job_over=True)
    return LogState(state.attempt, state.phase not in HOLDING, state.phase in ENDED)


def queues(reading: Reading, caller: Caller) -> list[Json]:
    """The queue tree."""
    return queues_told_to(caller, queue_view.queues_json(reading.ledger, reading.now))


def cluster(reading: Reading, caller: Caller) -> Json:
    """The site as it is now, and who holds which GPU."""
    return cluster_told_to(caller, reading.ledger, job_view.cluster(reading.ledger))


def nodes(reading: Reading, caller: Caller) -> list[Json]:
    """All nodes."""
    rows: list[Json] = told_to(caller, reading.ledger, node_view.node_rows(reading.ledger))
    return rows


def node(reading: Reading, caller: Caller, name: str) -> Json:
    """One node. Raises NotFound."""
    row: Json = told_to(caller, reading.ledger, node_view.node_row(reading.ledger, name))
    return row


def explained(reading: Reading, caller: Caller, word: str) -> Json:
    """Why a job is where it is. Raises NotFound."""
    job = job_for(reading, caller, word, Need.SEE)
    explained = job_view.explanation(why(reading.ledger, job, now=reading.now))
    told: Json = told_to(caller, reading.ledger, explained)
    return told


def start(reading: Reading, caller: Caller, word: str) -> Json:
    """When a job starts. Raises NotFound."""
    job = job_for(reading, caller, word, Need.SEE)
    start = start_view.when_json(reading.ledger, job, reading.now)
    told: Json = told_to(caller, reading.ledger, start)
    return told


def what_if(reading: Reading, caller: Caller, word: str, changes: Sequence[Change]) -> Json:
    """What would become of a job if it were otherwise. Raises NotFound, and BadInput for changes that cannot be."""
    job = job_for(reading, caller, word, Need.SEE)
    found = alternatives(reading.ledger, job, changes, reading.now)
    told = [start_view.alternative_json(each) for each in found]
    told = told_to(caller, reading.ledger, told)
    return {"job": job, "asked_at": reading.now, "alternatives": told}


def moves(reading: Reading, word: str) -> Json:
    """The moves that would let a waiting job start. Raises NotFound, and Conflict where it does not wait."""
    job = reading.resolve(word)
    return start_view.defragmentation_json(job, *reading.moves_for(job))


def policy_in_force(reading: Reading) -> Json:
    """The version that rules."""
    return policy_view.in_force(reading.ledger)


def policy_versions(reading: Reading) -> list[Json]:
    """All versions, without their texts."""
    return [policy_view.version_row(version) for version in reading.ledger.policies]


def policy_version(reading: Reading, number: int) -> Json:
    """One version with its text. Raises NotFound."""
    return policy_view.version(version_of(reading.ledger, number))


def policy_change(reading: Reading, handed_in: PolicyText) -> Json:
    """What a policy would change. Raises BadInput where it is wrong or does not suit."""
    return policy_view.change(tried(reading, handed_in))
