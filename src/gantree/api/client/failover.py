"""Which daemon a request goes to, and whether it is retried. Standard library only: both clients import it.

Several daemons may share a journal; one of them leads. A request that reached nobody, or somebody who does not lead
and so did nothing, goes to the next one, round and round until one leads or RETRY_WITHIN_S have passed. A request that
broke off may have been done: it is sent again only if that does no harm, because it only asks or carries an idempotency
key. Of one daemon alone there is no other to try, and nothing is sent twice; one that is starting is waited for. Before
a request that may wait long, and before a stream, it is asked whether anybody is there at all.
"""

import math
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any

from gantree.api.client.request import Request, Stream
from gantree.api.client.target import NotSent, Target
from gantree.api.http import unix_socket
from gantree.model.errors import GantreeError, JournalError, NotLeading, Unreachable

RETRY_WITHIN_S = 45.0
"""So long a request is sent again, from the first failure on: half as long again as the longest lease."""
PAUSE_S = 0.2
"""After all were tried."""
FIRST_ANSWER_WITHIN_S = 4.0
"""So long an answer is waited for where another daemon may answer; twice as long each time that one was too slow.

A second longer than the default lease: by then another leads if the first one has stopped.
"""
SLOW_S = 5.0
"""So long one that was too slow is passed over: by then another leads, or it was only slow."""
CONNECT_WITHIN_S = 5.0
ALIVE: Request[Any] = Request("GET", "/healthz")
"""What is asked first where an answer takes its time: a daemon that hangs is handed any request, and says nothing."""


class Failover:
    """The way of one request past the daemons."""

    def __init__(
        self,
        targets: Sequence[Target],
        first: int,
        request: Request[Any] | Stream[Any],
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """first is the place of the daemon that is tried first."""
        self._targets = targets
        self.place = first
        self._is_harmless = request.is_harmless
        self._is_stream = isinstance(request, Stream)
        self._wait_s = request.wait_s if isinstance(request, Request) else 0.0
        self._steady = steady
        self._too_slow = 0
        self._slow_until_s = dict.fromkeys(range(len(targets)), -math.inf)
        self._until_s: float | None = None

    @property
    def target(self) -> Target:
        """Whom to ask now."""
        return self._targets[self.place]

    def timeout_s(self, patience_s: float) -> float:
        """Return the timeout of a request; patience_s without other daemons, and for streams, which pause."""
        longest_s = patience_s + self._wait_s
        if self._is_stream or not self._is_harmless or not self._has_others():
            return longest_s
        return min(longest_s, self.probe_timeout_s + self._wait_s)

    @property
    def probes_first(self) -> bool:
        """Return whether the daemon is probed first, because a hanging daemon would use the whole timeout."""
        return self._is_harmless and (self._is_stream or self._wait_s > 0) and self._has_others()

    @property
    def probe_timeout_s(self) -> float:
        """How long to wait for an answer that takes no time, in seconds."""
        return float(FIRST_ANSWER_WITHIN_S * 2**self._too_slow)

    def pause_s(self, error: Exception) -> float | None:
        """Seconds until it is sent to the next one, after this error; None: it is not sent again."""
        may_wait = self._has_others() or self.target.is_starting(error)
        if not self._may_follow(error) or not may_wait:
            return None
        now_s = self._steady()
        if self._until_s is None:
            self._until_s = now_s + RETRY_WITHIN_S
        if now_s >= self._until_s:
            return None
        if isinstance(error, TimeoutError):
            self._too_slow += 1
            self._slow_until_s[self.place] = now_s + SLOW_S
        before, self.place = self.place, self._next(now_s)
        return PAUSE_S if self.place <= before else 0.0

    def _next(self, now_s: float) -> int:
        """The next place that is not known to be slow; that of all which was so longest ago, where they are."""
        count = len(self._targets)
        places = [(self.place + step) % count for step in range(1, count + 1)]
        quick = [place for place in places if self._slow_until_s[place] <= now_s]
        return quick[0] if quick else min(places, key=self._slow_until_s.__getitem__)

    def _may_follow(self, error: Exception) -> bool:
        if isinstance(error, NotSent):
            return not isinstance(error.error, ssl.SSLCertVerificationError)
        if isinstance(error, NotLeading):
            return True
        is_passing = isinstance(error, JournalError | Unreachable) or not isinstance(
            error, GantreeError
        )
        return is_passing and self._is_harmless

    def _has_others(self) -> bool:
        """Whether another daemon may answer: at another address, or on the same socket."""
        if len(self._targets) > 1:
            return True
        state_dir = self.target.state_dir
        return state_dir is not None and unix_socket.is_anybody_present(state_dir)
