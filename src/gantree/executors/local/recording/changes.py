"""Differences between a record and the present, as sentences for a rerun of the job. Nothing is read here."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

SHOWN = 5
"""Distributions that are named."""
_FILES = {"executable": "the executable", "script": "the script"}
_WORDS = {"nccl": "NCCL", "cuda_runtime": "the CUDA runtime", "torch": "torch"}


def changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """Sentences on what differs between two records, or between a record and what is found now."""
    sentences = [
        *_one_word(then, now, "gantree", "gantree"),
        *_one_word(then, now, "policy", "the policy"),
    ]
    sentences += _drivers(then.get("nodes", {}), now.get("nodes", {}))
    for role, before in then.get("roles", {}).items():
        after = now.get("roles", {}).get(role)
        if after is not None:
            sentences += (f"role {role}: {each}" for each in _role(before, after))
    return tuple(sentences)


def _one_word(
    then: Mapping[str, Any], now: Mapping[str, Any], field: str, name: str
) -> Iterator[str]:
    before, after = then.get(field), now.get(field)
    if before != after:
        yield f"{name} was {before or 'not found'}, and is {after or 'not found'}"


def _drivers(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name in ("driver", "cuda"):
        before, after = _all_of(then, name), _all_of(now, name)
        if before != after:
            yield f"{name} was {before or 'not found'}, and is {after or 'not found'}"


def _all_of(nodes: Mapping[str, Any], name: str) -> str:
    return ", ".join(sorted({each[name] for each in nodes.values() if name in each}))


def _role(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for field, name in _FILES.items():
        before, after = then.get(field) or {}, now.get(field) or {}
        if before.get("sha256") != after.get("sha256"):
            yield f"{name} {before.get('path', after.get('path'))} has changed"
    for field, name in _WORDS.items():
        yield from _one_word(then, now, field, name)
    yield from _git(then.get("git"), now.get("git"))
    yield from _python(then.get("python"), now.get("python"))


def _git(then: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> Iterator[str]:
    before, after = (then or {}).get("revision"), (now or {}).get("revision")
    if before != after:
        yield f"the git revision was {before or 'not found'}, and is {after or 'not found'}"


def _python(then: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> Iterator[str]:
    then, now = then or {}, now or {}
    yield from _one_word(then, now, "version", "Python")
    if then.get("distributions_sha256") == now.get("distributions_sha256"):
        return
    before, after = (_versions(each.get("distributions", ())) for each in (then, now))
    names = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    shown = [f"{name} {before.get(name, 'none')} -> {after.get(name, 'none')}" for name in names]
    more = f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    yield f"installed distributions: {', '.join(shown[:SHOWN])}{more}"


def _versions(distributions: Sequence[str]) -> dict[str, str]:
    return {name: version for name, _, version in (each.partition("==") for each in distributions)}
