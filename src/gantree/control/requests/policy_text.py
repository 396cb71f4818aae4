"""A policy as it was handed in. Apart from all that is done with one, so that to name a policy imports little."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PolicyText:
    """The text of its file, and the file's name in messages."""

    text: str
    source: str
