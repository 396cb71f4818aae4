"""The API of the front: the part of a daemon's that makes sense before several clusters, and the federation itself.

What it does not have is answered with 501, which names a way out.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from gantree import __version__
from gantree.api.access.access import CurrentCaller
from gantree.api.access.permissions import Need, check_submission, needs
from gantree.api.client.async_client import AsyncClient
from gantree.api.client.request import LONGEST_WAIT_S
from gantree.api.client.request import Request as Asked
from gantree.api.client.requests import why as ask_why
from gantree.api.client.service_requests import report_routes, scale_service, service, services
from gantree.api.client.site_requests import federated_object
from gantree.api.http.problems import MEDIA_TYPE
from gantree.api.http.responses import json_response
from gantree.api.routes.jobs import IdempotencyKey, SubmissionRequest
from gantree.api.routes.services.routing import RouterReportBody
from gantree.api.routes.services.services import ServiceScaleRequest
from gantree.federation.api import rows, service_rows
from gantree.federation.api.metrics import exposition
from gantree.federation.api.route_table import divided
from gantree.federation.api.submission import federated_jobs
from gantree.federation.api.tables import Tables
from gantree.federation.driver import Driver, now_s
from gantree.federation.jobs.federated_job import FederatedJob, Stage
from gantree.model.errors import BadInput, Conflict, GantreeError, NotFound, Unreachable
from gantree.model.phases import ENDED, HOLDING, Phase

Json = dict[str, Any]
T = TypeVar("T")
ASK_WITHIN_S = 5.0
REPORT_WITHIN_S = 1.0
"""A router reports every two seconds, to all clusters at once: one that hangs must not hold up the others."""
AGAIN_S = 0.25
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]


@dataclass(frozen=True, slots=True)
class FrontBackend:
    """What the routes work on."""

    driver: Driver
    clients: Mapping[str, AsyncClient]
    tables: Tables
    started_at: float

    def job(self, word: str) -> FederatedJob:
        """The job of an id. Raises NotFound."""
        if (job := self.driver.front.jobs.get(word)) is None:
            raise NotFound(f"there is no job {word!r}")
        return job


def router(backend: FrontBackend) -> APIRouter:
    """All routes that need a caller."""
    routes = APIRouter(prefix="/v1")
    _add_submission(routes, backend)
    _add_jobs(routes, backend)
    _add_job(routes, backend)
    _add_services(routes, backend)
    _add_routing(routes, backend)
    _add_federation(routes, backend)
    _add_rest(routes, backend)
    return routes


def metrics_router(backend: FrontBackend) -> APIRouter:
    """The metrics, which need a caller, too."""
    routes = APIRouter()

    @routes.get("/metrics", **needs(Need.SEE_ALL))
    async def metrics() -> Response:
        """The clusters and how many jobs each has, for Prometheus."""
        text = exposition(rows.status(backend.driver.front, now_s()))
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    return routes


def _add_submission(routes: APIRouter, backend: FrontBackend) -> None:
    front = backend.driver.front

    @routes.post("/jobs", **needs(Need.SUBMIT))
    async def submit(
        body: SubmissionRequest, caller: CurrentCaller, idempotency_key: IdempotencyKey = None
    ) -> Response:
        """Hand in jobs and services, each to the cluster that starts it first or cheapest."""
        key = f"{caller.name}/{idempotency_key}" if idempotency_key else ""
        if known := front.of_key(key):
            return json_response(_receipt(known), 201)
        user = check_submission(caller, (), body.overrides, body.user, body.login)
        jobs = await asyncio.to_thread(federated_jobs, body, user, key)
        offered = [await backend.driver.offers(job) for job in jobs]
        for offers in offered:
            if len(offers) == len(backend.clients) and all(each.refusal for each in offers):
                raise BadInput("; ".join(each.sentence for each in offers))
        if not (taken := front.of_key(key)):  # sent again meanwhile
            taken = front.submit(list(zip(jobs, offered, strict=True)))
        backend.driver.wake()
        return json_response(_receipt(taken), 201)


def _receipt(jobs: list[FederatedJob]) -> Json:
    warnings = [
        f"{job.job}: {job.reasons[-1][1] if job.reasons else 'no cluster can be asked now'}"
        for job in jobs
        if job.stage is Stage.CHOOSING
    ]
    return {
        "jobs": [
            {"job": job.job, "name": job.name, "array": None} for job in jobs if not job.is_service
        ],
        "services": [
            {"service": name} for name in dict.fromkeys(job.name for job in jobs if job.is_service)
        ],
        "warnings": warnings,
    }


def _add_jobs(routes: APIRouter, backend: FrontBackend) -> None:
    front = backend.driver.front

    @routes.get("/jobs", **needs(Need.SEE_ALL))
    async def jobs(
        phase: Annotated[list[str] | None, Query()] = None,
        queue: str | None = None,
        user: str | None = None,
        name: str | None = None,
        since: float | None = None,
        after: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int | None, Query(ge=1)] = None,
    ) -> Response:
        """The jobs in order of arrival."""
        wanted = _filter(phase, queue, user, name, since)
        found = [rows.job_row(job) for job in front.jobs.values() if wanted(job)]
        last = len(found) if limit is None else after + limit
        more = str(last) if last < len(found) else None
        return json_response({"jobs": found[after:last], "next": more})

    @routes.get("/job-id", **needs(Need.SEE_ALL))
    async def job_id(name: str) -> Response:
        """The job of an id, or the newest live one of a name."""
        named = [job for job in front.jobs.values() if job.name == name and job.phase not in ENDED]
        live = front.jobs.get(name)
        if live is not None and (live.phase not in ENDED or not named):
            return json_response({"job": name, "instead_of": None})
        if not named:
            raise NotFound(f"there is no job {name!r}")
        return json_response({"job": named[-1].job, "instead_of": name if live else None})


def _add_job(routes: APIRouter, backend: FrontBackend) -> None:
    front = backend.driver.front

    @routes.get("/jobs/{word}", **needs(Need.SEE_ALL))
    async def job(
        word: str,
        wait_s: Annotated[float, Query(ge=0, le=LONGEST_WAIT_S)] = 0.0,
        until: str = "ended",
    ) -> Response:
        """One job; with wait_s once it has come to what it is waited for."""
        wanted = ENDED if until == "ended" else ENDED | HOLDING - {Phase.STARTING}
        ends_at = now_s() + wait_s
        while backend.job(word).phase not in wanted and now_s() < ends_at:
            await asyncio.sleep(AGAIN_S)
        found = backend.job(word)
        extra = {"version": str(found.number), "spec": None, "placement": None}
        return json_response({**rows.job_row(found), **extra})

    @routes.get("/jobs/{word}/why", **needs(Need.SEE_ALL))
    async def why(word: str) -> Response:
        """Why a job is in its cluster, with the figures of each, and why it is there as it is."""
        found = backend.job(word)
        is_there = found.stage is Stage.PLACED and not found.is_service
        if found.is_service and found.stage is not Stage.ENDED:
            others = [each for each in front.copies(found.name) if each.job != found.job]
            return json_response(rows.why(found, " ".join(map(rows.sentence, others))))
        return json_response(rows.why(found, await _why_there(backend, found) if is_there else ""))

    @routes.post("/jobs/{word}/cancel", status_code=202, **needs(Need.OPERATE))
    async def cancel(word: str) -> Response:
        """End a job, wherever it is; a service by its name in all clusters."""
        job = backend.job(word)
        is_live = job.is_service and job.job == job.name and job.stage is not Stage.ENDED
        for name in [each.job for each in front.copies(word)] if is_live else [word]:
            front.cancel(name)
        backend.driver.wake()
        return json_response({"job": word}, 202)


async def _why_there(backend: FrontBackend, job: FederatedJob) -> str:
    """What the cluster of a job says of it."""
    silent = f"{job.cluster} does not answer now."
    remote = job.remote
    if "/" in remote:
        gangjob = await _ask(backend, job.cluster, federated_object("gangjobs", remote), {})
        if not gangjob or gangjob["in_ledger"] is None:
            return f"GangJob {remote} has no pods yet." if gangjob else silent
        remote = gangjob["in_ledger"]
    answer = await _ask(backend, job.cluster, ask_why(remote), {"sentence": silent})
    return str(answer["sentence"])


def _filter(
    phase: list[str] | None,
    queue: str | None,
    user: str | None,
    name: str | None,
    since: float | None,
) -> Callable[[FederatedJob], bool]:
    def wanted(job: FederatedJob) -> bool:
        return (
            (not phase or job.phase in phase)
            and (queue is None or f"{job.queue}/".startswith(f"{queue}/"))
            and (user is None or job.user == user)
            and (name is None or job.name == name)
            and (since is None or job.submitted_at >= since)
        )

    return wanted


async def _ask(
    backend: FrontBackend,
    cluster: str,
    request: Asked[T],
    otherwise: T,
    within_s: float = ASK_WITHIN_S,
) -> T:
    """The answer of a cluster to a question; otherwise, where it gives none in time."""
    try:
        async with asyncio.timeout(within_s):
            return await backend.clients[cluster].send(request)
    except (GantreeError, TimeoutError):
        return otherwise


def _add_services(routes: APIRouter, backend: FrontBackend) -> None:
    front = backend.driver.front

    @routes.get("/services", **needs(Need.SEE_ALL))
    async def all_services() -> Response:
        """The services of the federation, each with the sums over its clusters, as those tell."""
        names = list(backend.clients)
        answers = await asyncio.gather(*(_ask(backend, name, services(), []) for name in names))
        copies = {
            (job.cluster, job.service_there): job for job in front.jobs.values() if job.is_service
        }
        of_service: dict[str, list[service_rows.Copy]] = {}
        for name, told in zip(names, answers, strict=True):
            for row in told:
                if (job := copies.get((name, row["service"]))) is not None:
                    copy = (name, {**row, "service": job.name})
                    of_service.setdefault(job.name, []).append(copy)
        return json_response(
            {"services": [service_rows.summed(each) for each in of_service.values()]}
        )

    @routes.get("/services/{name}", **needs(Need.SEE_ALL))
    async def one(name: str) -> Response:
        """A service as the clusters that have it tell; without those that do not answer."""
        placed = _placed(backend, name)
        answers: list[Json] = await asyncio.gather(
            *(_ask(backend, copy.cluster, service(copy.service_there), {}) for copy in placed)
        )
        told = [
            (copy.cluster, {**row, "service": name})
            for copy, row in zip(placed, answers, strict=True)
            if row
        ]
        if not told:
            clusters = ", ".join(copy.cluster for copy in placed)
            raise Unreachable(f"{clusters} does not answer now")
        return json_response(service_rows.in_full(told))

    @routes.post("/services/{name}/scale", status_code=202, **needs(Need.OPERATE))
    async def scale(name: str, body: ServiceScaleRequest) -> Response:
        """Have another number of replicas run in each cluster that has the service."""
        for copy in _placed(backend, name):
            await backend.clients[copy.cluster].send(
                scale_service(copy.service_there, body.replicas)
            )
        return json_response({"service": name}, 202)

    @routes.post("/services/{name}/cancel", status_code=202, **needs(Need.OPERATE))
    async def cancel(name: str) -> Response:
        """End a service; its replicas finish their requests first."""
        for copy in front.copies(name):
            front.cancel(copy.job)
        backend.driver.wake()
        return json_response({"service": name}, 202)


def _placed(backend: FrontBackend, name: str) -> list[FederatedJob]:
    """The copies of a service that a cluster has. Raises NotFound, and Conflict where none has."""
    copies = backend.driver.front.copies(name)
    if placed := [copy for copy in copies if copy.stage is Stage.PLACED]:
        return placed
    raise Conflict(f"no cluster has {name} now: {rows.why(copies[0])['sentence']}")


def _add_routing(routes: APIRouter, backend: FrontBackend) -> None:
    tables = backend.tables

    @routes.get("/routes", **needs(Need.ROUTE))
    async def table(
        after: Annotated[str, Query(max_length=32)] = "",
        wait_s: Annotated[float, Query(ge=0, le=LONGEST_WAIT_S)] = 0.0,
    ) -> Response:
        """Where the replicas of all clusters listen, the region as their widest domain."""
        await tables.wait(after, wait_s)
        return json_response({"version": str(tables.version), "services": tables.services})

    @routes.post("/routes/reports", **needs(Need.ROUTE))
    async def report(body: RouterReportBody) -> Response:
        """Report requests: each cluster gets the part of its own replicas."""
        told = divided(body.model_dump(), tables.known_by(body.version))
        parts = [
            (
                cluster,
                report_routes(
                    each["router"], each["window_s"], each["services"], version=each["version"]
                ),
            )
            for cluster, each in told.items()
        ]
        await asyncio.gather(
            *(_ask(backend, cluster, asked, {}, REPORT_WITHIN_S) for cluster, asked in parts)
        )
        return json_response({"version": str(tables.version)})


def _add_federation(routes: APIRouter, backend: FrontBackend) -> None:
    front = backend.driver.front

    @routes.get("/federation", **needs(Need.KNOWN))
    async def status() -> Response:
        """The clusters, whether they answer, their leases, and how many jobs they have."""
        return json_response(rows.status(front, now_s()))

    @routes.post("/federation/clusters/{cluster}/lost", status_code=202, **needs(Need.OPERATE))
    async def lost(cluster: str) -> Response:
        """Declare that nothing runs in a cluster any more: its jobs are started elsewhere at once."""
        front.confirm_lost(cluster, now_s())
        backend.driver.wake()
        return json_response({"cluster": cluster}, 202)

    @routes.get("/health", **needs(Need.KNOWN))
    async def health() -> Response:
        """Who answers."""
        return json_response(
            {
                "version": __version__,
                "pid": os.getpid(),
                "cluster": f"federation {front.federation.name}",
                "epoch": 0,
                "turns": 0,
                "started_at": backend.started_at,
                "set_aside": 0,
            }
        )


def _add_rest(routes: APIRouter, backend: FrontBackend) -> None:
    @routes.api_route("/{path:path}", methods=METHODS, include_in_schema=False, **needs(Need.KNOWN))
    async def rest(path: str, request: Request) -> Response:
        """What only a cluster can answer."""
        detail = (
            f"the front of a federation does not answer {request.method} /v1/{path}; "
            + _way_out(backend, path)
        )
        body = {"title": "Unsupported", "status": 501, "detail": detail}
        return JSONResponse(body, 501, media_type=MEDIA_TYPE)


def _way_out(backend: FrontBackend, path: str) -> str:
    """Whom to ask instead: the cluster of the job that a path is about, else any."""
    front, words = backend.driver.front, path.split("/")
    job = front.jobs.get(words[1]) if len(words) > 1 and words[0] in ("jobs", "services") else None
    if job is not None and job.stage is Stage.PLACED:
        url = front.federation.cluster(job.cluster).url
        return f"ask {job.cluster} ({url}), which has {job.job} as {job.remote}"
    return "ask a cluster: " + ", ".join(
        f"{each.name} ({each.url})" for each in front.federation.clusters
    )
