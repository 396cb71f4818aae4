"""A model that is served, and what is asked of the service: what memory and time of inference depend on."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A decoder-only transformer as its published configuration describes it.

    parameters is the total, expert_parameters the part in experts, over all layers. kv_width is the width of keys (and
    of values) of a token in one layer: kv_heads x head width. heads and kv_heads are None where they are not known.
    vocabulary is the number of tokens (0: not known), tied whether input and output share its table. longest is the
    longest context in tokens that the model was made for, None where not known. source is the model's repository
    ("meta-llama/Llama-3.1-8B"), "" where not known.
    """

    name: str
    parameters: float
    layers: int
    hidden: int
    kv_width: int
    heads: int | None = None
    kv_heads: int | None = None
    vocabulary: int = 0
    tied: bool = False
    experts: int = 0
    experts_per_token: int = 1
    expert_parameters: float = 0.0
    longest: int | None = None
    source: str = ""

    @property
    def table_parameters(self) -> float:
        """Parameters of the vocabulary's tables."""
        return float(self.vocabulary * self.hidden * (1 if self.tied else 2))

    @property
    def active_parameters(self) -> float:
        """Parameters that one token meets."""
        return self.parameters - self.expert_parameters + self.read_experts(1)

    def read_experts(self, tokens: float) -> float:
        """Parameters of experts that so many tokens meet together, each of them experts chosen at random."""
        if not self.experts:
            return 0.0
        missed: float = (1.0 - self.experts_per_token / self.experts) ** tokens
        return self.expert_parameters * (1.0 - missed)


@dataclass(frozen=True, slots=True)
class ServingDemand:
    """What a service shall do: so many requests at once, each with a prompt and an answer in tokens.

    context is the longest request in tokens, for which there is room in the cache. first_token_s is the longest time
    to the first token without waiting, token_s the longest mean time between tokens. weight_bytes and cache_bytes are
    those of one parameter and of one value in the cache.
    """

    prompt: int
    answer: int
    context: int
    requests: int
    first_token_s: float
    token_s: float
    weight_bytes: float = 2.0
    cache_bytes: float = 2.0
