"""Every request of the API as a function: method, path, query, body, and how its answer is read.

`client.Client` and `async_client.AsyncClient` send them; a method there is a function here. Paths are templates as the
OpenAPI has them, so a test can hold the two equal. Standard library only: the command line must start fast.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

from gantree.api.client.login import login_name
from gantree.api.client.request import (
    LONGEST_WAIT_S,
    Chunks,
    Json,
    JsonLines,
    Request,
    Rows,
    ServerSentEvents,
    Stream,
    rows_named,
)
from gantree.model.errors import NotFound


def submit(
    text: str | None = None,
    source: str = "job.yaml",
    *,
    jobs: Sequence[Mapping[str, object]] | None = None,
    base_dir: str | None = None,
    overrides: Mapping[str, str | int] | None = None,
    env: Mapping[str, str] | None = None,
    default_env: Mapping[str, str] | None = None,
    user: str | None = None,
    idempotency_key: str | None = None,
    assignment: Mapping[str, object] | None = None,
) -> Request[Json]:
    """Hand in the jobs of a job file, or jobs as objects with the fields of one; they are durable when this returns.

    env are variables that override those of every role, default_env variables that yield to them and that roles with an
    image do not get. user is whose jobs they are where they do not say; None: who asks. A call that broke off may be
    made again with the same idempotency_key: it takes nothing twice, and answers as it would have the first time.
    assignment: of the front of a federation alone.
    """
    body = _submission(text, source, jobs, base_dir, overrides, env, default_env, user)
    if assignment is not None:
        body["assignment"] = dict(assignment)
    headers = {"Idempotency-Key": idempotency_key}
    return Request("POST", "/v1/jobs", body=body, headers=headers)


def check(
    text: str | None = None,
    source: str = "job.yaml",
    *,
    jobs: Sequence[Mapping[str, object]] | None = None,
    base_dir: str | None = None,
    overrides: Mapping[str, str | int] | None = None,
    env: Mapping[str, str] | None = None,
    default_env: Mapping[str, str] | None = None,
    user: str | None = None,
) -> Request[Json]:
    """What `submit` would answer now, or raise; nothing is taken."""
    body = _submission(text, source, jobs, base_dir, overrides, env, default_env, user)
    return Request("POST", "/v1/jobs/check", body=body)


def forecast(
    text: str | None = None,
    source: str = "job.yaml",
    *,
    jobs: Sequence[Mapping[str, object]] | None = None,
    base_dir: str | None = None,
    overrides: Mapping[str, str | int] | None = None,
    env: Mapping[str, str] | None = None,
    default_env: Mapping[str, str] | None = None,
    user: str | None = None,
) -> Request[Json]:
    """When and where the first of these jobs would start if it were submitted now; nothing is taken."""
    body = _submission(text, source, jobs, base_dir, overrides, env, default_env, user)
    return Request("POST", "/v1/jobs/forecast", body=body)


def _submission(
    text: str | None,
    source: str,
    jobs: Sequence[Mapping[str, object]] | None,
    base_dir: str | None,
    overrides: Mapping[str, str | int] | None,
    env: Mapping[str, str] | None,
    default_env: Mapping[str, str] | None,
    user: str | None,
) -> Json:
    body: Json = {
        "source": source,
        "base_dir": base_dir,
        "overrides": dict(overrides or {}),
        **({"env": dict(env)} if env else {}),
        **({"default_env": dict(default_env)} if default_env else {}),
        **_owner(user),
    }
    if text is not None:
        body["text"] = text
    if jobs is not None:
        body["jobs"] = [dict(job) for job in jobs]
    return body


class JobFilter(TypedDict, total=False):
    """Which jobs: in one of the phases, in a queue or below it, of a user, of a name, submitted then or later.

    by: "array" for one row for all jobs of an array that wait and do not differ.
    """

    phase: Sequence[str]
    queue: str | None
    user: str | None
    name: str | None
    since: float | None
    by: str | None


def jobs(**wanted: Unpack[JobFilter]) -> Request[Rows]:
    """All jobs, a row each, in order of arrival."""
    query = {**wanted, "phase": wanted.get("phase") or None}
    return Request("GET", "/v1/jobs", query=query, read=rows_named("jobs"))


def jobs_page(
    *, limit: int, after: str | None = None, **wanted: Unpack[JobFilter]
) -> Request[Json]:
    """At most limit rows of `jobs`, and `next`: what to give as after for those that follow; None at the end."""
    query = {**wanted, "limit": limit, "after": after, "phase": wanted.get("phase") or None}
    return Request("GET", "/v1/jobs", query=query)


def job(job: str, *, wait_s: float = 0.0, until: str = "ended") -> Request[Json]:
    """One job, by id or name; waits at most wait_s, and 300 s, until it is "running" or "ended"."""
    wait_s = min(wait_s, LONGEST_WAIT_S)
    query = {"wait_s": wait_s, "until": until}
    return Request("GET", "/v1/jobs/{job}", job_path(job), query, wait_s=wait_s)


def job_id(name: str) -> Request[Json]:
    """The `job` that a person means by an id or a name: a live one first. See GET /v1/job-id."""
    return Request("GET", "/v1/job-id", query={"name": name})


def why(job: str) -> Request[Json]:
    """Why a job is where it is."""
    return Request("GET", "/v1/jobs/{job}/why", job_path(job))


def when(job: str) -> Request[Json]:
    """When a job starts, and what that hangs on."""
    return Request("GET", "/v1/jobs/{job}/when", job_path(job))


def what_if(job: str, changes: Sequence[Mapping[str, object]] = ()) -> Request[Json]:
    """What would become of a job as it is, and with each of the changes. See POST /v1/jobs/JOB/what-if."""
    body = {"changes": [dict(change) for change in changes]}
    return Request("POST", "/v1/jobs/{job}/what-if", job_path(job), body=body)


def queues() -> Request[Rows]:
    """The queue tree, a row for each node."""
    return Request("GET", "/v1/queues", read=rows_named("queues"))


def defragment(job: str, *, apply: bool = False, plan: str = "") -> Request[Json]:
    """The moves that would let a waiting job start; where apply, make them.

    plan: the digest of a plan that was shown; a Conflict, and nothing moves, if the moves are others by now.
    """
    where = "/v1/jobs/{job}/defragment"
    if not apply:
        return Request("GET", where, job_path(job))
    return Request("POST", where, job_path(job), body={"plan": plan} if plan else None)


def cancel(job: str, *, if_version: str | None = None) -> Request[Json]:
    """Ask for a job to be cancelled; where if_version, only if nothing was recorded of it since."""
    return _job_command(job, "cancel", if_version)


def hold(job: str, *, if_version: str | None = None) -> Request[Json]:
    """Keep a waiting job from being started until it is released."""
    return _job_command(job, "hold", if_version)


def release(job: str, *, if_version: str | None = None) -> Request[Json]:
    """Let a held job go."""
    return _job_command(job, "release", if_version)


def suspend(job: str, *, if_version: str | None = None) -> Request[Json]:
    """Stop a job, which saves if it can, and keep it from being started; one that waits is held."""
    return _job_command(job, "suspend", if_version)


def resume(job: str, *, if_version: str | None = None) -> Request[Json]:
    """Let a suspended job go on; the same as `release`."""
    return _job_command(job, "resume", if_version)


def scale(job: str, members: int, *, if_version: str | None = None) -> Request[Json]:
    """Give an elastic gang so many members."""
    return _job_command(job, "scale", if_version, {"members": members})


def reprioritise(job: str, priority: str | int, *, if_version: str | None = None) -> Request[Json]:
    """Give a job another priority, a class or a number."""
    return _job_command(job, "priority", if_version, {"priority": priority})


def extend(job: str, for_s: float, *, if_version: str | None = None) -> Request[Json]:
    """Give a job a lease: for so many seconds from now on it is not reclaimed as idle; 0 ends it."""
    return _job_command(job, "extend", if_version, {"for_s": for_s})


def exempt(job: str, *, if_version: str | None = None) -> Request[Json]:
    """Have a job never reclaimed as idle, until it is extended again."""
    return _job_command(job, "exempt", if_version)


def policy() -> Request[Json]:
    """Get the policy in force: number, time, user, file name, text."""
    return Request("GET", "/v1/policy")


def policy_versions() -> Request[Rows]:
    """All versions of the policy, oldest first, without their texts."""
    return Request("GET", "/v1/policy/versions", read=rows_named("versions"))


def policy_version(number: int) -> Request[Json]:
    """One version of the policy with its text."""
    return Request("GET", "/v1/policy/versions/{number}", {"number": str(number)})


def policy_what_if(text: str, source: str = "policy.yaml") -> Request[Json]:
    """What a policy would change if it ruled from now on; nothing is changed."""
    return Request("POST", "/v1/policy/what-if", body={"text": text, "source": source})


def apply_policy(text: str, source: str = "policy.yaml") -> Request[Json]:
    """Let a policy rule from now on, as a new version."""
    return Request("POST", "/v1/policy", body={"text": text, "source": source})


def roll_back_policy(version: int) -> Request[Json]:
    """Let the text of an older version rule again, as a new version."""
    return Request("POST", "/v1/policy/rollback", body={"version": version})


class LogOptions(TypedDict, total=False):
    """Which output of a job.

    rank: one, as it is written. ranks: several ("0,3-7"), line by line, as where none is named. attempt: only this one.
    tail: only the last lines of each rank, so many, and what comes after them. since: only what was written from then
    on, in seconds since 1970. grep: only lines that match this regular expression.
    """

    rank: int | None
    ranks: str | None
    attempt: int | None
    tail: int | None
    since: float | None
    grep: str | None


def logs(
    job: str, *, follow: bool = False, timestamps: bool = False, **options: Unpack[LogOptions]
) -> Stream[bytes]:
    """What a job's ranks print, in chunks as they come; where follow, until the job has ended.

    timestamps: before each line when it was written.
    """
    query = {**options, "follow": int(follow), "timestamps": int(timestamps)}
    return Stream("GET", "/v1/jobs/{job}/logs", job_path(job), query, decoder=Chunks)


def log_pieces(job: str, *, follow: bool = False, **options: Unpack[LogOptions]) -> Stream[Json]:
    """The same as rows that say which bytes of which log they are, and when these were written."""
    query = {**options, "follow": int(follow), "format": "json"}
    return Stream("GET", "/v1/jobs/{job}/logs", job_path(job), query, decoder=JsonLines)


def record(job: str, *, attempt: int | None = None) -> Request[Json]:
    """What ran as an attempt of a job (None: the last), where, and on what."""
    return Request("GET", "/v1/jobs/{job}/record", job_path(job), {"attempt": attempt})


def curve(job: str, *, attempt: int | None = None) -> Request[Json]:
    """Step time and loss that a job reported, over time (None: of its last attempts)."""
    return Request("GET", "/v1/jobs/{job}/curve", job_path(job), {"attempt": attempt})


def rerun(
    job: str, *, attempt: int | None = None, anyhow: bool = False, user: str | None = None
) -> Request[Json]:
    """Hand in the same job again, to start on a place equal to that of an attempt; anyhow: on any place, if need be."""
    body = {"attempt": attempt, "anyhow": anyhow, **_owner(user)}
    return Request("POST", "/v1/jobs/{job}/rerun", job_path(job), body=body)


def cluster() -> Request[Json]:
    """Get the site and the holder of each GPU."""
    return Request("GET", "/v1/cluster")


def domains(inside: str | None = None, *, limit: int | None = None) -> Request[Json]:
    """How full the domains in a domain are (None: in the site), and what is in each; at most limit of them."""
    return Request("GET", "/v1/cluster/domains", query={"inside": inside, "limit": limit})


def facts(after: int = 0, *, follow: bool = False) -> Stream[Json]:
    """The timeline: each fact after a seq; where follow, for ever."""
    query = {"after": after, "follow": int(follow)}
    return Stream("GET", "/v1/facts", query=query, decoder=JsonLines)


def events(after: int | None = None, *, job: str | None = None) -> Stream[Json]:
    """Each fact as it is recorded, for ever: those after a seq first, else only new ones; those of a job, if named."""
    headers = {"Last-Event-ID": None if after is None else str(after)}
    query = {"job": job}
    return Stream("GET", "/v1/events", query=query, headers=headers, decoder=ServerSentEvents)


def usage(
    by: str = "user",
    *,
    since: float | None = None,
    until: float | None = None,
    limit: int | None = None,
) -> Request[Json]:
    """GPU-hours by purpose, hours waited and dollars, of whole days.

    by: "user", "queue", "model", "project", "device" or "job".
    """
    query = {"by": by, "since": since, "until": until, "limit": limit}
    return Request("GET", "/v1/usage", query=query)


def book(
    since: float, until: float, *, step: str | None = None, label: Sequence[str] = ()
) -> Request[Json]:
    """GPU-seconds by purpose, queue, user, model, project and device of whole days, and the prices of the site.

    step is "hour" or "day", by default what the site's prices need; label: labels by which nodes are told apart.
    """
    query = {"since": since, "until": until, "step": step, "label": list(label) or None}
    return Request("GET", "/v1/usage/book", query=query)


def gpu_use() -> Request[Json]:
    """How busy the GPUs are that jobs hold now, job by job, as their own counters say."""
    return Request("GET", "/v1/usage/gpus")


def waste(
    by: str = "job",
    *,
    since: float | None = None,
    until: float | None = None,
    limit: int | None = None,
) -> Request[Json]:
    """What was wasted by "job", "user", "queue" or "project", why, and what to do about it, the dearest first."""
    query = {"by": by, "since": since, "until": until, "limit": limit}
    return Request("GET", "/v1/waste", query=query)


def ended_jobs(
    *,
    queue: str | None = None,
    user: str | None = None,
    name: str | None = None,
    outcome: Sequence[str] = (),
    since: float | None = None,
    until: float | None = None,
    before: int | None = None,
    limit: int | None = None,
) -> Request[Json]:
    """A page of jobs that have ended, however long ago, the last that ended first, and `next`: what to give as before.

    queue is one with all below it, name a name or id, or a pattern with `*` and `?`; since and until are of their ends.
    """
    query: dict[str, Any] = {"queue": queue, "user": user, "name": name}
    query |= {
        "outcome": outcome or None,
        "since": since,
        "until": until,
        "before": before,
        "limit": limit,
    }
    return Request("GET", "/v1/history/jobs", query=query)


def ended_job(job: str) -> Request[Json]:
    """A job that has ended, however long ago, by id, or the last that ended of a name."""
    return Request("GET", "/v1/history/jobs/{job}", job_path(job))


def usage_history(
    by: str = "all",
    *,
    step: str | None = None,
    since: float | None = None,
    until: float | None = None,
    queue: str | None = None,
    user: str | None = None,
) -> Request[Json]:
    """GPU-seconds and events of each "minute", "5min", "hour", "6h", "day" or "week" of a period.

    by: "all", "queue", "user", "model", "project" or "device".
    """
    query = {"by": by, "step": step, "since": since, "until": until, "queue": queue, "user": user}
    return Request("GET", "/v1/history/usage", query=query)


def wait_history(
    by: str = "all",
    *,
    step: str | None = None,
    since: float | None = None,
    until: float | None = None,
    queue: str | None = None,
    user: str | None = None,
) -> Request[Json]:
    """How long jobs had waited that were first placed in each step of a period, by "all", "queue" or "user"."""
    query = {"by": by, "step": step, "since": since, "until": until, "queue": queue, "user": user}
    return Request("GET", "/v1/history/waits", query=query)


def node_signs(*, days: int = 28) -> Request[Json]:
    """What nodes showed in so many days: faults, time out of use, links that carried less, slow ranks."""
    return Request("GET", "/v1/history/nodes", query={"days": days})


def health() -> Request[Json]:
    """Version, process, epoch and counts of the daemon."""
    return Request("GET", "/v1/health")


def session() -> Request[Json]:
    """Who asks, and what he may do."""
    return Request("GET", "/v1/session")


def make_token(
    user: str = "", *, role: str = "", queue: str = "", expires_s: float | None = None
) -> Request[Json]:
    """Create a token of a user ("": the caller). Its secret is returned only here.

    It allows what the user may do, and of that what role over queue allows; "": all of it.
    """
    body = {"user": user, "role": role, "queue": queue, "expires_s": expires_s}
    return Request("POST", "/v1/tokens", body=body)


def tokens(user: str | None = None) -> Request[Rows]:
    """The tokens of all users, or of one, without their secrets."""
    return Request("GET", "/v1/tokens", query={"user": user}, read=rows_named("tokens"))


def revoke_token(token: str) -> Request[Json]:
    """From now on a token, by its id, is good for nothing."""
    return Request("DELETE", "/v1/tokens/{token}", {"token": token})


def audit(
    *, since: float | None = None, user: str | None = None, after: int = 0, limit: int = 1000
) -> Request[Json]:
    """Changes that were asked for and requests that were refused, after a seq, and `next`: what to give as after."""
    query = {"since": since, "user": user, "after": after, "limit": limit}
    return Request("GET", "/v1/audit", query=query)


def _owner(user: str | None) -> Json:
    """Return the owner of jobs that name none: a named user, else the caller."""
    return {"login": login_name()} if user is None else {"user": user}


def job_path(job: str) -> dict[str, str]:
    """What fills `{job}` in a path. Raises NotFound for a word that could not even be put into one."""
    if not job or "/" in job or job in (".", "..") or not job.isprintable():
        raise NotFound(f"there is no job {job!r}")
    return {"job": job}


def _job_command(
    job: str, command: str, if_version: str | None, body: Json | None = None
) -> Request[Json]:
    headers = {"If-Match": None if if_version is None else f'"{if_version}"'}
    return Request("POST", "/v1/jobs/{job}/" + command, job_path(job), body=body, headers=headers)
