"""Who is at fault where a gang's collectives are short. Pure.

A figure is compared with the price of its place, or, where there is none, with the figures of the same kind. The rule
is one for members, domains and GPUs: *one stands out if even its best pair is short, while the pairs without it are
not*. A price alone blames nobody: if all are short, it may be the price that is wrong. So in a gang of two members a
short pair is reported, and no member is named.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from gantree.telemetry.checking.figures import COMPUTE, GANG, GPUS, MEMBER, MEMORY, PAIR, Figure
from gantree.text.words import plural

SHORT_OF_PRICE = 0.7
"""Of the priced figure; prices of published measurements are closer than that (docs/cost.md)."""
SHORT_OF_PEERS = 0.5
"""Of the median of the others, where there is no price: processes on shared cores vary much."""
STANDS_OUT = 0.8
"""Of the median of the others, beside a price."""


@dataclass(frozen=True, slots=True)
class Scores:
    """of_units: measured over expected, or measured where not priced, by pair of units, or by one alone."""

    of_units: Mapping[tuple[int, ...], float]
    priced: bool


@dataclass(frozen=True, slots=True)
class CheckedMember:
    """One member as the judge sees it: its node, its GPUs and NICs there, its domains as (tier, path), widest first."""

    node: str
    gpus: tuple[int, ...] = ()
    nics: tuple[str, ...] = ()
    domains: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """What is at fault: a node, a GPU of it, or a link by (tier, path); share is what is left of its rate."""

    node: str | None
    gpu: int | None
    link: tuple[str, str] | None
    share: float
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """faults are who was named; short are sentences on figures below what was expected; hung: one did not end."""

    faults: tuple[Fault, ...]
    short: tuple[str, ...]
    hung: bool


def judge(members: Sequence[CheckedMember], figures: Sequence[Figure]) -> Verdict:
    """Judge the figures of a gang."""
    inside = _faults_inside(members, figures)
    named = {members.index(member) for member in members if _is_named(member, inside)}
    between = _faults_between(members, [each for each in figures if not named & {*each.members}])
    faults = (*inside, *between)
    return Verdict(
        faults,
        tuple(_short_sentences(members, figures)),
        any(each.measured is None for each in figures),
    )


def _is_named(member: CheckedMember, faults: Iterable[Fault]) -> bool:
    return any(fault.node == member.node for fault in faults)


def odd_ones(scores: Scores) -> dict[int, float]:
    """Return who stands out among units, each with its best score over the median of the others' scores."""
    limit = STANDS_OUT if scores.priced else SHORT_OF_PEERS
    found = {}
    for unit in sorted({unit for key in scores.of_units for unit in key}):
        own = [score for key, score in scores.of_units.items() if unit in key]
        others = [score for key, score in scores.of_units.items() if unit not in key]
        if not _are_enough(others, own):
            continue
        usual = median(others)
        is_short = not scores.priced or max(own) < SHORT_OF_PRICE
        if is_short and max(own) < limit * usual:
            found[unit] = max(own) / usual
    return found


def _are_enough(others: Sequence[float], own: Sequence[float]) -> bool:
    """One pair beside two of its own is enough; alone, two others are, of which one may be odd itself."""
    return len(others) >= (1 if len(own) > 1 else 2)


def scores_of(figures: Iterable[Figure], kind: str) -> Scores:
    """Return the scores of one kind by its members, or by its GPUs; 0 for what did not end."""
    chosen = [each for each in figures if each.kind == kind]
    priced = bool(chosen) and all(each.expected for each in chosen)
    scores = {}
    for each in chosen:
        key = each.gpus if kind == GPUS else each.members
        divisor = each.expected if priced and each.expected else 1.0
        scores[key] = (each.measured or 0.0) / divisor
    return Scores(scores, priced)


def _faults_inside(
    members: Sequence[CheckedMember], figures: Sequence[Figure]
) -> tuple[Fault, ...]:
    """Nodes and GPUs that are short by themselves."""
    found: dict[int, Fault] = {}
    for number, share in odd_ones(scores_of(figures, MEMBER)).items():
        found[number] = _inside_fault(members[number], number, share, figures)
    for number in range(len(members)):
        own = [each for each in figures if each.kind == GPUS and each.members == (number,)]
        for gpu, share in odd_ones(scores_of(own, GPUS)).items():
            reason = f"its all-reduces reach {share:.0%} of those of the node's other GPUs"
            found[number] = _gpu_fault(members[number], gpu, share, reason)
    for number, fault in _slow_computers(members, figures).items():
        found.setdefault(number, fault)
    return tuple(found[number] for number in sorted(found))


def _inside_fault(
    member: CheckedMember, number: int, share: float, figures: Sequence[Figure]
) -> Fault:
    figure = next(each for each in figures if each.kind == MEMBER and each.members == (number,))
    reason = f"all-reduce inside {member.node}: {_amount(figure)}, {share:.0%} of the others"
    return Fault(member.node, None, None, share, reason)


def _gpu_fault(member: CheckedMember, local: int, share: float, reason: str) -> Fault:
    gpu = member.gpus[local] if local < len(member.gpus) else None
    name = "" if gpu is None else f"GPU {gpu}: "
    return Fault(member.node, gpu, None, share, name + reason)


def _slow_computers(
    members: Sequence[CheckedMember], figures: Sequence[Figure]
) -> dict[int, Fault]:
    """GPUs (or CPUs) of which arithmetic or memory is slow beside that of the gang's others."""
    found: dict[int, Fault] = {}
    for kind, does in ((COMPUTE, "computes"), (MEMORY, "copies memory")):
        found |= _slow_alone(members, [each for each in figures if each.kind == kind], does)
    return found


def _slow_alone(
    members: Sequence[CheckedMember], chosen: Sequence[Figure], does: str
) -> dict[int, Fault]:
    found = {}
    for each in chosen:
        others = [other.measured or 0.0 for other in chosen if other is not each]
        if len(others) < 2 or median(others) <= 0:
            continue
        share = (each.measured or 0.0) / median(others)
        limit = STANDS_OUT if members[each.members[0]].gpus else SHORT_OF_PEERS
        if share < limit:
            reason = f"{does} at {share:.0%} of the rate of the {plural(len(others), 'other')}"
            found[each.members[0]] = _gpu_fault(
                members[each.members[0]], each.gpus[0], share, reason
            )
    return found


def _faults_between(
    members: Sequence[CheckedMember], figures: Sequence[Figure]
) -> tuple[Fault, ...]:
    """Up-links of domains that all pairs across are short of; else nodes that are short with all others."""
    scores = scores_of(figures, PAIR)
    found: list[Fault] = []
    covered: set[int] = set()
    for tier, inhabitants in _domains(members):
        for number, share in odd_ones(_across(scores, inhabitants)).items():
            path, those = inhabitants[number]
            if len(those) > 1 and not covered & those:
                reason = f"pairs that leave it reach {share:.0%} of the others"
                found.append(Fault(None, None, (tier, path), share, reason))
                covered |= those
    for number, share in odd_ones(scores).items():
        if number not in covered:
            found.append(_network_fault(members[number], share))
    return tuple(found)


def _domains(
    members: Sequence[CheckedMember],
) -> list[tuple[str, list[tuple[str, set[int]]]]]:
    """By tier, widest first: each domain with its members, where a tier divides the gang."""
    found: dict[str, dict[str, set[int]]] = {}
    for number, member in enumerate(members):
        for tier, path in member.domains:
            found.setdefault(tier, {}).setdefault(path, set()).add(number)
    return [(tier, list(domains.items())) for tier, domains in found.items() if len(domains) > 1]


def _across(scores: Scores, domains: Sequence[tuple[str, set[int]]]) -> Scores:
    """The best score between each two domains, by their numbers."""
    domain_of = {member: number for number, (_, those) in enumerate(domains) for member in those}
    best: dict[tuple[int, ...], float] = {}
    for pair, score in scores.of_units.items():
        a, b = sorted(domain_of.get(member, -1) for member in pair)
        if a >= 0 and a != b:
            best[a, b] = max(best.get((a, b), 0.0), score)
    return Scores(best, scores.priced)


def _network_fault(member: CheckedMember, share: float) -> Fault:
    """Of a member with one NIC it is that NIC's link; of others it may be any of them, or the host."""
    reason = f"its all-reduces with each other member reach {share:.0%} of those without it"
    if len(member.nics) == 1:
        return Fault(None, None, ("nic", f"{member.node}/{member.nics[0]}"), share, reason)
    return Fault(member.node, None, None, share, reason)


def _short_sentences(members: Sequence[CheckedMember], figures: Sequence[Figure]) -> Iterable[str]:
    """Figures below the price of their place, in sentences. One pair that is slow beside others may be noise."""
    for each in figures:
        is_short = each.expected and (each.measured or 0.0) < SHORT_OF_PRICE * each.expected
        if is_short or each.measured is None:
            yield f"{name_of(each, members)}: {_amount(each)}"


def name_of(figure: Figure, members: Sequence[CheckedMember]) -> str:
    """What a figure is of, for people."""
    if figure.kind == GANG:
        return "all members"
    nodes = [members[number].node for number in figure.members]
    gpus = [members[figure.members[0]].gpus[local : local + 1] for local in figure.gpus]
    where = "-".join(nodes)
    return where + "".join(f" GPU {gpu[0]}" for gpu in gpus if gpu)


def _amount(figure: Figure) -> str:
    unit = "TFLOPS" if figure.kind == COMPUTE else "GB/s"
    if figure.measured is None:
        return "did not end"
    expected = f" of {figure.expected:.3g} expected" if figure.expected else ""
    return f"{figure.measured:.3g} {unit}{expected}"
