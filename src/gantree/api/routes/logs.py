"""The route of a job's output. How the output of ranks becomes one stream is in `gantree.api.logs`."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from gantree.api.access import Caller, WhoAsks
from gantree.api.answers import comes_as
from gantree.api.backend import Backend
from gantree.api.logs import LogState, RankLog, is_over, rank_logs, stream_attempt, stream_job
from gantree.api.permissions import Need, job_for, needs
from gantree.control.controller import Controller
from gantree.model.errors import NotFound
from gantree.model.phases import ENDED, HOLDING
from gantree.placement.sizes import sizes_of


def router(backend: Backend) -> APIRouter:
    """The routes of this module."""
    routes = APIRouter(prefix="/v1/jobs", tags=["logs"])

    @routes.get(
        "/{word}/logs",
        **comes_as("text/plain", "The output.", "[0] step 1\n"),
        **needs(Need.READ),
    )
    async def logs(
        word: str,
        caller: WhoAsks,
        rank: Annotated[int | None, Query(ge=0)] = None,
        attempt: Annotated[int | None, Query(ge=1)] = None,
        follow: bool = False,
    ) -> StreamingResponse:
        """What the ranks of a job wrote, each line under its rank unless one is named; with follow to the job's end."""
        job, processes, attempts = await backend.ask(
            lambda controller: _job_of_log(controller, caller, word)
        )
        if rank is not None and rank >= processes:
            raise NotFound(f"{job} has the ranks 0 to {processes - 1}, no rank {rank}")
        if attempt is not None and attempt > attempts and not follow:
            raise NotFound(f"{job} has had {attempts} attempts, no attempt {attempt}")
        log = _JobLog(backend, job, processes, rank)
        if attempt is None:
            stream = stream_job(log.state, log.of_attempt, follow=follow)
        else:
            over = is_over(log.state, attempt, follow=follow)
            stream = stream_attempt(log.of_attempt(attempt), over)
        return StreamingResponse(stream, media_type="text/plain; charset=utf-8")

    return routes


@dataclass(frozen=True, slots=True)
class _JobLog:
    """Where the output of one job, or of one rank of it, is found as it comes."""

    backend: Backend
    job: str
    processes: int
    rank: int | None

    def of_attempt(self, attempt: int) -> tuple[RankLog, ...]:
        cluster = self.backend.controller.cluster
        return rank_logs(
            lambda each: cluster.log_path(self.job, attempt, each), self.processes, self.rank
        )

    async def state(self) -> LogState:
        return await self.backend.ask(self._state)

    def _state(self, controller: Controller) -> LogState:
        state, stopping = controller.ledger.jobs[self.job], self.backend.loop.stopping
        held = state.phase in HOLDING
        return LogState(state.attempt, not held or stopping, state.phase in ENDED or stopping)


def _job_of_log(controller: Controller, caller: Caller, word: str) -> tuple[str, int, int]:
    """The job's id, the most processes that an attempt of it may have or have had, and how many attempts there were."""
    job = job_for(controller, caller, word, Need.READ)
    state = controller.ledger.jobs.get(job)
    if state is None:
        raise NotFound(f"{job} was rejected, so it never wrote anything")
    return job, state.at_size(max(sizes_of(state.spec))).processes, state.attempt
