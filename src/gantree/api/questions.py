"""The questions that routes and pages read: functions of a Reading that give plain JSON values. No HTTP here.

Whoever asks is told what he may see (`permissions`), and nothing else.

Each is a function of this module, so that it can be sent to the reader by its name.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from gantree.api import job_list, node_view, policy_view, queue_view, start_view, views
from gantree.api.access import Caller
from gantree.api.permissions import Need, job_for, sees, told_to
from gantree.api.sight import cluster_told_to, queues_told_to
from gantree.control.policies import PolicyText, tried, version_of
from gantree.control.reading import Reading
from gantree.core.alternatives import Change, alternatives
from gantree.core.explain import why

Json = dict[str, Any]


def jobs(
    reading: Reading,
    caller: Caller,
    wanted: job_list.Filter,
    after: str | None,
    limit: int | None,
) -> Json:
    """A page of jobs."""
    admits = None if caller.sees_all else partial(sees, caller)
    found = job_list.page_of(reading.ledger, wanted, after, limit, admits)
    return {**found, "jobs": told_to(caller, reading.ledger, found["jobs"])}


def queues(reading: Reading, caller: Caller) -> list[Json]:
    """The queue tree."""
    return queues_told_to(caller, queue_view.queues_json(reading.ledger, reading.now))


def cluster(reading: Reading, caller: Caller) -> Json:
    """The site as it is now, and who holds which GPU."""
    return cluster_told_to(caller, reading.ledger, views.cluster(reading.ledger))


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
    explained = views.explanation(why(reading.ledger, job, now=reading.now))
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
