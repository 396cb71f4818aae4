"""What can be made to go wrong, and no more than a real server does under load or when it is restarted.

A test sets these in its own process, or over the admin route of a server in another. Nothing here changes what a
resource means: the knobs stand apart from the behaviour, and a server whose knobs nobody touched has no faults.

* A request is refused (409, 429 with a time after which to ask again, 500, 503...), before anything is done.
* An answer comes late, or never: what was asked is done, then the connection breaks in the middle of the answer.
* Watches end: all now, each after some events, in order or by a broken connection. Changes are forgotten (410).
* Lists from a cache that lags tell an older state; the watch that follows tells again what the reader knew already.
* Watches of one resource are held: its events are told in order, but after those of others that came later.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from support.kubernetes.server.statuses import STALE, Json, Refusal, too_many_requests
from support.kubernetes.server.storage import Table

REASONS = {
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
SETTINGS = (
    "watch_events", "watch_room", "bookmark_s", "progress_s", "gone_in_stream", "list_lag",
)  # fmt: skip
FAULT_FIELDS = (
    "verb", "resource", "name", "code", "retry_after_s", "delay_s", "is_lost", "times", "skip",
)  # fmt: skip


@dataclass(slots=True)
class Fault:
    """What happens to the next requests that match; an empty field matches all.

    code refuses the request. delay_s is for the answer, after what was asked is done; is_lost breaks the connection in
    the middle of the answer. times is how often it happens; None: until it is taken back.
    """

    verb: str = ""
    resource: str = ""
    name: str = ""
    code: int = 0
    retry_after_s: int = 1
    delay_s: float = 0.0
    is_lost: bool = False
    times: int | None = 1
    skip: int = 0
    """How many requests that match are let through before the first that it happens to."""
    met: int = 0

    def meets(self, verb: str, resource: str, name: str) -> bool:
        """Whether it happens to a request; counts it."""
        asked = ((self.verb, verb), (self.resource, resource), (self.name, name))
        if any(told and told != is_so for told, is_so in asked) or self.times == 0:
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        self.met += 1
        return True

    def refusal(self) -> Refusal:
        """The answer in place of the one that was asked for."""
        if self.code == 429:
            return too_many_requests(
                "too many requests, please try again later", self.retry_after_s
            )
        message = STALE if self.code == 409 else f"a fault of a test: {self.code}"
        retry = self.retry_after_s if self.code in {503, 504} else None
        return Refusal(self.code, REASONS.get(self.code, "Unknown"), message, retry_after_s=retry)


@dataclass(slots=True)
class Faults:
    """The knobs of a server.

    watch_events ends each watch after so many events; watch_room is how many may wait for a slow reader. bookmark_s is
    the time between bookmarks, progress_s that between the notes of etcd on how far it is, without which a bookmark
    tells no more than the changes of its own resource. gone_in_stream: a watch from a forgotten revision is answered
    with 200 and an event of 410, as a server does that has a watch cache; else with 410 at once. list_lag is by how
    many changes of its table a list from the cache is behind. held are the resources whose watches say nothing for now.
    """

    watch_events: int | None = None
    watch_room: int = 10_000
    bookmark_s: float = 60.0
    progress_s: float = 600.0
    gone_in_stream: bool = True
    list_lag: int = 0
    held: set[str] = field(default_factory=set)
    waiting: list[Fault] = field(default_factory=list)
    end_watches: Callable[[str, bool], int] = field(default=lambda resource, cut: 0)
    compact: Callable[[], None] = field(default=lambda: None)

    def add(self, **told: Any) -> Fault:
        """A fault for requests to come. Its count met says how many it has met."""
        fault = Fault(**told)
        self.waiting.append(fault)
        return fault

    def meet(self, verb: str, resource: str, name: str) -> Fault | None:
        """The fault that a request meets, if any; the first that matches."""
        for fault in self.waiting:
            if fault.meets(verb, resource, name):
                return fault
        return None

    def old_lists(self, table: Table, not_before: int) -> int | None:
        """The older revision that a list from a cache tells; None: it is up to date."""
        if not self.list_lag or not table.changes:
            return None
        lagging = table.changes[-1 - min(self.list_lag, len(table.changes)) :][0].revision
        return max(lagging, table.forgotten, not_before)

    def clear(self) -> None:
        """No faults from now on."""
        fresh = Faults()
        for name in SETTINGS:
            setattr(self, name, getattr(fresh, name))
        self.held.clear()
        self.waiting.clear()

    def carry_out(self, asked: Json) -> Json:
        """A request of the admin route: {"do": NAME, ...}. Answers with what has become of it."""
        rest = {name: value for name, value in asked.items() if name != "do"}
        match asked.get("do"):
            case "add":
                _check_known(rest, FAULT_FIELDS)
                self.add(**rest)
            case "set":
                _check_known(rest, SETTINGS)
                for name, value in rest.items():
                    setattr(self, name, value)
            case "end_watches":
                return {"ended": self.end_watches(rest.get("resource", ""), bool(rest.get("cut")))}
            case "hold":
                self.held.add(asked["resource"])
            case "release":
                self.held.discard(asked["resource"])
            case "compact":
                self.compact()
            case "clear":
                self.clear()
            case other:
                raise Refusal(400, "BadRequest", f"no such knob: {other}")
        return self.told()

    def told(self) -> Json:
        """The faults that wait, and how many requests each has met."""
        return {
            "waiting": [
                {"verb": each.verb, "resource": each.resource, "times": each.times, "met": each.met}
                for each in self.waiting
            ]
        }


def _check_known(told: Json, known: tuple[str, ...]) -> None:
    """Refuse what no knob is called."""
    for name in told:
        if name not in known:
            raise Refusal(400, "BadRequest", f"no such knob: {name}")
