"""Leader election of one daemon: it acquires the lease, renews it while it leads, and stops in time.

A `Term` is one leadership, from the election to its end. It is kept by a thread of its own on a connection of its own,
so that no turn, however long, holds up a renewal. It ends by itself at a deadline on a clock that nobody can set and
that goes on while the process or the machine is stopped (CLOCK_BOOTTIME): the lease counted from before the renewal was
sent, less a margin. So it is over here before anybody else can begin one; and what is over stays over, also if a late
renewal succeeds. The journal refuses what an older epoch writes, and the executors what it orders: see
docs/decisions/0028.

Where a journal is open to one process only (SQLite) nothing runs out, and a term lasts as long as the process.
"""

import logging
import math
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass

from gantree.control.clock import boot_time
from gantree.journal.contract import Election
from gantree.model.errors import JournalError, NotLeading

LEASE_S = 3.0
"""How long a leadership holds that is not renewed, by the database's clock, where nothing else is said."""
SHORTEST_LEASE_S = 2.0
"""libpq tries for two seconds at least to open a connection."""
RENEW_EVERY = 1 / 6
"""After this part of the lease it is renewed."""
RETRY_EVERY = 1 / 30
"""The part of the lease that is waited after a renewal that failed."""
MARGIN = 1 / 6
"""So much of the lease before it runs out a leader stops: for what it began just before, and for clocks of another
pace."""
CAMPAIGN_EVERY_S = 0.2
"""How often a daemon that stands by looks whether the lease has run out."""
_HOLDER = re.compile(r"(.*) at (https?://\S+)", re.DOTALL)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads, or led last: its name, the URL that it advertises (None: none), and its epoch."""

    name: str
    url: str | None
    epoch: int


class Term:
    """One leadership. Safe from any thread."""

    def __init__(
        self, epoch: int, deadline_s: float = math.inf, steady: Callable[[], float] = boot_time
    ) -> None:
        """deadline_s is the moment of steady at which it is over, unless it is extended before."""
        self.epoch = epoch
        self._deadline_s = deadline_s
        self._steady = steady
        self._lock = threading.Lock()
        self._ended = threading.Event()

    @property
    def deadline_s(self) -> float:
        """When it is over, by `boot_time`, as far as is known now."""
        return self._deadline_s

    @property
    def is_on(self) -> bool:
        """Whether something may still be done in its name. Once it is over it stays so."""
        with self._lock:
            return self._goes_on()

    def check(self) -> None:
        """Raises NotLeading if it is over."""
        if not self.is_on:
            raise NotLeading(f"epoch {self.epoch} is over: this daemon does not lead any more")

    def extend(self, deadline_s: float) -> None:
        """Let it go on until then, unless it is over."""
        with self._lock:
            if self._goes_on():
                self._deadline_s = max(self._deadline_s, deadline_s)

    def end(self) -> None:
        """It is over."""
        self._ended.set()

    def wait(self, timeout_s: float) -> bool:
        """Wait until it was ended, at most so long; say whether it was."""
        return self._ended.wait(timeout_s)

    def _goes_on(self) -> bool:
        if self._steady() >= self._deadline_s:
            self._ended.set()
        return not self._ended.is_set()


class Leadership:
    """One daemon's part in the election. journal is its connection for that, and used for nothing else.

    With lease_s None the journal has no leases. url is what the daemon advertises; it may be set until the first
    campaign.
    """

    def __init__(
        self,
        journal: Election,
        name: str,
        url: str | None = None,
        *,
        lease_s: float | None = LEASE_S,
        steady: Callable[[], float] = boot_time,
    ) -> None:
        self.name = name
        self.url = url
        self.known: Leader | None = None
        self.trouble: str | None = None
        self._journal = journal
        self._lease_s = lease_s
        self._steady = steady
        self._term: Term | None = None

    @property
    def term(self) -> Term | None:
        """The term that is on, if there is one."""
        term = self._term
        return term if term is not None and term.is_on else None

    @property
    def is_leading(self) -> bool:
        """Whether this daemon leads."""
        return self.term is not None

    def check(self) -> None:
        """Raises NotLeading if this daemon does not lead."""
        if not self.is_leading:
            raise self.not_leading()

    def campaign(self) -> Term | None:
        """Try to lead: the term that has begun; None while somebody else leads, or nobody can be asked.

        Who leads is then in `known`, and what kept the journal from answering in `trouble`.
        """
        sent_s = self._steady()
        try:
            epoch = self._journal.lead(_holder(self.name, self.url), self._lease_s or 0.0)
            self.known = self._leader() if epoch is None else Leader(self.name, self.url, epoch)
        except JournalError as error:
            self._say(str(error))
            return None
        self._say(None)
        return None if epoch is None else self._begin(epoch, sent_s)

    def leader(self) -> Leader | None:
        """Return the leader from the journal; None without one. Raises JournalError."""
        self.known = self._leader()
        return self.known

    def resign(self) -> None:
        """End the term, so that another may begin at once. Raises nothing: else the lease runs out."""
        term, self._term = self._term, None
        if term is None:
            return
        term.end()
        try:
            self._journal.resign(term.epoch)
        except JournalError as error:
            log.warning("epoch %d could not be resigned, its lease runs out: %s", term.epoch, error)

    @property
    def other(self) -> Leader | None:
        """Return the leader, if it is another daemon."""
        known = self.known
        is_own = known is not None and (known.name, known.url) == (self.name, self.url)
        return None if is_own else known

    def not_leading(self) -> NotLeading:
        """Return the error for requests that only the leader serves."""
        known = self.other
        if known is None:
            return NotLeading(f"{self.name} does not lead now, and nobody else does yet: try again")
        where = "" if known.url is None else f" at {known.url}"
        return NotLeading(
            f"{self.name} stands by: {known.name} leads{where}", known.name, known.url
        )

    def _begin(self, epoch: int, sent_s: float) -> Term | None:
        if self._lease_s is None:
            self._term = Term(epoch, steady=self._steady)
            return self._term
        until_s = sent_s + self._lease_s * (1 - MARGIN)
        term = self._term = Term(epoch, until_s, self._steady)
        if not term.is_on:  # the answer took too long
            self.resign()
            return None
        keeper = threading.Thread(
            target=self._keep, args=(term, self._lease_s, sent_s), name="lease", daemon=True
        )
        keeper.start()
        return term

    def _keep(self, term: Term, lease_s: float, sent_s: float) -> None:
        """Renew until the term is over, each time so long after the last was sent: answers may take their time."""
        due_s = sent_s + lease_s * RENEW_EVERY
        while not term.wait(max(0.0, due_s - self._steady())) and term.is_on:
            sent_s = self._steady()
            try:
                renewed = self._journal.renew(term.epoch, lease_s)
            except JournalError as error:
                due_s = self._steady() + lease_s * RETRY_EVERY
                log.warning("the lease was not renewed, trying again: %s", error)
                continue
            due_s = sent_s + lease_s * RENEW_EVERY
            if renewed:
                term.extend(sent_s + lease_s * (1 - MARGIN))
            else:
                log.error("epoch %d is over: another has begun", term.epoch)
                term.end()

    def _leader(self) -> Leader | None:
        epoch, holder = self._journal.leader()
        if holder is None:
            return None
        match = _HOLDER.fullmatch(holder)
        return Leader(holder, None, epoch) if match is None else Leader(match[1], match[2], epoch)

    def _say(self, trouble: str | None) -> None:
        if trouble is not None and self.trouble is None:
            log.error("nobody can be elected, trying again: %s", trouble)
        self.trouble = trouble


def _holder(name: str, url: str | None) -> str:
    """Who leads, as the journal keeps it: in words, and to be taken apart again."""
    return name if url is None else f"{name} at {url}"
