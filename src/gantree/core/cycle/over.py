"""What the quotas have refused, so that it need not be asked again: by queue, until something is given back.

More is refused wherever less was: so a queue remembers the amounts that it was refused, and whoever asks as much of
everything that quotas count has the same answer. Where somebody has a claim, whose room counts for some and not for
others, the answer is kept for its own line alone, and until one of these claims is made no more or is for what is owed.
"""

from collections.abc import Iterator, Mapping

from gantree.core.ledger.ledger import Ledger
from gantree.planning.rightsize import chooses
from gantree.policy.order import Line

Vector = tuple[float, ...]
MOST_VECTORS = 4
"""Refused amounts that a queue keeps; the newest."""


class Over:
    """Refusals by quota. Each counts with the version of the queue's quota at its time."""

    def __init__(self) -> None:
        self._version_of_line: dict[Line, tuple[object, ...]] = {}
        self._refused: dict[tuple[int, bool], tuple[tuple[int, int], list[Vector]]] = {}
        self._asked_of_signature: dict[int, Vector | None] = {}

    def is_over(self, ledger: Ledger, line: Line) -> bool:
        """Whether the quota says no to a line as far as is known."""
        known = self._refused.get((line.queue, line.preemptible))
        if known is None and line not in self._version_of_line:
            return False
        version = ledger.accounts.freed(line.queue)
        if self._version_of_line.get(line) == (version, ledger.accounts.claims_lost()):
            return True
        if known is None or known[0] != version or ledger.claims:
            return False
        asked = self._asked(ledger, line)
        return asked is not None and any(_as_much(asked, refused) for refused in known[1])

    def refused(self, ledger: Ledger, line: Line) -> None:
        """The quota has said no to every way of a line."""
        version = ledger.accounts.freed(line.queue)
        self._version_of_line[line] = (version, ledger.accounts.claims_lost())
        asked = None if ledger.claims else self._asked(ledger, line)
        if asked is None:
            return
        known = self._refused.get((line.queue, line.preemptible))
        others = known[1] if known is not None and known[0] == version else []
        others = [each for each in others if not _as_much(each, asked)]
        vectors = [*others, asked][-MOST_VECTORS:]
        self._refused[line.queue, line.preemptible] = (version, vectors)

    def lapsed(self, ledger: Ledger) -> Iterator[Line]:
        """The lines that wait of which refusals count no more since this was asked last; some too many do no harm."""
        freed, lost = ledger.accounts.freed, ledger.accounts.claims_lost()
        for line, version in list(self._version_of_line.items()):
            if version != (freed(line.queue), lost):
                del self._version_of_line[line]
                if line in ledger.lines:
                    yield line
        for (queue, preemptible), (version, _) in list(self._refused.items()):
            if version != freed(queue):
                del self._refused[queue, preemptible]
                yield from ledger.lines.lines_in(queue)

    def _asked(self, ledger: Ledger, line: Line) -> Vector | None:
        """What a line asks of each resource that quotas count; None where that depends on the way it goes."""
        if line.signature not in self._asked_of_signature:
            state = ledger.jobs[ledger.lines[line][0].job]
            several = chooses(state.spec) or state.spec.elastic is not None
            asked: Mapping[str, float] = ledger.accounts.asked(state)
            told = tuple(asked.get(what, 0.0) for what in ledger.accounts.quota.resources)
            self._asked_of_signature[line.signature] = None if several else told
        return self._asked_of_signature[line.signature]


def _as_much(asked: Vector, refused: Vector) -> bool:
    return all(mine >= its for mine, its in zip(asked, refused, strict=True))
