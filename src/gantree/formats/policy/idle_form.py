"""Fields of `idle`, of the policy and of a queue in policy.yaml: when a gang is idle, and what follows."""

# ruff: noqa: RUF012 - Pydantic copies the default of a field for every form

from collections.abc import Iterator
from typing import Annotated, Any, Literal, cast

from pydantic import PlainValidator, WithJsonSchema

from gantree.formats.job.topology_form import JobPattern
from gantree.formats.validation.fields import (
    CountFromOne,
    Duration,
    DurationAboveZero,
    Name,
    Text,
    number,
    one_of,
    wrong,
)
from gantree.formats.validation.forms import Form, Listed
from gantree.model.errors import Problem
from gantree.policy.idle import ACTIONS, DEFAULT_RULE, IdleAction, IdleExempt, IdleRule
from gantree.policy.rules import NEVER
from gantree.text.document import Table
from gantree.text.words import span

NONE = "none"
WORDS = (*ACTIONS, NONE)


def none_alone(value: Any) -> Any:
    """Make `{action: none}` of a bare none."""
    if isinstance(value, Table):
        return value
    if value != NONE:
        raise wrong("none, or a mapping such as {warn: 10m, reclaim: 15m}")
    table = Table("", 0)
    table["action"] = NONE
    return table


Action = Annotated[str, PlainValidator(one_of(WORDS)), WithJsonSchema({"enum": list(WORDS)})]
ShareBelowOne = Annotated[
    float,
    PlainValidator(number(0, 0.99, "a share of the GPUs' time from 0 to 0.99")),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": 0.99}),
]


class IdleExemptForm(Form):
    """Jobs that are never warned nor reclaimed."""

    priorities: Listed[Name] = []
    users: Listed[Text] = []
    jobs: Listed[JobPattern] = []


class IdleForm(Form):
    """When a gang is idle, when it is warned, and what is done with it."""

    below: ShareBelowOne = DEFAULT_RULE.below
    warn: DurationAboveZero | None = None
    reclaim: DurationAboveZero | None = None
    action: Action = DEFAULT_RULE.action
    grace: Duration = DEFAULT_RULE.grace_s
    lease: Duration = DEFAULT_RULE.longest_lease_s
    times: CountFromOne = DEFAULT_RULE.times
    exempt: IdleExemptForm = IdleExemptForm()

    def rule(self) -> IdleRule | Literal["never"]:
        """Return what is written. Of warn and reclaim, one that is left out keeps the proportion of the defaults."""
        if self.action == NONE:
            return NEVER
        return IdleRule(
            self.below,
            self.warn_s,
            self.reclaim_s,
            cast("IdleAction", self.action),
            self.grace,
            self.lease,
            self.times,
            IdleExempt(
                tuple(self.exempt.priorities), tuple(self.exempt.users), tuple(self.exempt.jobs)
            ),
        )

    @property
    def warn_s(self) -> float:
        """Seconds until the warning."""
        if self.warn is None and self.reclaim is not None:
            return self.reclaim * DEFAULT_RULE.warn_s / DEFAULT_RULE.reclaim_s
        return DEFAULT_RULE.warn_s if self.warn is None else self.warn

    @property
    def reclaim_s(self) -> float:
        """Seconds until the action."""
        if self.reclaim is None:
            return self.warn_s * DEFAULT_RULE.reclaim_s / DEFAULT_RULE.warn_s
        return self.reclaim

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong between its fields."""
        if self.reclaim is not None and self.warn is not None and self.reclaim <= self.warn:
            yield self.problem(
                "reclaim", f"`{span(self.reclaim)}`", f"a time after warn, {span(self.warn)}"
            )
