"""The accounts of a policy, kept by the ledger: where each job stands, what its queue uses, what it is owed.

They are derived from facts and the policy in force, so a fold makes them again. Which queue, which line, which quota,
which share, how long jobs like this one ran: the answers are in `policy`; here they are fed and asked in the words of
the ledger.
"""

from collections.abc import Container, Hashable, Iterable, Iterator
from math import ceil, inf, log2

from gantree.core.ledger.projected_quota import ProjectedQuota
from gantree.core.ledger.state import JobState
from gantree.model.jobs import Job
from gantree.model.phases import Phase
from gantree.model.placements import Placement
from gantree.policy.amounts import MODEL, asked, held
from gantree.policy.order import Order
from gantree.policy.queues import QueueTree
from gantree.policy.quota.admission import OWED, Admission
from gantree.policy.quota.quota import Quota
from gantree.policy.rules import Amounts, Policy, QueueRule
from gantree.policy.runtimes import Runtimes
from gantree.policy.share import Shares
from gantree.policy.waiting_jobs import EquivalenceClass
from gantree.topology.fabric.fabric import Fabric

STEPS_OF_A_DOUBLING = 2
"""Guesses of a run time are rounded up to so many steps a doubling, so that jobs of alike guesses share a line."""


class Accounts:
    """Queues, quotas, shares and run times of one policy. rations_models: whether any quota speaks of one GPU model."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.order = Order(policy)
        self.tree = QueueTree(policy.queues, policy.share_users)
        self.runtimes = Runtimes()
        self.quota = Quota(self.tree, {})
        self._projected = ProjectedQuota(self.tree, self.outranks)
        self._leaving: set[str] = set()
        self.shares = Shares(self.tree, {}, policy.gpu_weights, policy.half_life_s)
        self._fabric: Fabric | None = None
        self._models: tuple[str, ...] = ()
        self._asked_of_signature: dict[int, Amounts] = {}
        self.elastic: dict[str, None] = {}
        self._guaranteed_queues: dict[int, bool] = {}
        self._guarantees = any(rule.guarantee for rule in policy.queues)
        self.rations_models = _rations_models(policy)
        self._due: dict[tuple[int, int, bool], bool] = {}
        self._due_on_any_model: dict[tuple[int, int, bool], bool] = {}
        self._due_version = 0
        self._dues_at = (0, 0)
        self._dues: dict[str, bool] = {}
        self._claims_made = self._claims_lost = 0
        self._claims_at_home: dict[str, None] = {}
        self._held_last: tuple[Placement | None, Amounts] = (None, {})

    def see(self, fabric: Fabric) -> None:
        """The cluster is another one from now on."""
        self._fabric, self._held_last = fabric, (None, {})
        capacity = capacity_of(fabric)
        self.quota.capacity = self._projected.quota.capacity = capacity
        self._forget_due()
        self._models = tuple(
            name.removeprefix(MODEL) for name in capacity if name.startswith(MODEL)
        )
        self._asked_of_signature.clear()
        self.order.cluster_gpus = max(1.0, capacity.get("gpus", 0.0))
        self.shares.capacity = capacity

    def grow(self) -> None:
        """Make room for queues and users that came since."""
        self.quota.grow()
        self._projected.quota.grow()

    def queue_of(self, spec: Job) -> int:
        """The node of the queue tree that a job is counted at."""
        return self.tree.leaf(spec.queue, spec.user)

    def asked(self, state: JobState) -> Amounts:
        """What the job asks for as it is written."""
        if state.signature not in self._asked_of_signature:
            self._asked_of_signature[state.signature] = self._asked(state.spec)
        return self._asked_of_signature[state.signature]

    def forget_signatures(self, used: Container[int]) -> None:
        """Only these are known from now on."""
        for signature in [each for each in self._asked_of_signature if each not in used]:
            del self._asked_of_signature[signature]

    def asked_on(self, state: JobState, way: Job) -> Amounts:
        """What the job asks for where it runs in this way."""
        return self.asked(state) if way is state.spec else self._asked(way)

    def _asked(self, job: Job) -> Amounts:
        """What a job asks for; where the cluster has GPUs of one model only, in these, too."""
        amounts = asked(job)
        if len(self._models) != 1 or "gpus" not in amounts:
            return amounts
        (model,) = self._models
        if any(role.shape.models and model not in role.shape.models for role in job.roles):
            return amounts
        return {**amounts, MODEL + model: amounts["gpus"]}

    def held(self, placement: Placement) -> Amounts:
        """What a placed gang holds."""
        if self._held_last[0] is not placement:  # one that is placed is asked about three times
            self._held_last = (placement, held(placement.members, self._model_of_node))
        return self._held_last[1]

    def _model_of_node(self, node: str) -> str | None:
        assert self._fabric is not None, "no cluster was observed yet"
        return self._fabric.machine_of_node(self._fabric.index_of_node[node]).gpu

    def is_full(self, spec: Job) -> str:
        """Why a queue takes no more jobs in, in words; "" where it does."""
        node = self.tree.queue_node(
            spec.queue
        )  # asking must not make one: a job that is rejected leaves no trace
        return "" if node is None else self.quota.may_wait(node).words

    def equivalence_class_of(self, state: JobState) -> EquivalenceClass:
        """The line of all who get the same answer as this job, as long as it waits."""
        span_s, enforced = self.span_of(state)
        spec = state.spec
        return EquivalenceClass(
            state.queue, state.signature, state.priority, spec.preemptible, span_s, enforced
        )

    def span_of(self, state: JobState) -> tuple[float, bool]:
        """How long it would hold a place, and whether that is enforced: its limit with the grace, else a guess.

        What it has done already counts for nothing: an attempt may begin anew.
        """
        spec = state.spec
        if spec.time_limit_s is not None and not self.may_suspend(spec):
            return spec.time_limit_s + self.policy.grace_s, True
        guess_s = self.guess_s(state)
        return (inf if guess_s is None else _rounded_up(guess_s)), False

    def may_suspend(self, spec: Job) -> bool:
        """Whether a job may be suspended for others: then its limit does not say how long it holds its place."""
        rules = self.policy.time_sharing
        return rules is not None and rules.may_suspend(spec)

    def guess_s(self, state: JobState, ran_s: float = 0.0) -> float | None:
        """How long its whole run is guessed to be: by its user, else by what ran before. None: nobody knows."""
        spec, quantile = state.spec, self.policy.backfill.quantile
        if spec.expected_s is not None and spec.expected_s >= ran_s:
            return spec.expected_s
        return self.runtimes.quantile(spec.queue, spec.user, spec.name, quantile, ran_s)

    def wait(self, state: JobState) -> None:
        """A job begins to wait, or stands elsewhere."""
        self.quota.enqueue(state.queue)
        self._projected.quota.grow()
        self._projected.stands_elsewhere(state.job)

    def wait_no_more(self, state: JobState) -> None:
        """A job waits no more."""
        self.quota.dequeue(state.queue)

    def start(self, state: JobState, placement: Placement, at: float) -> None:
        """A gang holds a place from now on."""
        self.count(state, self.held(placement), at)

    def count(self, state: JobState, amounts: Amounts, at: float) -> None:
        """A gang holds these amounts from now on."""
        self.quota.take(state.queue, state.job, amounts, rank_of(state))
        if state.leaving:
            self._leaving.add(state.job)
        else:
            self._projected.take(state, amounts)
        self._forget_due()
        self.shares.take(state.queue, state.job, amounts, at)
        if state.spec.elastic is not None:
            self.elastic[state.job] = None

    def leave(self, state: JobState) -> None:
        """A gang is about to leave: it holds its place, and will not hold it when others have what they claim."""
        self._projected.leave(state.job)
        self._leaving.add(state.job)

    def stop(self, state: JobState, at: float) -> None:
        """A gang holds its place no more."""
        self.quota.give_back(state.job)
        self._projected.leave(state.job)
        self._leaving.discard(state.job)
        self._forget_due()
        self.shares.give_back(state.job, at)
        self.elastic.pop(state.job, None)

    def claim(self, state: JobState, placement: Placement, *, at_home: bool) -> None:
        """Room is held for a gang from now on, and so is what it takes of its queue's quota."""
        firm = at_home or state.moving is not None
        self._claims_lost += self._projected.has_claimed(state.job)
        self._claims_made += 1
        self._projected.claim(state, self.held(placement), firm=firm)
        if at_home:
            self._claims_at_home[state.job] = None

    def drop_claim(self, job: str) -> None:
        """Nothing is held for a gang any more."""
        self._claims_at_home.pop(job, None)
        self._claims_lost += 1
        self._projected.drop(job)
        self.quota.free()

    def rank_again(self, state: JobState) -> None:
        """The priority of a gang that holds a place has changed."""
        self.quota.rerank(state.job, rank_of(state))

    def learn(self, state: JobState) -> None:
        """A job has ended; its run time tells of others like it."""
        if state.phase is Phase.SUCCEEDED and state.done_s > 0.0:
            self.runtimes.learn(state.spec.queue, state.spec.user, state.spec.name, state.done_s)

    def is_guaranteed(self, queue: int) -> bool:
        """Whether anything is guaranteed to a queue, or to one that it is in."""
        known = self._guaranteed_queues.get(queue)
        if known is None:
            rules = (self.tree.rule[node] for node in self.tree.path(queue))
            known = any(rule is not None and (rule.guarantee or rule.cells) for rule in rules)
            self._guaranteed_queues[queue] = known
        return known

    def is_unlimited(self, queue: int) -> bool:
        """Whether no quota and no limit can keep a job of a queue from starting."""
        if not self.policy.queues:
            return True
        rules = [self.tree.rule[node] for node in self.tree.path(queue)]
        return not self._guarantees and not any(_limits(rule) for rule in rules if rule)

    def may_reclaim(self, queue: int) -> bool:
        """Whether a queue might have lent something that it could take back."""
        return self._guarantees and self.is_guaranteed(queue)

    @property
    def anybody_shrinks(self) -> bool:
        """Whether an elastic gang holds a place."""
        return self.policy.elastic and bool(self.elastic)

    def admits_instead(self, state: JobState, amounts: Amounts) -> bool:
        """Whether its queue lets a gang that holds a place hold these amounts instead."""
        return not self.admission(state, amounts, [state.job]).refused

    def freed(self, queue: int) -> tuple[int, int]:
        """Numbers of which one grows whenever a job of a queue that was refused may be admitted, now or to come."""
        return self.quota.version_of(queue), self._projected.quota.version_of(queue)

    def freed_anywhere(self) -> tuple[int, int]:
        """As `freed`, of a job of any queue."""
        return self.quota.version(), self._projected.quota.version()

    def pushed_out(self) -> int:
        """A number that grows whenever a gang is no longer owed the place that it holds, because another one came."""
        return self.quota.pushed_out() if self._guarantees else 0

    def holds_within_guarantee(self, state: JobState) -> bool:
        """Whether a gang that holds a place is within what its queue is guaranteed."""
        if state.at_home:
            return True
        return self.is_guaranteed(state.queue) and self.quota.owed(state.job)

    def above_guarantee(self, gangs: Iterable[JobState]) -> list[JobState]:
        """Those of some gangs that hold a place who are not owed it."""
        borrowers_of_queue: dict[int, Container[str] | None] = {}
        found = []
        for state in gangs:
            queue = state.queue
            if queue not in borrowers_of_queue:
                is_guaranteed = self.is_guaranteed(queue)
                borrowers_of_queue[queue] = self.quota.borrow_in(queue) if is_guaranteed else None
            borrowers = borrowers_of_queue[queue]
            if not state.at_home and (borrowers is None or state.job in borrowers):
                found.append(state)
        return found

    def admission(self, state: JobState, amounts: Amounts, gone: Iterable[str] = ()) -> Admission:
        """What the job's queue says to so much more at once, were these running jobs gone.

        It must say yes twice: beside all who hold a place, and beside all who will, when those have left who leave and
        those have begun who have claims, but for claims that give way to the job.
        """
        if self.quota.is_unruled(state.queue):
            return OWED
        gone = list(gone)
        later = self.projected_admission(state, amounts, gone)
        if later.refused or not self._leaving:
            return later
        without, beside = self._held_now(state, gone)
        may_borrow = state.spec.preemptible
        now = self.quota.room_without(state.queue, amounts, without, may_borrow, beside)
        return now if now.refused or later.state == "owed" else later

    def projected_admission(
        self, state: JobState, amounts: Amounts, gone: Iterable[str] = ()
    ) -> Admission:
        """As `admission`, of the time when all have left who leave: whether room may be claimed."""
        return self._projected.room(state, amounts, gone, self._seen_as(state))

    def may_be_within_projected_guarantee(self, state: JobState) -> bool:
        """Whether a job that waits might be owed what it asks for when all have left who leave; never wrongly no."""
        return self._projected.may_be_within_guarantee(
            state, self.asked(state), self._seen_as(state)
        )

    def limits(self, state: JobState, amounts: Amounts, gone: Iterable[str] = ()) -> Admission:
        """As `admission`, asking limits only: what goes home is owed whatever else the queue has."""
        gone = list(gone)
        later = self._projected.limits(state, amounts, gone, self._seen_as(state))
        if later.refused or not self._leaving:
            return later
        without, beside = self._held_now(state, gone)
        return self.quota.limits_without(state.queue, amounts, without, beside)

    def _held_now(
        self, state: JobState, gone: Iterable[str]
    ) -> tuple[list[str], list[tuple[int, Amounts]]]:
        """Who does not count now where a job asks, and who counts beside all who hold a place: whose claims are firm.

        Who claims that way and still holds another place counts with the larger of both.
        """
        without, beside = list(gone), []
        for claimed in self._projected.firm:
            other, amounts = claimed.state, claimed.amounts
            if other is state or self.outranks(state, other):
                continue
            if self.quota.holds(other.job) and other.job not in without:
                without.append(other.job)
                amounts = _larger(amounts, self._held_by(other))
            beside.append((other.queue, amounts))
        return without, beside

    def _seen_as(self, state: JobState) -> Hashable:
        """The same for jobs to which the same claims of other queues give way."""
        if not self._projected.anybody_claims:
            return None
        key, shared = state.position.key, self.order.before_share
        where = (key[:shared],) if shared is not None else (key, state.position)
        return *where, state.priority, self._within_guarantee_on_any_model(state)

    def claims_lost(self) -> int:
        """A number that grows whenever a claim is made no more, or begins or ends to be for what is owed.

        One more claim takes from those to whom it does not give way, and is nothing to the others.
        """
        if not self._dues and not self._projected.anybody_claims:
            return self._claims_lost
        at = (self._due_version, self._claims_made + self._claims_lost)
        if self._dues_at != at:
            dues = {
                state.job: self.claims_within_guarantee(state)
                for state in self._projected.claimants
            }
            self._claims_lost += not self._dues.items() <= dues.items()
            self._dues = dues
            self._dues_at = (self._due_version, self._claims_made + self._claims_lost)
        return self._claims_lost

    def _forget_due(self) -> None:
        self._due_version += 1
        self._due.clear()
        self._due_on_any_model.clear()
        self._projected.forget()

    def outranks(self, state: JobState, other: JobState, claimed: Amounts | None = None) -> bool:
        """Whether what is claimed for another job gives way to a waiting one: only where none of its rights is less.

        claimed: what the other one would claim, by default what it has claimed.

        Where one right alone decided, two jobs could stop each other for ever. A gang that moves gives way to nobody,
        nor does one that goes home: guests would take its place in turns, and be told to leave again.
        """
        if other.moving is not None or other.job in self._claims_at_home:
            return False
        if not self.goes_before(state, other):
            return False
        if self.policy.preemption.by == "priority" and state.priority < other.priority:
            return False
        return self._within_guarantee_on_any_model(state) or not self.claims_within_guarantee(
            other, claimed
        )

    def giving_way(self, state: JobState) -> tuple[str, ...]:
        """The jobs whose claims give way to a waiting one, as `outranks` says."""
        return self._projected.giving_way(state, self._seen_as(state))

    def goes_before(self, state: JobState, other: JobState) -> bool:
        """Whether a waiting job goes before another: between queues by what comes before shares, in one by it all."""
        shared = self.order.before_share
        if state.spec.queue == other.spec.queue or shared is None:
            return state.position < other.position
        return state.position.key[:shared] < other.position.key[:shared]

    def goes_before_by_guarantee(self, state: JobState, other: JobState) -> bool:
        """Whether a waiting job is within what its queue is guaranteed, and a waiting one of another queue is not."""
        if state.spec.queue == other.spec.queue:
            return False
        return self.asks_within_guarantee(state) and not self.asks_within_guarantee(other)

    def asks_within_guarantee(self, state: JobState) -> bool:
        """Whether what a waiting job asks for is within what its queue is guaranteed, beside those that run."""
        if not self.is_guaranteed(state.queue):
            return False
        key = state.queue, state.signature, state.spec.preemptible
        due = self._due.get(key)
        if due is None:
            due = self._due[key] = self._is_within_guarantee(state, self.asked(state))
        return due

    def _within_guarantee_on_any_model(self, state: JobState) -> bool:
        """As `asks_within_guarantee`, whichever GPU model it gets: another queue may be guaranteed that model."""
        if not self.rations_models or not self.asks_within_guarantee(state):
            return self.asks_within_guarantee(state)
        key = state.queue, state.signature, state.spec.preemptible
        due = self._due_on_any_model.get(key)
        if due is None:
            due = self._due_on_any_model[key] = all(
                self._is_within_guarantee(state, amounts) for amounts in self._on_each_model(state)
            )
        return due

    def _on_each_model(self, state: JobState) -> Iterator[Amounts]:
        """What a job would hold if all its GPUs that may be of several models were of one, for each."""
        amounts, roles = self.asked(state), state.spec.roles
        of_one = sum(amount for name, amount in amounts.items() if name.startswith(MODEL))
        of_any = amounts.get("gpus", 0.0) - of_one
        for model in self._models if of_any > 0.0 else ():
            if any(not role.shape.models or model in role.shape.models for role in roles):
                yield {**amounts, MODEL + model: amounts.get(MODEL + model, 0.0) + of_any}

    def claims_within_guarantee(self, state: JobState, claimed: Amounts | None = None) -> bool:
        """As `asks_within_guarantee`, for what a job claims or would claim: an elastic gang may claim less."""
        amounts = self._projected.claimed(state.job) if claimed is None else claimed
        if amounts is None or amounts == self.asked(state):
            return self.asks_within_guarantee(state)
        return self._is_within_guarantee(state, amounts)

    def _is_within_guarantee(self, state: JobState, amounts: Amounts) -> bool:
        if not self.is_guaranteed(state.queue):
            return False
        if not self.quota.is_guaranteed(state.queue, amounts):
            return False
        return self.quota.room(state.queue, amounts, state.spec.preemptible).takes_back

    def _held_by(self, state: JobState) -> Amounts:
        assert state.placement is not None, f"{state.job} has no place"
        return self.held(state.placement)


def _rations_models(policy: Policy) -> bool:
    """Whether any quota or limit speaks of one GPU model."""
    return any(
        resource.startswith(MODEL)
        for rule in policy.queues
        for amounts in (rule.guarantee, rule.limit, rule.lend, rule.borrow, rule.user_limit)
        for resource in amounts
    )


def _larger(amounts: Amounts, others: Amounts) -> Amounts:
    """Of each resource the larger amount."""
    keys = dict.fromkeys((*amounts, *others))
    return {key: max(amounts.get(key, 0.0), others.get(key, 0.0)) for key in keys}


def _limits(rule: QueueRule) -> bool:
    """Whether a rule may keep a job from starting."""
    counts = (rule.most_running, rule.most_running_per_user)
    return bool(rule.limit or rule.borrow or rule.user_limit) or counts != (None, None)


def rank_of(state: JobState) -> tuple[float, ...]:
    """Who of a queue is within its guarantee first: the higher priority, then who came first."""
    return (-state.priority, state.seq)


def _rounded_up(span_s: float) -> float:
    if span_s <= 1.0:
        return 1.0
    return float(2.0 ** (ceil(log2(span_s) * STEPS_OF_A_DOUBLING) / STEPS_OF_A_DOUBLING))


def capacity_of(fabric: Fabric) -> Amounts:
    """What all nodes have together, in use or not; what is not counted is left out."""
    capacity: dict[str, float] = {}
    for node in range(len(fabric.nodes)):
        machine = fabric.machine_of_node(node)
        told = {"gpus": machine.gpus, "cpus": machine.cpus, "memory_GiB": machine.memory_GiB}
        if machine.gpu is not None:
            told[f"gpus/{machine.gpu}"] = machine.gpus
        if machine.nics_counted:
            told["nics"] = len(machine.nics)
        told.update((f"devices/{name}", count) for name, count in machine.devices)
        for resource, amount in told.items():
            if amount:
                capacity[resource] = capacity.get(resource, 0.0) + amount
    return capacity
