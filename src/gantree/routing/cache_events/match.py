"""What is known of caches: how much of a prompt replicas hold, and how much of a service is known at all."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gantree.routing.cache_events.blocks import Prompt


@dataclass(frozen=True, slots=True)
class Match:
    """How many tokens of a prompt each replica holds, by the name of its server; those that hold none are left out.

    expected_until: until then a replica that gets the prompt counts as one that holds all of it.
    """

    prompt: "Prompt"
    tokens_of_server: Mapping[str, int]
    expected_until: float = 0.0

    @property
    def prompt_tokens(self) -> int:
        """How many tokens the prompt has."""
        return len(self.prompt.tokens)

    @property
    def most(self) -> int:
        """The most tokens that one replica holds."""
        return max(self.tokens_of_server.values(), default=0)


@dataclass(frozen=True, slots=True)
class Held:
    """What is known of a service: replicas whose events are read, their blocks, times that events were lost."""

    replicas: int
    blocks: int
    gaps: int
