"""Caches by pod template: controllers make hundreds of pods that differ in their names only.

What follows from a pod's spec, labels, annotations, namespace and claims alone is worked out for the first of them and
kept for the others. Two pods are of one template where all of these are equal, however they came to be; nothing is
believed that somebody says of them. Not for what hangs on a pod's name, uid, owner or status.
"""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar

import msgspec

from gantree.executors.kubernetes.apiserver.objects import Pod, PodSpec, once_per_pod

T = TypeVar("T")
TEMPLATES_KEPT = 2048
"""Of so many templates what was worked out is kept; the one that was not asked for the longest goes first."""

_encode = msgspec.msgpack.Encoder().encode


def once_per_template(work_out: Callable[[Pod], T]) -> Callable[[Pod], T]:
    """What follows from a pod's template alone is worked out once for all pods of it."""
    name = work_out.__qualname__

    @wraps(work_out)
    def known(pod: Pod) -> T:
        kept: dict[str, T] = kept_of(pod)
        if name not in kept:
            kept[name] = work_out(pod)
        return kept[name]

    return known


@once_per_pod
def kept_of(pod: Pod) -> dict[str, Any]:
    """Cached values of a pod's template, added by the functions that compute them."""
    meta = pod.metadata
    said = (meta.namespace, meta.labels, meta.annotations, _shared(pod.spec), pod.claimed)
    return _kept(_encode(said))


@lru_cache(maxsize=TEMPLATES_KEPT)
def _kept(template: bytes) -> dict[str, Any]:
    """A place for what is worked out about a template."""
    return {}


def _shared(spec: PodSpec) -> PodSpec:
    """A spec without volumes that are no claims: that of its account's token has a name of its own in each pod."""
    claims = tuple(
        each
        for each in spec.volumes
        if each.persistent_volume_claim is not None or each.ephemeral is not None
    )
    return spec if claims == spec.volumes else msgspec.structs.replace(spec, volumes=claims)
