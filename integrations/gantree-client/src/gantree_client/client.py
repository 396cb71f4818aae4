"""The client: submit, wait, list, read logs, cancel. docs/api.md describes the routes and their answers."""

import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from gantree_client.address import address
from gantree_client.errors import BrokenOff, Rejected, Unreachable

if TYPE_CHECKING:
    from gantree_client.connection import Connection

Row = dict[str, Any]
"""A job as `GET /v1/jobs/JOB` describes it."""

T = TypeVar("T")
ENDED = frozenset({"succeeded", "failed", "cancelled", "timed-out"})
LONGEST_WAIT_S = 60.0
"""So long one request waits; longer waits are several requests."""
PAGE = 1000
ONE_BY_ONE = 20
"""Beyond so many jobs `rows` requests a list."""
RETRY_WITHIN_S = 60.0
PAUSE_S = 0.3


class Client:
    """Talks to one daemon, or to several of which one leads. Threads may share one; a fork gets its own connections.

    A call that broke off is sent again for RETRY_WITHIN_S: every call here may be made twice. A daemon that never
    answered is not waited for.
    """

    def __init__(self, where: Path | str | None = None) -> None:
        """where is a state directory or a URL; None: what the environment names. Raises ApiError."""
        self.address = address(where)
        self._connection: Connection | None = None
        self._pid = 0
        self._was_answered = False

    def __getstate__(self) -> dict[str, Any]:
        """Connections stay where they are."""
        return {**self.__dict__, "_connection": None}

    def submit(
        self,
        jobs: Sequence[Mapping[str, Any]],
        *,
        base_dir: Path | str | None = None,
        default_env: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> list[str]:
        """Submit jobs with the fields of a job file, all or none; give the id of each. Raises Rejected.

        key is the idempotency key: the same submission with the same key is accepted once, whoever sends it.
        """
        body: dict[str, Any] = {"jobs": list(jobs), "source": "job"}
        if base_dir is not None:
            body["base_dir"] = str(base_dir)
        if default_env:
            body["default_env"] = dict(default_env)
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        answer = self._send("POST", "/v1/jobs", body=body, headers=headers)
        return [job for row in answer["jobs"] for job in _ids(row)]

    def job(self, job: str, *, wait_s: float = 0.0, until: str = "ended") -> Row:
        """A job, at once or as soon as it has ended (or runs), at most wait_s later. Raises Rejected."""
        query = {"wait_s": f"{wait_s:g}", "until": until} if wait_s else {}
        return self._send("GET", "/v1/jobs/{}", job, query=query, wait_s=wait_s)

    def wait(self, job: str, within_s: float | None = None) -> Row:
        """A job once it has ended, or within_s later as it is then. Raises Rejected."""
        deadline = None if within_s is None else time.monotonic() + within_s
        while True:
            left_s = LONGEST_WAIT_S if deadline is None else deadline - time.monotonic()
            row = self.job(job, wait_s=max(0.0, min(left_s, LONGEST_WAIT_S)))
            if row["phase"] in ENDED or (left_s <= LONGEST_WAIT_S and deadline is not None):
                return row

    def jobs(self, **filters: str | float | Sequence[str]) -> Iterator[Row]:
        """All jobs with these properties (phase, queue, user, name, since), in order of arrival."""
        query: dict[str, Any] = {**filters, "limit": PAGE}
        while True:
            page = self._send("GET", "/v1/jobs", query=query)
            yield from page["jobs"]
            if not page["next"]:
                return
            query["after"] = page["next"]

    def rows(self, jobs: Iterable[str], since: float) -> dict[str, Row]:
        """These jobs by id, without those that do not exist. Raises ApiError.

        Many are looked for in the list of jobs that were submitted after since, in seconds since 1970; what is not
        there is asked about one by one.
        """
        wanted = set(jobs)
        found: dict[str, Row] = {}
        if len(wanted) > ONE_BY_ONE:
            found = {row["job"]: row for row in self.jobs(since=since) if row["job"] in wanted}
        for job in sorted(wanted - found.keys()):
            try:
                found[job] = self.job(job)
            except Rejected as error:
                if error.title != "NotFound":
                    raise
        return found

    def why(self, job: str) -> str:
        """Why a job does not run, in a sentence. Raises Rejected."""
        sentence: str = self._send("GET", "/v1/jobs/{}/why", job)["sentence"]
        return sentence

    def cancel(self, job: str) -> bool:
        """Cancel a job; whether it had not ended before. Raises Rejected, such as NotFound."""
        try:
            self._send("POST", "/v1/jobs/{}/cancel", job, body={})
        except Rejected as error:
            if error.title != "Conflict":
                raise
            return False
        return True

    def logs(
        self, job: str, *, rank: int | None = None, follow: bool = False, tail: int | None = None
    ) -> Iterator[str]:
        """What a job has printed, in pieces as they come; with follow until it has ended. Raises Rejected, Unreachable.

        Without rank every line begins with `[rank] `.
        """
        query: dict[str, Any] = {"follow": 1} if follow else {}
        query |= {} if rank is None else {"rank": rank}
        query |= {} if tail is None else {"tail": tail}
        return self._again(
            lambda connection: connection.stream(_path("/v1/jobs/{}/logs", job), query)
        )

    def _send(
        self,
        method: str,
        path: str,
        *names: str,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        wait_s: float = 0.0,
    ) -> Row:
        return self._again(
            lambda connection: connection.send(
                method, _path(path, *names), query or {}, body, headers or {}, wait_s
            )
        )

    def _again(self, call: Callable[["Connection"], T]) -> T:
        """Call until a daemon answers that leads."""
        until = time.monotonic() + RETRY_WITHIN_S
        while True:
            connection = self._connected()
            try:
                answer = call(connection)
            except Rejected as error:
                self._was_answered = True
                if error.status != 503 or time.monotonic() > until:
                    raise
            except BrokenOff as error:
                if not self._may_try_again(connection) or time.monotonic() > until:
                    raise self._unreachable(error) from error
            else:
                self._was_answered = True
                return answer
            connection.next_url()
            time.sleep(PAUSE_S)

    def _may_try_again(self, connection: "Connection") -> bool:
        return self._was_answered or connection.has_untried_url()

    def _connected(self) -> "Connection":
        if self._connection is None or self._pid != os.getpid():
            from gantree_client.connection import Connection  # noqa: PLC0415 - httpx takes 0.2 s to import

            try:
                self._connection, self._pid = Connection(self.address), os.getpid()
            except OSError as error:  # no such state directory
                raise self._unreachable(error) from error
        return self._connection

    def _unreachable(self, error: Exception) -> Unreachable:
        start = f"start one: gantree up --state {self.address.state_dir}"
        way_out = start if self.address.state_dir else "GANTREE_SERVER names its URL"
        return Unreachable(f"no daemon answers {self.address} ({error}); {way_out}")


def _path(template: str, *names: str) -> str:
    return template.format(*(quote(name, safe="") for name in names))


def _ids(row: Mapping[str, Any]) -> list[str]:
    """The ids of a row of a receipt: its own, or those of an array's jobs, whose indices it names as "0-3,7"."""
    if not row.get("array"):
        return [row["job"]]
    parts = [each.partition("-") for each in str(row["array"]).split(",")]
    indices = [range(int(first), int(last or first) + 1) for first, _, last in parts]
    return [f"{row['job']}-{index}" for each in indices for index in each]
