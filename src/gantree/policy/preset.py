"""What a site decides once: priority classes, how gently running work is stopped, whether it is stopped at all.

Queues, fair shares and cells do not belong here; neither does the order in which gangs wait (`policy.order`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType

from gantree.model.errors import BadInput
from gantree.model.jobs import DEFAULT_GRACE_S, Shape

DEFAULT_PRIORITIES: Mapping[str, int] = MappingProxyType(
    {"research": 100, "batch": 200, "production": 300, "serving": 400}
)
"""Class -> number; a larger number goes first."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A whole policy.

    priorities: class -> number, larger first. grace_s: seconds a stopped gang has between SIGTERM and
    SIGKILL. min_run_s: seconds a gang has run before it may be preempted. evictions_per_day: how often one job
    may be preempted in any 24 hours, None for no limit. preempt: whether a running gang is ever stopped for
    another. fragmentation_weight: what whole domains left behind are worth against a gang's own speed. exact_s: seconds
    for which the optimum of a placement may be searched, 0 for none. demand: what a member that usually comes asks
    for, and how often such ones come, in any unit. (What a search makes of these three is in `placement.taste`.)
    """

    priorities: Mapping[str, int] = field(default_factory=lambda: dict(DEFAULT_PRIORITIES))
    grace_s: float = DEFAULT_GRACE_S
    min_run_s: float = 0.0
    evictions_per_day: int | None = None
    preempt: bool = True
    fragmentation_weight: float = 0.2
    exact_s: float = 0.0
    demand: tuple[tuple[Shape, float], ...] = ()

    def priority_of(self, priority: str | int) -> int:
        """Return the number of a class, or the number itself. Raises BadInput on an unknown class."""
        if isinstance(priority, int) and not isinstance(priority, bool):
            return priority
        if isinstance(priority, str) and priority in self.priorities:
            return self.priorities[priority]
        classes = ", ".join(self.priorities) or "none"
        near = get_close_matches(str(priority), self.priorities, n=1)
        hint = f" Did you mean `{near[0]}`?" if near else ""
        raise BadInput(
            f"priority: found `{priority}`; allowed: a number or a class ({classes}).{hint}"
        )


PRESETS: Mapping[str, Policy] = MappingProxyType(
    {"gantree": Policy(), "fifo": Policy(preempt=False)}
)
"""Name -> policy. "gantree" preempts lower priorities; "fifo" lets everything that runs run to its end."""
