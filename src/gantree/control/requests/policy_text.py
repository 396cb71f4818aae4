"""A policy as it was submitted. In a module of its own, so that naming a policy imports little."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PolicyText:
    """The text of its file, and the file's name in messages."""

    text: str
    source: str
