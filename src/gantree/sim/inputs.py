"""Inputs of a simulation as its results name them: version, cluster, trace, policy, options and seed, with digests.

Results with the same digests of cluster and trace can be compared (`gantree compare`). A digest is over values, not
over files: it is the same for a trace in CSV and in gzipped CSV, and for a cluster file with other comments. Fields
that have their default are left out of it, so that a field that a later version adds changes no digest.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from enum import Enum
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from gantree import __version__
from gantree.formats.traces import TraceJob
from gantree.model.cluster import Cluster
from gantree.policy.rules import Policy

DIGEST_DIGITS = 16
"""Hexadecimal digits of a digest: 64 bits, for inputs that nobody forges."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What was run. options are what of the model of running is on, seed that of what it draws (None: nothing)."""

    cluster: str
    cluster_digest: str
    trace: str
    trace_digest: str
    trace_jobs: int
    policy: str
    policy_digest: str
    seed: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    version: str = __version__

    def document(self) -> dict[str, Any]:
        """The object `inputs` of summary.json."""
        return {
            "version": self.version,
            "cluster": {"name": self.cluster, "digest": self.cluster_digest},
            "trace": {
                "name": self.trace,
                "digest": self.trace_digest,
                "jobs": self.trace_jobs,
            },
            "policy": {"name": self.policy, "digest": self.policy_digest},
            "options": dict(self.options),
            "seed": self.seed,
        }


class CountedTrace:
    """Passes the rows of a trace on, and knows their number and digest afterwards: a trace may be read only once."""

    def __init__(self, rows: Iterable[TraceJob]) -> None:
        self._rows = rows
        self._digest = sha256()
        self.jobs = 0

    def __iter__(self) -> Iterator[TraceJob]:
        for row in self._rows:
            self.jobs += 1
            self._digest.update(_text(row).encode())
            yield row

    @property
    def digest(self) -> str:
        """The digest of the rows that were passed on so far."""
        return self._digest.hexdigest()[:DIGEST_DIGITS]


def inputs_of(
    cluster: Cluster,
    trace: CountedTrace,
    policy: Policy,
    *,
    trace_name: str,
    policy_name: str,
    seed: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> Inputs:
    """The inputs of a run that has read all it needs of its trace."""
    return Inputs(
        cluster=cluster.name,
        cluster_digest=digest_of(cluster),
        trace=trace_name,
        trace_digest=trace.digest,
        trace_jobs=trace.jobs,
        policy=policy_name,
        policy_digest=digest_of(policy),
        seed=seed,
        options=options or {},
    )


def name_of(file: str | Path) -> str:
    """What results call a file: its name without directories, and without `.gz`, which changes nothing in it."""
    return Path(file).name.removesuffix(".gz")


def digest_of(value: object) -> str:
    """The digest of plain values: dataclasses, mappings, sequences, sets, texts, numbers."""
    return sha256(_text(value).encode()).hexdigest()[:DIGEST_DIGITS]


def _text(value: object) -> str:
    """One text for equal values, another for any others; mappings and sets in one order."""
    if is_dataclass(value) and not isinstance(value, type):
        told = ",".join(
            f"{name}={_text(part)}"
            for name, default in _defaults(type(value))
            if (part := getattr(value, name)) != default
        )
        return f"{type(value).__name__}({told})"
    if isinstance(value, Mapping):
        return "{" + ",".join(sorted(f"{_text(k)}:{_text(v)}" for k, v in value.items())) + "}"
    if isinstance(value, tuple | list):
        return "(" + ",".join(map(_text, value)) + ")"
    if isinstance(value, set | frozenset):
        return "<" + ",".join(sorted(map(_text, value))) + ">"
    return _plain_text(value)


def _plain_text(value: object) -> str:
    if isinstance(value, Enum):
        return repr(value.value)
    if isinstance(value, float) and value.is_integer():
        return repr(int(value))
    return repr(value)


@cache
def _defaults(kind: type) -> tuple[tuple[str, object], ...]:
    """The fields of a dataclass that are part of what it is equal by, with their defaults (`MISSING`: none)."""
    return tuple((each.name, _default(each)) for each in fields(kind) if each.compare)


def _default(each: Field[Any]) -> object:
    if each.default_factory is not MISSING:
        return each.default_factory()
    return each.default
