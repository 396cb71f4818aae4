"""Months of UTC as spans of seconds since 1970."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from gantree.model.errors import BadInput

_MONTH = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])")


@dataclass(frozen=True, slots=True)
class Month:
    """One month."""

    year: int
    month: int

    @property
    def since(self) -> int:
        """Its first second."""
        return int(datetime(self.year, self.month, 1, tzinfo=UTC).timestamp())

    @property
    def until(self) -> int:
        """The first second of the next."""
        return Month(self.year + self.month // 12, self.month % 12 + 1).since

    @property
    def before(self) -> "Month":
        """The month before."""
        first = self.month == 1
        return Month(self.year - first, 12 if first else self.month - 1)

    @property
    def words(self) -> str:
        """As people say it: "November 2026"."""
        return f"{datetime(self.year, self.month, 1, tzinfo=UTC):%B %Y}"

    def __str__(self) -> str:
        return f"{self.year:04}-{self.month:02}"


def month_of(text: str | None, now: float) -> Month:
    """The month that an option names, by default the present one. Raises BadInput, for months to come too."""
    today = datetime.fromtimestamp(now, UTC)
    this = Month(today.year, today.month)
    if text is None:
        return this
    found = _MONTH.fullmatch(text)
    if found is None or int(found[1]) < 1971:
        raise BadInput(f"--month: found {text}; allowed: a month such as {this}")
    month = Month(int(found[1]), int(found[2]))
    if month.since > now:
        raise BadInput(f"--month: found {text}; allowed: {this} or an earlier month")
    return month
