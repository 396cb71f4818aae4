"""Values of Slurm's options as its manual pages write them: times, sizes, counts, GPUs, signals, arrays, dependencies.

Each function takes text and gives a value, or raises `BadValue` with what is allowed instead.
"""

import re
from dataclasses import dataclass

MAX_SECONDS = 100 * 365 * 86_400
SIGNAL_NUMBERS = {1: "SIGHUP", 3: "SIGQUIT", 10: "SIGUSR1", 12: "SIGUSR2"}
_DEFAULT_WARNING_S = 60
_MAX_WARNING_S = 65_535
_MAX_INDICES = 10_000
_NUMBER = r"\d{1,9}"
_TIME = re.compile(
    rf"(?:(?P<days>{_NUMBER})-(?P<dh>{_NUMBER})(?::(?P<dm>{_NUMBER})(?::(?P<ds>{_NUMBER}))?)?"
    rf"|(?P<h>{_NUMBER}):(?P<hm>{_NUMBER}):(?P<hs>{_NUMBER})|(?P<m>{_NUMBER})(?::(?P<s>{_NUMBER}))?)",
    re.ASCII,
)
_SIZE = re.compile(rf"({_NUMBER}(?:\.\d{{1,6}})?)([KMGT]?)B?", re.ASCII | re.IGNORECASE)
_GIB_OF_UNIT = {"K": 2.0**-20, "M": 2.0**-10, "": 2.0**-10, "G": 1.0, "T": 2.0**10}
_COUNT = re.compile(rf"({_NUMBER})([km]?)", re.ASCII | re.IGNORECASE)
_GPUS = re.compile(
    rf"(?:(?P<type>[A-Za-z_][\w.-]*)(?::(?P<n>{_NUMBER}))?|(?P<only>{_NUMBER}))", re.ASCII
)
_SIGNAL = re.compile(
    rf"(?:(?P<who>[RB]{{1,2}}):)?(?P<signal>[A-Z0-9]+)(?:@(?P<s>{_NUMBER}))?", re.ASCII
)
_INDICES = re.compile(rf"({_NUMBER})(?:-({_NUMBER})(?::({_NUMBER}))?)?", re.ASCII)
_SWITCHES = re.compile(rf"({_NUMBER})(?:@(.+))?", re.ASCII)
_FEATURE = re.compile(r"[A-Za-z0-9][\w.-]*(?:=[\w.:/-]+)?", re.ASCII)


class BadValue(ValueError):
    """A value that is not as documented; its text says what is allowed."""


@dataclass(frozen=True, slots=True)
class Gpus:
    """A number of GPUs, and the requested type, if any."""

    count: int
    type: str | None = None


@dataclass(frozen=True, slots=True)
class Warned:
    """A signal so many seconds before the end. to_shell: to the batch shell alone."""

    signal: str
    seconds: int
    to_shell: bool


def seconds(text: str) -> float | None:
    """Seconds of a time: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S; None for no limit (0, -1, UNLIMITED, INFINITE)."""
    if text.upper() in ("UNLIMITED", "INFINITE", "-1"):
        return None
    found = _TIME.fullmatch(text)
    if found is None:
        raise BadValue(
            "minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes, "
            "days-hours:minutes:seconds, 0 or UNLIMITED"
        )
    of = {name: int(value or 0) for name, value in found.groupdict().items()}
    hours = of["days"] * 24 + of["dh"] + of["h"]
    total = (hours * 60 + of["dm"] + of["hm"] + of["m"]) * 60 + of["ds"] + of["hs"] + of["s"]
    if total > MAX_SECONDS:
        raise BadValue("at most 36500 days, or UNLIMITED")
    return float(total) or None


def gib(text: str) -> float:
    """GiB of a size such as 64G or 1024 (megabytes, as Slurm counts without a unit). 0, all of a node, is refused."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise BadValue("a size such as 64G: a number with K, M, G or T; M where there is none")
    amount = float(found[1]) * _GIB_OF_UNIT[found[2].upper()]
    if amount == 0:
        raise BadValue("a size above 0; for a whole node, give its memory")
    return amount


def count(text: str) -> int:
    """A whole number of 1 or more; `k` and `m` stand for 1024 and 1048576, as in Slurm."""
    found = _COUNT.fullmatch(text)
    number = 0 if found is None else int(found[1]) * {"": 1, "k": 1 << 10, "m": 1 << 20}[found[2].lower()]  # fmt: skip
    if not 1 <= number <= 1_000_000:
        raise BadValue("a whole number from 1 to 1000000")
    return number


def node_range(text: str) -> tuple[int, int]:
    """Least and most nodes of `4` or `2-8`."""
    low, dash, high = text.partition("-")
    least = count(low)
    most = count(high) if dash else least
    if most < least:
        raise BadValue("a number of nodes, or an increasing range")
    return least, most


def gpus(text: str) -> Gpus:
    """GPUs of `4`, `h100:4` or `h100` (one of that type)."""
    found = _GPUS.fullmatch(text)
    if found is None:
        raise BadValue("a number of GPUs, alone or after one type: 4 or h100:4")
    if found["only"] is not None:
        return Gpus(int(found["only"]))
    return Gpus(int(found["n"] or 1), found["type"])


def gres(text: str) -> Gpus:
    """GPUs of `gpu:4`, `gpu:h100:4` or `gpu`; `none` is none. Other generic resources are refused."""
    if text.lower() == "none":
        return Gpus(0)
    kind, colon, rest = text.removeprefix("gres/").removeprefix("gres:").partition(":")
    if kind != "gpu":
        raise BadValue(
            "gpu:4 or gpu:TYPE:4; shares are `gpu_share`, other devices `devices` of a job file"
        )
    return gpus(rest) if colon else Gpus(1)


def signal(text: str) -> Warned:
    """A signal of `USR1@120`, `B:USR1@120`, `SIGUSR1` or `10@60`. Those that a job may declare for its checkpoint."""
    found = _SIGNAL.fullmatch(text.upper())
    allowed = ", ".join(sorted(SIGNAL_NUMBERS.values()))
    if found is None:
        raise BadValue(f"[B:]SIGNAL[@SECONDS] with one of {allowed}")
    word = found["signal"]
    name = SIGNAL_NUMBERS.get(int(word)) if word.isdigit() else f"SIG{word.removeprefix('SIG')}"
    ahead = _DEFAULT_WARNING_S if found["s"] is None else int(found["s"])
    if name is None or name not in SIGNAL_NUMBERS.values() or "R" in (found["who"] or ""):
        raise BadValue(f"[B:]SIGNAL[@SECONDS] with one of {allowed}")
    if ahead > _MAX_WARNING_S:
        raise BadValue(f"at most {_MAX_WARNING_S} seconds")
    return Warned(name, ahead, found["who"] == "B")


def array(text: str) -> tuple[str, int | None]:
    """Indices as a job file writes them, and how many may run at once (None: all), of `0-9:3,12%4`."""
    indices, percent, at_once = text.partition("%")
    found: list[int] = []
    for part in indices.split(","):
        match = _INDICES.fullmatch(part)
        if match is None or (match[3] is not None and int(match[3]) == 0):
            raise BadValue("indices such as 0-15, 1,3,5, 0-15:4, with %4 behind them")
        low, high = int(match[1]), int(match[2] or match[1])
        if high < low or (high - low) // int(match[3] or 1) >= _MAX_INDICES:
            raise BadValue(f"increasing ranges, at most {_MAX_INDICES} indices")
        found += range(low, high + 1, int(match[3] or 1))
    if len(set(found)) != len(found) or len(found) > _MAX_INDICES:
        raise BadValue(f"each index once, at most {_MAX_INDICES} of them")
    return _folded(sorted(found)), count(at_once) if percent else None


def _folded(numbers: list[int]) -> str:
    """Numbers in order as ranges: 0-3,7."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in spans)


def dependency(text: str) -> list[str]:
    """Jobs that must have succeeded, of `afterok:a:b,afterok:c`."""
    jobs: list[str] = []
    for part in text.split(","):
        kind, colon, names = part.partition(":")
        words = names.split(":")
        if kind != "afterok" or not colon or not all(words) or "?" in part or "+" in part:
            raise BadValue(
                "afterok:JOB[:JOB...], several with commas: a job starts once those have succeeded"
            )
        jobs += words
    return jobs


def switches(text: str) -> tuple[int, float | None]:
    """At most so many leaf switches, and how long to wait for that (None: as long as it takes), of `1@30:00`."""
    found = _SWITCHES.fullmatch(text)
    if found is None or int(found[1]) == 0:
        raise BadValue("a number of switches of 1 or more, with @TIME behind it")
    return int(found[1]), None if found[2] is None else seconds(found[2])


def features(text: str) -> dict[str, str]:
    """Labels of `a&b`: a feature is the label of that name with the value true; `name=value` is that label."""
    labels: dict[str, str] = {}
    for word in re.split("[&,]", text):
        if _FEATURE.fullmatch(word) is None:
            raise BadValue("features joined by `&`; no |, [], () and *")
        name, equals, value = word.partition("=")
        labels[name] = value if equals else "true"
    return labels
