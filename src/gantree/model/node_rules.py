"""Rules on nodes beyond equal labels: label expressions, and tolerated taints.

A shape selects nodes by labels, (key, value) pairs that a node must have. Three keys are not labels but rules, written
as text so that they are stored wherever labels are (job files, journals, refusals):

    gantree.nodes      "zone in (a,b) && !spot || pool in (c)"     alternatives of requirements on labels
    gantree.bars       "zone notin (a)"                            the same, by the cluster (`model.node_restrictions`)
    gantree.tolerates  "dedicated=ml:NoSchedule, maintenance, *"   taints that do not keep it away

The operators are those of Kubernetes' node affinity: in, notin, (there), !(not there), > and < (whole numbers). The
label key "metadata.name" is the node's name, and so is "kubernetes.io/hostname" where its labels say no other. A
tolerated taint may name its value and its effect, or neither; "*" is every taint.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

NODES_LABEL = "gantree.nodes"
NODE_RESTRICTIONS_LABEL = "gantree.bars"
TOLERATES_LABEL = "gantree.tolerates"
NAME_KEY, HOST_KEY = "metadata.name", "kubernetes.io/hostname"
KEEPS_AWAY = frozenset({"NoSchedule", "NoExecute"})
"""Effects of taints that keep members away; PreferNoSchedule does not."""

_RULES_KEPT = 4096
_KEY = r"[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?"
_REQUIREMENT = re.compile(
    rf"(?P<absent>!)?\s*(?P<key>{_KEY})"
    r"(?:\s+(?P<word>in|notin)\s*\((?P<values>[^()]*)\)|\s*(?P<compare>[<>])\s*(?P<number>-?[0-9]{1,18}))?"
)
_TOLERATION = re.compile(
    rf"(?P<key>\*|{_KEY})(?:=(?P<value>[A-Za-z0-9._-]*))?(?::(?P<effect>[A-Za-z]+))?"
)


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint, which keeps members off a node unless they tolerate it: key, value, effect, as in Kubernetes."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement on one label. operator is one of "in", "notin", "exists", "absent", ">" and "<"."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        match self.operator:
            case "exists":
                return self.key
            case "absent":
                return f"!{self.key}"
            case ">" | "<":
                return f"{self.key} {self.operator} {self.values[0]}"
            case _:
                return f"{self.key} {self.operator} ({','.join(self.values)})"

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels satisfy it; as in Kubernetes "notin" holds if the label is absent."""
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value in self.values
            case "notin":
                return value not in self.values
            case "exists":
                return value is not None
            case "absent":
                return value is None
            case _:
                return _compares(value, self.operator, int(self.values[0]))


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration: taints of a key ("*": any), and of a value and an effect if given."""

    key: str
    value: str | None = None
    effect: str | None = None

    def __str__(self) -> str:
        value = "" if self.value is None else f"={self.value}"
        effect = "" if self.effect is None else f":{self.effect}"
        return f"{self.key}{value}{effect}"

    def covers(self, taint: Taint) -> bool:
        """Return whether it tolerates a taint."""
        return (
            self.key in ("*", taint.key)
            and self.value in (None, taint.value)
            and self.effect in (None, taint.effect)
        )


Alternatives = tuple[tuple[Requirement, ...], ...]


def rule_text(alternatives: Alternatives) -> str:
    """The text of a rule; "" for one without alternatives, which admits no node."""
    return " || ".join(" && ".join(map(str, terms)) for terms in alternatives)


@lru_cache(maxsize=_RULES_KEPT)
def read_rule(text: str) -> Alternatives:
    """Parse a rule into alternatives. Raises ValueError with the reason."""
    return tuple(
        tuple(_requirement(term.strip()) for term in terms.split("&&"))
        for terms in (text.split("||") if text.strip() else ())
    )


@lru_cache(maxsize=_RULES_KEPT)
def read_tolerations(text: str) -> tuple[Toleration, ...]:
    """Parse tolerations. Raises ValueError with the reason."""
    return tuple(_toleration(word.strip()) for word in text.split(",") if word.strip())


def satisfies(name: str, labels: Mapping[str, str], rule: str) -> bool:
    """Return whether a node with this name and these labels satisfies an alternative of a rule."""
    told = {HOST_KEY: name, **labels, NAME_KEY: name}
    return any(all(each.holds(told) for each in terms) for terms in read_rule(rule))


def without_tolerations(labels: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The labels and rules by which nodes are chosen: what is tolerated is no request."""
    return tuple(each for each in labels if each[0] != TOLERATES_LABEL)


def tolerates(taints: tuple[Taint, ...], tolerations: str) -> bool:
    """Return whether these tolerations cover all taints that keep members away."""
    covered = read_tolerations(tolerations)
    return all(
        taint.effect not in KEEPS_AWAY or any(each.covers(taint) for each in covered)
        for taint in taints
    )


def _requirement(text: str) -> Requirement:
    match = _REQUIREMENT.fullmatch(text)
    if match is None or (match["absent"] and (match["word"] or match["compare"])):
        raise ValueError(
            f"{text!r} is no requirement on a label, such as `zone in (a,b)` or `!spot`"
        )
    if match["absent"]:
        return Requirement(match["key"], "absent")
    if match["compare"]:
        return Requirement(match["key"], match["compare"], (match["number"],))
    if match["word"]:
        values = tuple(value.strip() for value in match["values"].split(","))
        return Requirement(match["key"], match["word"], values)
    return Requirement(match["key"], "exists")


def _toleration(text: str) -> Toleration:
    match = _TOLERATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no toleration, such as `dedicated=ml:NoSchedule` or `*`")
    return Toleration(match["key"], match["value"], match["effect"])


def _compares(value: str | None, operator: str, bound: int) -> bool:
    try:
        number = int(value or "")
    except ValueError:
        return False
    return number > bound if operator == ">" else number < bound
