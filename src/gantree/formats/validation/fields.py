"""The kinds of value that fields of our files have: names, texts, counts, amounts, durations.

Each is a Pydantic type whose check says in words what is allowed; `forms` turns that into a Problem with file and
line. What a whole file looks like stands in `*_form`.
"""

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from gantree.formats.validation.problem_limit import count_mistakes
from gantree.model.jobs import COMPUTE_PARTITIONS, ISOLATIONS
from gantree.text.document import Rows, Truth, written
from gantree.text.hostlists import BadHostlist, count_nodes
from gantree.text.words import NAME_PATTERN, WORD_PATTERN, did_you_mean, shortened

MAX_COUNT = 10_000_000
MAX_DURATION_S = 100 * 365 * 86_400.0
MAX_DURATION_CHARS = 40
MAX_TEXT = 4096

_DURATION_PATTERN = (
    r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?"
    r"(?:(\d+(?:\.\d+)?)ms)?"
)
_DURATION = re.compile(_DURATION_PATTERN, re.ASCII)
_SECONDS = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)


def wrong(allowed: str, hint: str = "", found: str = "") -> PydanticCustomError:
    """Return the error that a check raises: what is allowed, and optionally what was found and a hint."""
    count_mistakes()
    context = {"allowed": allowed, "hint": hint, "found": found}
    return PydanticCustomError("wrong", "{allowed}", context)


_NUMBER_IN_QUOTES = re.compile(r"[+-]?[0-9]{1,20}(\.[0-9]{1,20})?")


def matching(pattern: str, allowed: str) -> Callable[[Any], str]:
    """Return a check that a value, as written, matches a pattern. Numbers may be names; truths may not."""
    whole = re.compile(pattern, re.ASCII)

    def check(value: Any) -> str:
        text = None if isinstance(value, Truth) else written(value)
        if text is None or not whole.fullmatch(text):
            raise wrong(allowed)
        return text

    return check


def number(least: float, most: float, allowed: str) -> Callable[[Any], float]:
    """Return a check for a number from least to most."""

    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise _no_number(value, allowed)
        if not value >= least:
            raise wrong(allowed)
        if value > most:
            raise wrong(_with_bound(allowed, "at most", f"{most:g}"))
        return float(value)

    return check


def whole(least: int, most: int, allowed: str) -> Callable[[Any], int]:
    """Return a check for a whole number from least to most."""

    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise _no_number(value, allowed)
        if value < least:
            raise wrong(_with_bound(allowed, "at least", str(least)))
        if value > most:
            raise wrong(_with_bound(allowed, "at most", str(most)))
        return int(value)

    return check


def _no_number(value: Any, allowed: str) -> PydanticCustomError:
    """The error for what is no number; of a number in quotes the quotes are shown."""
    if isinstance(value, str) and _NUMBER_IN_QUOTES.fullmatch(value):
        return wrong(allowed, "Write it without quotes.", found=f'`"{value}"`')
    return wrong(allowed)


def _with_bound(allowed: str, words: str, bound: str) -> str:
    """What is allowed, with the bound that a number is beyond where that does not name it."""
    return allowed if bound in allowed else f"{allowed}, {words} {bound}"


def one_of(words: Sequence[str]) -> Callable[[Any], str]:
    """Return a check that a value is one of these words."""

    def check(value: Any) -> str:
        if value in words:
            return str(value)
        raise wrong(f"one of {', '.join(words)}", did_you_mean(str(value), list(words)))

    return check


def compute_partition(value: Any) -> str:
    """Check for a mode that divides a GPU of AMD, as its tools print it or in lower case."""
    mode = str(value).lower()
    if mode in COMPUTE_PARTITIONS:
        return mode
    whole = " A GPU in spx is whole: gpus: 1." if mode == "spx" else ""
    raise wrong(f"one of {', '.join(COMPUTE_PARTITIONS)}", whole.strip())


def truth(value: Any) -> bool:
    """Check for true or false."""
    if not isinstance(value, Truth):
        raise wrong("true or false")
    return bool(value)


def text_value(value: Any) -> str:
    """Check for a scalar that becomes text as written (environment, labels, arguments)."""
    text = written(value)
    if text is None:
        hint = 'An empty text is written as "".' if value is None else ""
        raise wrong("text, a number, true or false", hint)
    if len(text) > MAX_TEXT or "\0" in text:
        raise wrong(f"text of at most {MAX_TEXT} characters without NUL", found="other text")
    return text


def plain_text(value: Any) -> str:
    """Check for text in one line that is not empty."""
    text = None if isinstance(value, Truth) else written(value)
    if not text or len(text) > MAX_TEXT or not text.isprintable():
        raise wrong("text in one line")
    return text


def duration(value: Any) -> float:
    """Return seconds of a number or of a text such as 90s, 15m, 1h30m, 7d, 250ms."""
    allowed = "a duration such as 90s, 15m, 1h30m or 7d, or a number of seconds"
    if isinstance(value, str):
        found = _DURATION.fullmatch(value) if 0 < len(value) <= MAX_DURATION_CHARS else None
        if not found:
            raise wrong(allowed)
        parts = zip(found.groups(), _SECONDS, strict=True)
        value = sum(float(part) * seconds for part, seconds in parts if part)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong(allowed)
    if not 0 <= value <= MAX_DURATION_S:
        raise wrong("a duration from 0s to 36500d")
    return float(value)


def duration_above_zero(value: Any) -> float:
    """Return seconds, more than none."""
    seconds = duration(value)
    if seconds == 0:
        raise wrong("a duration longer than 0s")
    return seconds


def command(value: Any) -> list[str]:
    """Check for a command: a list of words, never a line that a shell would have to split."""
    if isinstance(value, str):
        words = ", ".join(shortened(value, 200).split())
        raise wrong("a list of words", f"The command is not split by a shell; write [{words}].")
    if not isinstance(value, Rows) or not value:
        raise wrong("a list of words")
    return [text_value(word) for word in value]


def node_names(value: Any) -> list[str]:
    """Check for a hostlist or a list of them; they are not expanded here."""
    texts = list(value) if isinstance(value, Rows) else [value]
    if not texts:
        raise wrong("at least one node name")
    return [_hostlist(text) for text in texts]


def domain_or_nodes(value: Any) -> str:
    """Check for the path of a domain, or for a hostlist, which is not expanded here."""
    text = "" if isinstance(value, Truth) else written(value) or ""
    if not re.fullmatch(_DOMAIN_PATH, text, re.ASCII):
        try:
            count_nodes(text)
        except BadHostlist:
            raise wrong(
                "names joined by `/`, such as s0/l0, or a hostlist such as n[0-31]"
            ) from None
    return text


def _hostlist(value: Any) -> str:
    text = "" if isinstance(value, Truth) else written(value) or ""
    try:
        count_nodes(text)
    except BadHostlist as error:
        raise wrong(str(error)) from None
    return text


_SCALAR: list[str] = ["string", "integer", "number"]

Name = Annotated[
    str,
    PlainValidator(
        matching(
            NAME_PATTERN,
            "a name of letters, digits, `.`, `_` and `-`, at most 63, a letter or digit first",
        )
    ),
    WithJsonSchema({"type": _SCALAR, "pattern": f"^{NAME_PATTERN}$"}),
]
Word = Annotated[
    str,
    PlainValidator(matching(WORD_PATTERN, "a name of letters, digits, `.`, `_`, `:` and `-`")),
    WithJsonSchema({"type": _SCALAR, "pattern": f"^{WORD_PATTERN}$"}),
]
QueuePath = Annotated[
    str,
    PlainValidator(
        matching(
            f"{NAME_PATTERN}(/{NAME_PATTERN}){{0,15}}", "names joined by `/`, such as research/nlp"
        )
    ),
    WithJsonSchema({"type": _SCALAR, "pattern": f"^{NAME_PATTERN}(/{NAME_PATTERN})*$"}),
]
NicName = Annotated[
    str,
    PlainValidator(matching(r"[^\s,\[\]=^]{1,100}", "a device name such as mlx5_0")),
    WithJsonSchema({"type": _SCALAR}),
]
_DOMAIN_PATH = f"{WORD_PATTERN}(/{WORD_PATTERN}){{0,31}}"
DomainPath = Annotated[
    str,
    PlainValidator(matching(_DOMAIN_PATH, "names joined by `/`, such as s0/l0, or a node")),
    WithJsonSchema({"type": _SCALAR, "pattern": f"^{WORD_PATTERN}(/{WORD_PATTERN})*$"}),
]
DomainOrNodes = Annotated[
    str, PlainValidator(domain_or_nodes), WithJsonSchema({"type": _SCALAR, "minLength": 1})
]
Text = Annotated[str, PlainValidator(plain_text), WithJsonSchema({"type": _SCALAR})]
TextValue = Annotated[
    str, PlainValidator(text_value), WithJsonSchema({"type": [*_SCALAR, "boolean"]})
]
Count = Annotated[
    int,
    PlainValidator(whole(0, MAX_COUNT, "a whole number of 0 or more")),
    WithJsonSchema({"type": "integer", "minimum": 0}),
]
CountFromOne = Annotated[
    int,
    PlainValidator(whole(1, MAX_COUNT, "a whole number of 1 or more")),
    WithJsonSchema({"type": "integer", "minimum": 1}),
]
Amount = Annotated[
    float,
    PlainValidator(number(0, 1e15, "a number of 0 or more")),
    WithJsonSchema({"type": "number", "minimum": 0}),
]
AmountAboveZero = Annotated[
    float,
    PlainValidator(number(1e-12, 1e15, "a number above 0")),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0}),
]
Share = Annotated[
    float,
    PlainValidator(number(0, 1, "a number from 0 to 1")),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1}),
]
MIG_PROFILE = r"\d+(c\.\d+)?g\.\d+gb([+-]me|\+gfx|\+me\.all)?"
MigProfileName = Annotated[
    str,
    PlainValidator(matching(MIG_PROFILE, "a MIG profile such as 3g.40gb")),
    WithJsonSchema({"type": "string"}),
]
ComputePartition = Annotated[
    str,
    PlainValidator(compute_partition),
    WithJsonSchema({"enum": [*COMPUTE_PARTITIONS, *map(str.upper, COMPUTE_PARTITIONS)]}),
]
GpuPartName = Annotated[
    str,
    PlainValidator(
        matching(
            f"{MIG_PROFILE}|{'|'.join(COMPUTE_PARTITIONS)}",
            "a MIG profile such as 3g.40gb, or a compute partition mode such as cpx",
        )
    ),
    WithJsonSchema({"type": "string"}),
]
Isolation = Annotated[
    str, PlainValidator(one_of(ISOLATIONS)), WithJsonSchema({"enum": list(ISOLATIONS)})
]
YesNo = Annotated[bool, PlainValidator(truth), WithJsonSchema({"type": "boolean"})]
DURATION_SCHEMA = {
    "anyOf": [
        {"type": "number", "minimum": 0},
        {"type": "string", "pattern": f"^{_DURATION_PATTERN}$", "minLength": 2},
    ]
}
Duration = Annotated[float, PlainValidator(duration), WithJsonSchema(DURATION_SCHEMA)]
DurationAboveZero = Annotated[
    float, PlainValidator(duration_above_zero), WithJsonSchema(DURATION_SCHEMA)
]
Command = Annotated[
    list[str],
    PlainValidator(command),
    WithJsonSchema({"type": "array", "items": {"type": [*_SCALAR, "boolean"]}, "minItems": 1}),
]
NodeNames = Annotated[
    list[str],
    PlainValidator(node_names),
    WithJsonSchema(
        {"anyOf": [{"type": _SCALAR}, {"type": "array", "items": {"type": _SCALAR}, "minItems": 1}]}
    ),
]
