"""A submission to a federation, document by document: what clusters get of each, and what the front needs to know."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import yaml

from gantree.api.routes.jobs import SubmissionRequest
from gantree.federation.jobs.federated_job import FederatedJob, Json
from gantree.formats import read_submission, read_submission_objects
from gantree.formats.job.reader import Submission
from gantree.model.errors import Unsupported
from gantree.model.jobs import Job


def federated_jobs(body: SubmissionRequest, user: str, key: str = "") -> list[FederatedJob]:
    """The jobs and services of a submission; their ids are their names. Raises BadFields and Unsupported."""
    if body.jobs is None:
        assert body.text is not None, "a submission has one of the two"
        read_submission(body.text, body.source)  # all that is wrong with it is told at once
        parts: list[tuple[Submission, Json]] = [
            (read_submission(text, body.source), {"text": text}) for text in _documents(body.text)
        ]
    else:
        read_submission_objects(body.jobs, "request")
        parts = [
            (read_submission_objects([each], "request"), {"jobs": [each]}) for each in body.jobs
        ]
    found: list[FederatedJob] = []
    for read, document in parts:
        submission = _body(body, document, user)
        found += [_job(job, submission, body.overrides, user, "job") for job in read.jobs]
        found += [
            replace(
                _job(service.replica, submission, body.overrides, user, "service", service.name),
                regions=regions,
            )
            for service, regions in zip(read.services, read.regions, strict=True)
        ]
    return [replace(job, key=key) for job in found]


def _documents(text: str) -> Iterator[str]:
    """The documents of a file, each at its lines, so that errors of clusters name the right ones."""
    lines = text.splitlines(keepends=True)
    first = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        mark = event.start_mark
        if mark is None:
            continue
        if isinstance(event, yaml.DocumentStartEvent):
            first = mark.line
        elif isinstance(event, yaml.DocumentEndEvent):
            piece = lines[first : mark.line + (mark.column > 0)]
            yield "\n" * first + "".join(
                f"   {line[3:]}" if line.startswith("---") else line for line in piece
            )


def _body(body: SubmissionRequest, document: Json, user: str) -> Json:
    return {
        "source": body.source,
        "base_dir": body.base_dir,
        "overrides": body.overrides,
        "env": body.env,
        "default_env": body.default_env,
        "user": user,
        **document,
    }


def _job(
    job: Job, submission: Json, overrides: Mapping[str, Any], user: str, kind: str, name: str = ""
) -> FederatedJob:
    if job.array or job.after:
        field = "array" if job.array else "after"
        raise Unsupported(f"{field}: a job of a federation has none; submit it to a cluster")
    checkpoint = None if job.checkpoint is None else job.checkpoint.path
    if checkpoint is not None:
        checkpoint = str(PurePosixPath(submission["base_dir"] or "/") / checkpoint)
    called = str(overrides.get("name", name or job.name))
    return FederatedJob(
        called,
        called,
        submission,
        user=job.user or user,
        queue=str(overrides.get("queue", job.queue)),
        kind=kind,
        data=tuple((need.name, need.GiB) for need in job.data),
        checkpoint=checkpoint,
    )
