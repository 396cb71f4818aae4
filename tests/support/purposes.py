"""What every GPU-second of gangs was for, recounted from facts alone, second by second: the plain twin of the book."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from gantree.accounting.usage import UsageKey
from gantree.core.ledger.ledger import Ledger
from gantree.model.facts import (
    ArrayAccepted,
    ArrayEnded,
    ArrayHeld,
    ArrayReleased,
    AttemptEnded,
    CheckpointRecorded,
    CheckpointRequested,
    Fact,
    GangPlaced,
    GangResumed,
    GangRunning,
    GangSuspended,
    GpuUseNoted,
    JobAccepted,
    JobEnded,
    JobHeld,
    JobReleased,
    JobRequeued,
    StopDecided,
)
from gantree.model.gpu_activity import MeasuredUse
from gantree.model.jobs import Job
from gantree.model.placements import MemberPlacement, MigPart, Placement, SharePart
from gantree.topology.occupancy.occupancy import Occupancy

Span = tuple[float, float]
Place = dict[tuple[str, str], float]
"""GPUs by model and device."""


@dataclass
class Entry:
    """So much a second of a column from a moment to another; all at once where these are the same."""

    job: str
    key: UsageKey
    column: str
    since: float
    until: float
    amount: float

    def in_steps(self, step: int) -> Iterator[tuple[int, float]]:
        """The amount in each step of time."""
        start = int(self.since // step) * step
        if self.since == self.until:
            yield start, self.amount
        while start < self.until:
            yield start, self.amount * (min(self.until, start + step) - max(self.since, start))
            start += step


@dataclass
class Attempt:
    """One attempt: where it ran, what was told of it, and since when its work is not saved."""

    number: int
    place: Place
    phase: str = "starting"
    has_run: bool = False
    runs: list[Span] = field(default_factory=list)
    told: list[tuple[tuple[Span, ...], MeasuredUse]] = field(default_factory=list)
    saved_at: float = 0.0
    hosts: dict[str, dict[str, float]] = field(default_factory=dict)
    slower: float = 0.0

    @property
    def gpus(self) -> float:
        return sum(self.place.values())

    @property
    def unsaved_s(self) -> float:
        return seconds_after(self.runs, self.saved_at)


@dataclass
class Subject:
    """A job, or the elements of an array that were not split: how many wait, and the attempt."""

    name: str
    spec: Job
    since: float
    pending: int
    held: bool
    rests: bool = False
    attempt: Attempt | None = None
    is_placed: bool = False


class Purposes:
    """Reads facts in their order; `entries` is what they come to up to the last one, or up to `close`."""

    def __init__(self, model_of_node: Callable[[str], str | None]) -> None:
        self.entries: list[Entry] = []
        self.wrong: list[str] = []
        self._model_of_node = model_of_node
        self._subjects: dict[str, Subject] = {}

    def see(self, fact: Fact) -> None:
        """Read one fact."""
        if isinstance(fact, GpuUseNoted):
            for used in fact.gangs:
                self._told(fact, used)
        elif isinstance(fact, ArrayAccepted):
            spans = fact.spec.array
            count = sum(last - first + 1 for first, last in spans)
            self._subjects[fact.array] = Subject(
                fact.array, fact.spec, fact.at, count, fact.spec.held
            )
        elif isinstance(fact, JobAccepted):
            if fact.array:
                self._count(self._subjects[fact.array], fact.at)
                self._subjects[fact.array].pending -= 1
            self._subjects[fact.job] = Subject(fact.job, fact.spec, fact.at, 1, fact.spec.held)
        else:
            name = getattr(fact, "job", None) or getattr(fact, "array", None)
            if name in self._subjects:
                self._change(self._subjects[name], fact)

    def held_gpus(self) -> float:
        """GPUs that gangs hold now and do not rest on."""
        subjects = self._subjects.values()
        placed = [each.attempt for each in subjects if each.is_placed and not each.rests]
        return sum(attempt.gpus for attempt in placed if attempt is not None)

    def close(self, at: float) -> None:
        """Count everything up to a moment."""
        for subject in self._subjects.values():
            self._count(subject, at)

    def sums(self, step: int) -> dict[tuple[int, UsageKey, str], float]:
        """Amounts by step of time, key and column, without those that are nothing."""
        found: dict[tuple[int, UsageKey, str], float] = defaultdict(float)
        for entry in self.entries:
            for start, amount in entry.in_steps(step):
                found[start, entry.key, entry.column] += amount
        return {place: amount for place, amount in found.items() if abs(amount) > 1e-6}

    def totals(self) -> dict[tuple[UsageKey, str], float]:
        """Amounts of all time by key and column."""
        found: dict[tuple[UsageKey, str], float] = defaultdict(float)
        for entry in self.entries:
            found[entry.key, entry.column] += entry.amount * (entry.until - entry.since or 1.0)
        return found

    def of_job(self, job: str) -> dict[str, float]:
        """Amounts of one job by column."""
        found: dict[str, float] = defaultdict(float)
        for entry in self.entries:
            if entry.job == job:
                seconds = entry.until - entry.since or 1.0
                found[entry.column] += entry.amount * seconds
        return found

    def _change(self, subject: Subject, fact: Fact) -> None:
        self._count(subject, fact.at)
        attempt = subject.attempt
        match fact:
            case JobHeld() | ArrayHeld():
                subject.held = True
            case JobReleased() | ArrayReleased():
                subject.held = False
            case JobRequeued():
                subject.pending = 1
            case JobEnded() | ArrayEnded():
                subject.pending = 0
            case GangPlaced():
                predicted, place = fact.placement.predicted, self._place(fact.placement)
                subject.attempt = Attempt(fact.attempt, place, hosts=self._hosts(fact.placement))
                if predicted.best_step_s is not None and predicted.step_s:
                    subject.attempt.slower = 1 - predicted.best_step_s / predicted.step_s
                subject.pending, subject.rests, subject.is_placed = 0, False, True
            case GangSuspended() | GangResumed():
                subject.rests = isinstance(fact, GangSuspended)
            case AttemptEnded() if attempt is not None:
                subject.is_placed = False
                self._lost(subject, attempt, fact)
            case _ if attempt is not None:
                _move(attempt, fact)

    def _count(self, subject: Subject, at: float) -> None:
        since, subject.since = subject.since, at
        if at <= since:
            return
        spec, attempt = subject.spec, subject.attempt
        if subject.pending and not subject.held:
            key = UsageKey(spec.queue, spec.user, "", spec.project, "")
            self.entries.append(Entry(subject.name, key, "waited_s", since, at, subject.pending))
        if attempt is None or not subject.is_placed or subject.rests:
            return
        for key, gpus in self._keys(subject, attempt):
            self.entries += [
                Entry(subject.name, key, column, since, at, gpus) for column in _columns(attempt)
            ]
            slower = gpus * attempt.slower
            self.entries.append(Entry(subject.name, key, "slower_gpu_s", since, at, slower))
        for model, held in attempt.hosts.items():
            key = UsageKey(spec.queue, spec.user, model, spec.project, "")
            self.entries += [Entry(subject.name, key, name, since, at, held[name]) for name in held]
        if attempt.phase == "running":
            attempt.runs.append((since, at))

    def _told(self, fact: GpuUseNoted, used: MeasuredUse) -> None:
        subject = self._subjects[used.job]
        self._count(subject, fact.at)
        attempt = subject.attempt
        assert attempt is not None and attempt.number == used.attempt
        spans = tuple((fact.since + a, fact.since + a + s) for a, s in used.ran)
        spans = spans or ((fact.since, fact.until),)
        seconds = sum(b - a for a, b in spans)
        if used.drawn.powered_gpu_s > used.gpu_s + 1e-9 or min(used.drawn) < 0:
            self.wrong.append(f"{used} drew in more than was measured, or is negative")
        before = [span for each, _ in attempt.told for span in each]
        if used.gpu_s > seconds * attempt.gpus + 1e-5:
            self.wrong.append(f"{used} is more than it ran: {spans}")
        if abs(sum(overlap(span, attempt.runs) for span in spans) - seconds) > 1e-5:
            self.wrong.append(f"{used} is of seconds in which it did not run: {spans}")
        if sum(overlap(span, before) for span in spans) > 1e-5:
            self.wrong.append(f"{used} is of seconds of which something was told: {spans}")
        attempt.told.append((spans, used))
        for key, gpus in self._keys(subject, attempt):
            for a, b in spans:
                told = {"useful_gpu_s": used.useful_gpu_s, "idle_gpu_s": used.idle_gpu_s}
                for name, amount in {**told, **used.drawn._asdict()}.items():
                    rate = amount * gpus / attempt.gpus / seconds
                    self.entries.append(Entry(subject.name, key, name, a, b, rate))

    def _lost(self, subject: Subject, attempt: Attempt, fact: AttemptEnded) -> None:
        unsaved_s = attempt.unsaved_s
        lost_s = min(fact.lost_s, unsaved_s)
        if lost_s <= 0:
            return
        taken = {"useful_gpu_s": 0.0, "idle_gpu_s": 0.0}
        for spans, used in attempt.told:
            part = seconds_after(spans, attempt.saved_at) / sum(b - a for a, b in spans)
            for name in taken:
                taken[name] += getattr(used, name) * part * lost_s / unsaved_s
        at = fact.at
        for key, gpus in self._keys(subject, attempt):
            self.entries.append(Entry(subject.name, key, "lost_gpu_s", at, at, lost_s * gpus))
            for name, amount in taken.items():
                self.entries.append(
                    Entry(subject.name, key, name, at, at, -amount * gpus / attempt.gpus)
                )

    def _keys(self, subject: Subject, attempt: Attempt) -> Iterator[tuple[UsageKey, float]]:
        spec = subject.spec
        for (model, device), gpus in attempt.place.items():
            yield UsageKey(spec.queue, spec.user, model, spec.project, device), gpus

    def _hosts(self, placement: Placement) -> dict[str, dict[str, float]]:
        hosts: dict[str, dict[str, float]] = {}
        for member in placement.members:
            model = self._model_of_node(member.node) or ""
            of_model = hosts.setdefault(model, {"cpu_s": 0.0, "memory_GiB_s": 0.0})
            of_model["cpu_s"] += member.cpus
            of_model["memory_GiB_s"] += member.memory_GiB
        return hosts

    def _place(self, placement: Placement) -> Place:
        place: Place = defaultdict(float)
        for member in placement.members:
            model = self._model_of_node(member.node) or ""
            if member.gpus:
                place[model, ""] += len(member.gpus)
            for part in member.mig:
                place[model, part.profile] += int(part.profile.split("g")[0]) / 7
            if member.share is not None:
                place[model, "share"] += member.share.compute
        return dict(place)


def _move(attempt: Attempt, fact: Fact) -> None:
    match fact:
        case GangRunning():
            attempt.phase, attempt.has_run = "running", True
        case CheckpointRequested():
            attempt.phase = "saving"
        case StopDecided():
            attempt.phase = "stopping"
        case CheckpointRecorded():
            attempt.saved_at = fact.at


def _columns(attempt: Attempt) -> Iterator[str]:
    yield "allocated_gpu_s"
    if attempt.has_run:
        yield "used_gpu_s"
    if attempt.phase == "starting":
        yield "starting_gpu_s" if attempt.number == 1 else "restart_gpu_s"
    elif attempt.phase == "saving":
        yield "checkpoint_gpu_s"
    elif attempt.phase == "stopping":
        yield "restart_gpu_s"


def seconds_after(spans: Sequence[Span], moment: float) -> float:
    """The seconds of spans behind a moment."""
    return sum(max(0.0, b - max(a, moment)) for a, b in spans)


def overlap(span: Span, others: Sequence[Span]) -> float:
    """The seconds that a span has in common with others, which do not overlap."""
    return sum(max(0.0, min(span[1], b) - max(span[0], a)) for a, b in others)


def site_gpus(ledger: Ledger) -> dict[tuple[UsageKey, str], float]:
    """What GPUs are for that no gang holds, counted GPU by GPU; with free ones, and those of gangs that rest."""
    rooms = ledger.rooms()
    found: dict[tuple[UsageKey, str], float] = defaultdict(float)
    for node in rooms.fabric.nodes:
        index = rooms.fabric.index_of_node[node.name]
        machine = rooms.fabric.machine_of_node(index)
        key = UsageKey("", "", machine.gpu or "")
        found[key, "capacity_gpu_s"] += machine.gpus
        left = dict.fromkeys(range(machine.gpus), 1.0)
        for owner, members in rooms.owners.items():
            for member in members:
                for gpu, part in _parts(member) if member.node == node.name else ():
                    left[gpu] -= part
                    found[key, _purpose(ledger, owner)] += part
        for gpu, part in left.items():
            assert part > -1e-9, f"{node.name} has more of GPU {gpu} held than there is"
            purpose = "free_gpu_s" if _fits(rooms, index, gpu) else "stranded_gpu_s"
            found[key, purpose if rooms.usable_node[index] else "down_gpu_s"] += part
    return found


def _purpose(ledger: Ledger, owner: str) -> str:
    if owner in ledger.holding:
        return "rests" if ledger.holding[owner].suspended else "allocated_gpu_s"
    kinds = {"claim": "held_gpu_s", "reserve": "reserved_gpu_s", "site": "down_gpu_s"}
    return kinds[owner.split(":", maxsplit=1)[0]]


def _parts(member: MemberPlacement) -> Iterator[tuple[int, float]]:
    yield from ((gpu, 1.0) for gpu in member.gpus)
    for part in member.mig:
        yield part.gpu, 1 / 7 if part.profile == "the rest" else int(part.profile[0]) / 7
    if member.share is not None:
        yield member.share.gpu, member.share.compute


def _fits(rooms: Occupancy, node: int, gpu: int) -> bool:
    """Whether anything fits into what is left of a GPU: all of it, some instance, or the smallest share."""
    room = rooms.room_of_node(node)
    if room.microcpus <= 0 or room.memory_KiB <= 0:
        return False
    state = rooms.state_of_node(node)
    if state.free_mask() >> gpu & 1:
        return True
    table = state.rules.table
    for profile in table.profiles if table else ():
        for start in profile.starts:
            if not state.why_not_instance(MigPart(gpu, profile.name, start)):
                return True
    shares = [SharePart(gpu, 1e-6, 0.0, way) for way in state.rules.shares]
    return any(not state.why_not_share(one) and not state.may_be_kept_from(one) for one in shares)
