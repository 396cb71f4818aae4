"""The client of the daemon, for the command line and for programs. Standard library only, so it imports fast.

Every method raises what the daemon raised (see `gantree.model.errors`), and Unreachable where no daemon answers.
Answers are the JSON of the routes as it comes; docs/daemon.md describes it.
"""

import getpass
import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from gantree.api import sockets
from gantree.api.problems import error_of
from gantree.model.errors import NotFound, Unreachable

Json = dict[str, Any]
ANSWER_WITHIN_S = 60.0
"""How long a daemon may take over an answer, beyond what it was asked to wait."""
LONGEST_WAIT_S = 300.0
"""How long one question may wait for a job."""
CHUNK_BYTES = 1 << 16


class _UnixConnection(HTTPConnection):
    def __init__(self, state_dir: Path, timeout_s: float | None) -> None:
        super().__init__("localhost")
        self._state_dir = state_dir
        self._timeout_s = timeout_s

    def connect(self) -> None:
        self.sock = sockets.connect(self._state_dir, self._timeout_s)


class Client:
    """Talks to the daemon of a state directory; every call is a connection of its own."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir

    def submit(
        self,
        text: str,
        source: str = "job.yaml",
        *,
        base_dir: str | None = None,
        overrides: Mapping[str, str | int] | None = None,
        user: str | None = None,
    ) -> Json:
        """Hand in the jobs of a job file; they are durable when this returns. See POST /v1/jobs.

        user is whose jobs they are where they do not say; None: who runs this program.
        """
        body = {
            "text": text,
            "source": source,
            "base_dir": base_dir,
            "overrides": dict(overrides or {}),
            "user": login_name() if user is None else user,
        }
        return self._ask("POST", "/v1/jobs", body=body)

    def jobs(self) -> list[Json]:
        """All jobs, a row each."""
        rows: list[Json] = self._ask("GET", "/v1/jobs")["jobs"]
        return rows

    def job(self, job: str, *, wait_s: float = 0.0, until: str = "ended") -> Json:
        """One job, by id or name; waits at most wait_s, and 300 s, until it is "running" or "ended"."""
        wait_s = min(wait_s, LONGEST_WAIT_S)
        return self._ask(
            "GET", _job_path(job), query={"wait_s": wait_s, "until": until}, wait_s=wait_s
        )

    def why(self, job: str) -> Json:
        """Why a job is where it is."""
        return self._ask("GET", _job_path(job, "why"))

    def when(self, job: str) -> Json:
        """When a job starts, and what that hangs on."""
        return self._ask("GET", _job_path(job, "when"))

    def what_if(self, job: str, changes: Sequence[Mapping[str, object]] = ()) -> Json:
        """What would become of a job as it is, and with each of the changes. See POST /v1/jobs/JOB/what-if."""
        body = {"changes": [dict(change) for change in changes]}
        return self._ask("POST", _job_path(job, "what-if"), body=body)

    def queues(self) -> list[Json]:
        """The queue tree, a row for each node."""
        rows: list[Json] = self._ask("GET", "/v1/queues")["queues"]
        return rows

    def defragment(self, job: str, *, apply: bool = False) -> Json:
        """The moves that would let a waiting job start; where apply, ask for them."""
        return self._ask("POST" if apply else "GET", _job_path(job, "defragment"))

    def cancel(self, job: str) -> Json:
        """Ask for a job to be cancelled."""
        return self._ask("POST", _job_path(job, "cancel"))

    def hold(self, job: str) -> Json:
        """Keep a waiting job from being started until it is released."""
        return self._ask("POST", _job_path(job, "hold"))

    def release(self, job: str) -> Json:
        """Let a held job go."""
        return self._ask("POST", _job_path(job, "release"))

    def logs(
        self,
        job: str,
        *,
        rank: int | None = None,
        follow: bool = False,
        attempt: int | None = None,
    ) -> Iterator[bytes]:
        """What a job's ranks print, in chunks as they come; where follow, until the job has ended."""
        query = {"rank": rank, "attempt": attempt, "follow": int(follow)}
        return self._stream(_job_path(job, "logs"), query)

    def cluster(self) -> Json:
        """The site and who holds which GPU."""
        return self._ask("GET", "/v1/cluster")

    def facts(self, after: int = 0, *, follow: bool = False) -> Iterator[Json]:
        """The timeline: each fact after a seq; where follow, for ever."""
        rest = b""
        for chunk in self._stream("/v1/facts", {"after": after, "follow": int(follow)}):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (json.loads(line) for line in lines)

    def health(self) -> Json:
        """Version, process, epoch and counts of the daemon."""
        return self._ask("GET", "/v1/health")

    def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, object] | None = None,
        body: Json | None = None,
        wait_s: float = 0.0,
    ) -> Json:
        connection = _UnixConnection(self.state_dir, ANSWER_WITHIN_S + wait_s)
        try:
            answer: Json = json.loads(
                self._send(connection, method, _url(path, query), body).read()
            )
        except (OSError, HTTPException, ValueError) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()
        return answer

    def _stream(self, path: str, query: Mapping[str, object]) -> Iterator[bytes]:
        connection = _UnixConnection(self.state_dir, None)
        try:
            response = self._send(connection, "GET", _url(path, query), None)
            while chunk := response.read1(CHUNK_BYTES):
                yield chunk
        except (OSError, HTTPException, ValueError) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()

    def _send(
        self, connection: _UnixConnection, method: str, url: str, body: Json | None
    ) -> HTTPResponse:
        text = None if body is None else json.dumps(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        connection.request(method, url, body=text, headers=headers)
        response = connection.getresponse()
        if response.status >= 400:
            raise error_of(response.status, _problem(response))
        return response

    def _unreachable(self, error: Exception) -> Unreachable:
        if isinstance(error, FileNotFoundError | NotADirectoryError | ConnectionRefusedError):
            start = f"start one: gantree up --state {self.state_dir}"
            return Unreachable(f"no daemon answers in {self.state_dir}; {start}")
        if isinstance(error, socket.timeout):
            return Unreachable(f"the daemon in {self.state_dir} does not answer")
        return Unreachable(f"the daemon in {self.state_dir} broke off: {error}")


def login_name() -> str:
    """Who runs this program, as its environment or the system says; "" where neither has a printable word for it."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""
    return name if name.isprintable() else ""


def _problem(response: HTTPResponse) -> Json:
    try:
        body = json.loads(response.read())
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _job_path(job: str, *rest: str) -> str:
    """The route of a job. Raises NotFound for a word that could not even be put into one."""
    if not job or "/" in job or not job.isprintable():
        raise NotFound(f"there is no job {job!r}")
    return "/".join(["/v1/jobs", quote(job, safe=""), *rest])


def _url(path: str, query: Mapping[str, object] | None) -> str:
    given = {key: value for key, value in (query or {}).items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path
