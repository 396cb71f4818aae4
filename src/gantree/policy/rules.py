"""The whole policy of a site as plain data. `formats.policy` makes it, nothing changes it.

Every rule is a value, never a name: a preset is a policy file like any other, and no code asks which one it came from.
What the rules lead to is elsewhere: the order in `policy.order`, quotas in `policy.quota.quota`, shares in
`policy.share`, cells in `policy.cells`, learned run times in `policy.runtimes`; what needs placement too in `planning`.

Amounts are mappings from a resource to how much of it: "gpus" (of any model), "gpus/H100-80GB" (of that model), "cpus",
"memory_GiB", "nics", "devices/NAME". A resource that is not in a mapping is not spoken of.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final, Literal

from gantree.model.errors import BadInput
from gantree.model.jobs import DEFAULT_GRACE_S, Check, Job, Notify, Shape
from gantree.policy.idle import IdleRule

Amounts = Mapping[str, float]

DEFAULT_PRIORITIES: Mapping[str, int] = MappingProxyType(
    {"research": 100, "batch": 200, "production": 300, "serving": 400}
)
"""Class -> number; a larger number goes first."""

OrderKey = Literal[
    "priority",
    "share",
    "attained",
    "remaining",
    "remaining_service",
    "stretch",
    "smallest",
    "arrival",
]
"""What jobs are ordered by; `policy.order` says what each means."""

PlacementRule = Literal["topology", "first-fit", "best-fit", "random"]
"""How a place is chosen among those that fit; only the first knows the topology (`placement.choice.blind`)."""

VictimRule = Literal["loss", "youngest"]
"""Who is stopped among jobs of equal right; the second is a baseline."""

NEVER: Final = "never"
"""Of a queue whose gangs are never idle."""
LOOSE = "gpus"
"""The tier of cells that are GPUs anywhere."""


Period = Literal["day", "week", "month", "total"]
"""After what the consumption of a budget begins anew: days, weeks (from Monday) and months of UTC; "total": never."""

AtLimit = Literal["warn", "hold", "stop"]
"""What happens when a budget is used up: nothing; nothing new starts; running gangs save and stop, too."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a queue, with all queues below it, may use in a period: an amount in a unit ("USD", "GPU-minutes").

    weights is what `per_s` seconds of one of a resource cost in that unit; other_gpus is the same for GPUs of models
    that are not in it. alerts are parts of the amount, increasing: 0.5 is half of it. notify is who is told of them.
    """

    period: Period
    amount: float
    unit: str
    per_s: float
    weights: Amounts
    other_gpus: float
    alerts: tuple[float, ...] = (0.5, 0.8, 1.0)
    at_limit: AtLimit = "hold"
    notify: Notify | None = None

    @property
    def is_money(self) -> bool:
        """Whether its unit is a currency."""
        return not self.unit.startswith("GPU-")


@dataclass(frozen=True, slots=True)
class LendIdle:
    """A queue lends, beyond `lend`, what of its guarantee it has not used at any moment of the last after_s seconds.

    keep is what it never lends in this way.
    """

    after_s: float
    keep: Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueueRule:
    """One queue of the tree. path is its names from the top ("research/nlp"); parents come before their children.

    weight is its share beside its siblings. Siblings of one named cohort lend each other, and nobody else, what they
    are guaranteed and do not use; those that name none lend to their parent, and so to all beside them. guarantee is
    what it gets back whatever else runs; limit is what it may use at most; lend is what it lends at most (not in it:
    all that is idle), borrow what it may use above its guarantee (not in it: all there is). With lend_idle what is not
    in lend is not lent at once. return_within_s: gangs that are reclaimed for its jobs have left after so many seconds,
    whatever time they asked for to save. cells are guarantees in whole domains: (tier, how many), LOOSE for GPUs
    anywhere.
    most_running and most_waiting are jobs at a time; user_limit and most_running_per_user are the same for each of its
    users. check is that of its jobs, and of those below it, that say nothing of one. budgets are of different periods.
    idle is the rule for its idle gangs, and for those of queues below it; NEVER: none is reclaimed; None: as the queue
    above has it.
    """

    path: str
    weight: float = 1.0
    cohort: str | None = None
    guarantee: Amounts = field(default_factory=dict)
    limit: Amounts = field(default_factory=dict)
    lend: Amounts = field(default_factory=dict)
    borrow: Amounts = field(default_factory=dict)
    lend_idle: LendIdle | None = None
    return_within_s: float | None = None
    cells: tuple[tuple[str, int], ...] = ()
    most_running: int | None = None
    most_waiting: int | None = None
    user_limit: Amounts = field(default_factory=dict)
    most_running_per_user: int | None = None
    check: Check | None = None
    budgets: tuple[Budget, ...] = ()
    idle: IdleRule | Literal["never"] | None = None


@dataclass(frozen=True, slots=True)
class Boost:
    """More priority (or less, where negative) for some jobs until a moment, in seconds as `Event.observed_at` counts.

    queue (and everything under it), user and job (a name or a pattern such as "llama-*") must all match; None: any.
    """

    by: int
    until_s: float
    queue: str | None = None
    user: str | None = None
    job: str | None = None


@dataclass(frozen=True, slots=True)
class Backfill:
    """What may start while a gang that goes first waits for room.

    overtake: "any": whatever fits; "promised": whatever cannot delay the first `reservations` gangs that wait for room;
    "none": nothing of the same queue. quantile is that of the learned run times that estimates go by. depth: how many
    waiting jobs of a queue, the first that could ever start, may preempt others or get a reservation.
    """

    overtake: Literal["any", "promised", "none"] = "promised"
    reservations: int = 4
    quantile: float = 0.9
    depth: int = 32


@dataclass(frozen=True, slots=True)
class Preemption:
    """Who may stop whom for room, beside queues that take back what they are guaranteed, which they always may.

    by: "priority": a higher priority stops a lower one; "order": who goes first stops who goes later; "none": nobody.
    who: class -> classes that it may stop; a class that is not in it stops every lower one. across: whether a job
    stops jobs of other queues too (never ones within their queue's guarantee). gain: where "priority" decides, a job
    also stops one of its own queue and priority that goes later, if the GPU-seconds of work by which that has more
    left are `gain` times what stopping it throws away, and the run times of both are known; 0: never. plans: how many
    preemption plans one pass makes; the next pass goes on with the rest. victims: which of the jobs that may be stopped
    are: "loss": those that lose the fewest GPU-seconds; "youngest": those placed last, as most schedulers do.
    """

    by: Literal["priority", "order", "none"] = "priority"
    who: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    across: bool = True
    gain: float = 0.0
    plans: int = 16
    victims: VictimRule = "loss"


@dataclass(frozen=True, slots=True)
class UseWeights:
    """What a GPU-second that was held counts in shares, where not 1.

    idle: one in which counters say that the GPU did not compute. lost_to_others: one of work that must be done again
    because the job was preempted, moved or drained, or lost a node.
    """

    idle: float = 1.0
    lost_to_others: float = 1.0


BY_HELD = UseWeights()
BY_USEFUL = UseWeights(0.0, 0.0)

IN_TURNS = "time-slicing"
"""The isolation of shares that may take turns."""


@dataclass(frozen=True, slots=True)
class TimeSharing:
    """Jobs of these classes that share a GPU take turns of quantum_s: one computes, the others are suspended."""

    classes: tuple[str, ...]
    quantum_s: float = 60.0

    def may_suspend(self, job: Job) -> bool:
        """Whether a job might take turns: of one of these classes, asking for shares alone, which may be in turns."""
        if job.priority not in self.classes:
            return False
        shapes = [role.shape for role in job.roles]
        return all(
            not shape.gpus and shape.mig is None and shape.isolation in (None, IN_TURNS)
            for shape in shapes
        ) and any(shape.part for shape in shapes)


@dataclass(frozen=True, slots=True)
class Policy:
    """A whole policy.

    priorities: class -> number, larger first. order: what decides who goes first, the first difference counts; "share"
    compares queues (and users), what stands before it all jobs, what stands after it jobs of one queue.
    attained_levels: GPU-seconds at which "attained" counts a job down one level; empty: each GPU-second counts.
    stretch: how many times as long as the whole cluster would need for its work a job may be kept waiting.
    age_per_day: priority that a day of waiting is worth. half_life_s: of used GPU time in shares; None: only what is
    held now counts. gpu_weights: what a GPU of a model counts in shares; a model that is not in it counts 1.
    share_users: whether the users of a queue share it evenly. share_by: what GPU time counts in shares.

    grace_s: seconds a stopped gang has between SIGTERM and SIGKILL. min_run_s: seconds a gang has run before it may be
    preempted. evictions_per_day: how often one job may be preempted in any 24 hours, None for no limit. restart_s:
    seconds of all its GPUs that a stop and a new start cost a gang. A guarantee outranks min_run_s and
    evictions_per_day. leave_unwell: whether gangs that can save leave nodes of which somebody says that they may fail.
    leave_degraded: whether they leave links and nodes that make their steps longer, once staying costs more.

    elastic: whether gangs grow into idle room and give it back. defragment: "off", "plan" (plans are told when asked
    for) or "apply". placement: "topology", or a baseline that is blind to the topology; placement_seed is
    that of "random".
    fragmentation_weight: what whole domains left behind are worth against a gang's own speed. exact_s: seconds for
    which the optimum of a placement may be searched, 0 for none. demand: what a member that usually comes asks for,
    and how often such ones come, in any unit. (Used by searches: `placement.request.placement_preferences`.)
    idle is the rule for idle gangs of queues that have none; None: they keep what they have.
    """

    priorities: Mapping[str, int] = field(default_factory=lambda: dict(DEFAULT_PRIORITIES))
    order: tuple[OrderKey, ...] = ("priority", "share", "arrival")
    attained_levels: tuple[float, ...] = ()
    stretch: float = 500.0
    age_per_day: float = 0.0
    boosts: tuple[Boost, ...] = ()
    half_life_s: float | None = None
    gpu_weights: Amounts = field(default_factory=dict)
    share_users: bool = False
    share_by: UseWeights = BY_HELD
    queues: tuple[QueueRule, ...] = ()
    backfill: Backfill = Backfill()
    preemption: Preemption = field(default_factory=Preemption)
    grace_s: float = DEFAULT_GRACE_S
    min_run_s: float = 0.0
    evictions_per_day: int | None = None
    leave_unwell: bool = True
    leave_degraded: bool = True
    restart_s: float = 60.0
    elastic: bool = True
    defragment: Literal["off", "plan", "apply"] = "plan"
    time_sharing: TimeSharing | None = None
    placement: PlacementRule = "topology"
    placement_seed: int = 0
    fragmentation_weight: float = 0.2
    exact_s: float = 0.0
    demand: tuple[tuple[Shape, float], ...] = ()
    idle: IdleRule | None = None

    @property
    def spares_for_a_time(self) -> bool:
        """Whether time alone can make a gang one that may be stopped."""
        return self.min_run_s > 0 or self.evictions_per_day is not None or self.falls_ever_back

    @property
    def falls_back(self) -> bool:
        """Whether a gang falls back in the order by which others may stop it, as it runs."""
        return self.preemption.by == "order" and "attained" in self.order

    @property
    def falls_ever_back(self) -> bool:
        """Whether it does with every second, not from level to level."""
        return self.falls_back and not self.attained_levels

    def check_of(self, queue: str) -> Check | None:
        """Return the check of jobs of a queue that say nothing of one: its own, or that of the nearest queue above."""
        return next((rule.check for rule in self._of(queue) if rule.check is not None), None)

    def idle_of(self, queue: str) -> IdleRule | None:
        """Return the rule for idle gangs of a queue: its own, or that of the nearest queue above, or of the policy."""
        found = next((rule.idle for rule in self._of(queue) if rule.idle is not None), self.idle)
        return None if found == NEVER else found

    def return_within_s(self, queue: str) -> float | None:
        """Return how long gangs that are reclaimed for jobs of a queue have; None: as long as they asked for."""
        times = (rule.return_within_s for rule in self._of(queue))
        return next((within_s for within_s in times if within_s is not None), None)

    def _of(self, queue: str) -> list[QueueRule]:
        """Return the rules of a queue and of those above it, its own first."""
        found = [rule for rule in self.queues if f"{queue}/".startswith(f"{rule.path}/")]
        return sorted(found, key=lambda rule: -len(rule.path))

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
