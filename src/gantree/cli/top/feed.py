"""What `gantree top` shows, read over the HTTP API: a few requests of bounded size a refresh, whatever the site."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gantree.api.client.client import Client
from gantree.cli.input.words import checked_words, unknown_word
from gantree.model.errors import GantreeError, NotFound
from gantree.model.phases import ENDED, HOLDING, Phase

Row = dict[str, Any]
PAGE = 50
"""Running jobs of a refresh, and waiting ones."""
DOMAINS = 100
LOG_LINES = 200
QUEUES_EVERY_S = 6.0
"""Queues change slowly, and a site may have a thousand."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which jobs are shown."""

    queue: str | None = None
    user: str | None = None
    name: str | None = None
    phases: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Selection":
        """From `queue=research user=ann phase=running,saving NAME`. Raises BadInput."""
        found: dict[str, Any] = {}
        for word in text.split():
            key, is_pair, value = word.partition("=")
            if not is_pair:
                key, value = "name", word
            if key not in ("queue", "user", "name", "phase"):
                raise unknown_word("filter", key, ("queue", "user", "name", "phase"))
            found["phases" if key == "phase" else key] = (
                checked_words("phase", [value], Phase) if key == "phase" else value or None
            )
        return cls(**found)

    def __str__(self) -> str:
        pairs = (("queue", self.queue), ("user", self.user), ("name", self.name))
        words = [f"{key}={value}" for key, value in pairs if value]
        return " ".join([*words, *([f"phase={','.join(self.phases)}"] if self.phases else [])])

    def narrowed(self, phases: frozenset[Phase]) -> tuple[str, ...] | None:
        """Which of some phases are selected; None: none of them."""
        chosen = tuple(phase.value for phase in Phase if phase in phases)
        if self.phases:
            chosen = tuple(phase for phase in chosen if phase in self.phases)
        return chosen or None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is shown. at: when it was read, in seconds since 1970; more: a list of jobs goes on."""

    at: float
    domains: Row
    queues: list[Row]
    jobs: list[Row]
    more: bool

    @property
    def counts(self) -> tuple[int, int]:
        """All jobs that run, and that wait."""
        return (self.queues[0]["running"], self.queues[0]["waiting"]) if self.queues else (0, 0)


@dataclass(slots=True)
class Feed:
    """Reads snapshots. inside and selection are set by the keys; errors are those of the client."""

    client: Client
    inside: str | None = None
    selection: Selection = field(default_factory=Selection)
    _queues: list[Row] = field(default_factory=list)
    _queues_at: float = -QUEUES_EVERY_S

    def read(self) -> Snapshot:
        """Three requests, and a fourth every few seconds."""
        domains = self._domains()
        if time.monotonic() - self._queues_at >= QUEUES_EVERY_S:
            self._queues = self.client.queues()
            self._queues_at = time.monotonic()
        parts = [self._page(phases) for phases in (HOLDING, frozenset({Phase.PENDING}))]
        if self.selection.phases:
            parts.append(self._page(ENDED))
        jobs = [row for rows, _ in parts for row in rows]
        return Snapshot(time.time(), domains, self._queues, jobs, any(more for _, more in parts))

    def _domains(self) -> Row:
        try:
            return self.client.domains(self.inside, limit=DOMAINS)
        except NotFound:
            if self.inside is None:
                raise
            self.inside = None  # the site has changed
            return self.client.domains(limit=DOMAINS)

    def _page(self, phases: frozenset[Phase]) -> tuple[list[Row], bool]:
        wanted, chosen = self.selection, self.selection.narrowed(phases)
        if chosen is None:
            return [], False
        page = self.client.jobs_page(
            limit=PAGE,
            phase=chosen,
            queue=wanted.queue,
            user=wanted.user,
            name=wanted.name,
            by="array",
        )
        return page["jobs"], page["next"] is not None

    def check(self, selection: Selection) -> None:
        """Raise BadInput for a queue that there is not."""
        names = [row["queue"] for row in self._queues if row["kind"] == "queue"]
        wanted = selection.queue
        if wanted and names and not any(f"{name}/".startswith(f"{wanted}/") for name in names):
            raise unknown_word("queue", wanted, names)

    def why(self, job: str) -> str:
        """Why a job is where it is, and what it is."""
        explained = self.client.why(job)
        lines = [explained["sentence"]]
        lines += [
            f"In the way: {each['job']}: {each['because']}" for each in explained["in_the_way"]
        ]
        if explained["ahead_count"]:
            lines.append(
                f"{explained['ahead_count']} jobs are before it: {' '.join(explained['ahead'])}"
            )
        return "\n\n".join(lines)

    def logs(self, job: str) -> str:
        """The last lines of a job's output."""
        read = b"".join(self.client.logs(job, tail=LOG_LINES))
        return read.decode(errors="replace") or "It has written nothing yet."

    def cancel(self, job: str) -> str:
        """Cancel a job; says so."""
        return f"{self.client.cancel(job)['job']} is being cancelled"


def attempted(call: Callable[[], str]) -> str:
    """What a call says, or its error."""
    try:
        return call()
    except GantreeError as error:
        return f"Error: {error}"
