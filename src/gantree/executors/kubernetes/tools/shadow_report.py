"""The report of a dry run: for each gang, when and where gantree would have started it, and when and where it started.

A gang has started once all its pods had a node. GPU time that a scheduler let stand idle by gangs of which only a part
had one is told apart from GPUs that nobody held. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from gantree.executors.kubernetes.nodes.site import site_of
from gantree.executors.kubernetes.tools.shadow_tally import (
    BindingTimes,
    GpuTime,
    ShadowGang,
    ShadowPod,
    ShadowTally,
)
from gantree.model.errors import BadInput

Json = dict[str, Any]
Places = Mapping[str, Mapping[str, str]]
"""By node, its domain in each tier."""


@dataclass(slots=True)
class Reporter:
    """Makes reports; a site that has not changed is not read anew, for that takes a second for thousands of nodes."""

    shadow_of: str
    levels: Sequence[str] = ()
    _edition: int = -1
    _site: tuple[Places, int] = ({}, 0)

    def report(self, tally: ShadowTally) -> Json:
        """What a dry run has found up to the moment to which the tally has advanced."""
        if tally.site_edition != self._edition:
            self._site, self._edition = _site(tally, self.levels), tally.site_edition
        return report_of(tally, self.shadow_of, *self._site)


def report_of(tally: ShadowTally, shadow_of: str, places: Places, gpus: int) -> Json:
    """The report, where a site has these places and so many GPUs."""
    gangs = [_gang(gang, places) for gang in tally.gangs]
    return {
        "scheduler": shadow_of,
        "began_at": tally.began_at,
        "until": tally.now,
        "totals": _totals(tally, gangs, gpus),
        "gangs": gangs,
    }


def _site(tally: ShadowTally, levels: Sequence[str]) -> tuple[Places, int]:
    try:
        cluster = site_of("cluster", tally.nodes.values(), levels).cluster
    except BadInput:
        return {}, 0
    gpus = sum(cluster.machines[node.machine].gpus for node in cluster.nodes)
    places = {
        node.name: {**dict(zip(cluster.tiers, node.at, strict=False)), "node": node.name}
        for node in cluster.nodes
    }
    return places, gpus


def _gang(gang: ShadowGang, places: Places) -> Json:
    namespace, name, _ = gang.key
    seen_at = min(shadow_pod.seen_at for shadow_pod in gang.pods)
    return {
        "gang": f"{namespace}/{name}",
        "pods": len(gang.pods),
        "gpus": sum(shadow_pod.gpus for shadow_pod in gang.pods),
        "seen_at": seen_at,
        "theirs": _side(gang, [shadow_pod.theirs for shadow_pod in gang.pods], seen_at, places),
        "ours": {
            **_side(gang, [shadow_pod.ours for shadow_pod in gang.pods], seen_at, places),
            "stops": max(shadow_pod.stops for shadow_pod in gang.pods),
        },
    }


def _side(gang: ShadowGang, sides: Sequence[BindingTimes], seen_at: float, places: Places) -> Json:
    """What one scheduler did with a gang; of one that has not started whole, its wait is not known yet."""
    moments = [side.first_at for side in sides if side.first_at is not None]
    started_at = max(moments) if len(moments) == len(sides) else None
    nodes = [side.node for side in sides if side.node]
    tiers = list(dict.fromkeys(tier for node in nodes for tier in places.get(node, ())))
    return {
        "started_at": started_at,
        "wait_s": None if started_at is None else round(started_at - seen_at, 3),
        "nodes": nodes,
        "domains": {
            tier: len({places[node][tier] for node in nodes if tier in places.get(node, ())})
            for tier in tiers
        },
        "gpu_s_of_a_part": round(_of_a_part(gang.pods, sides, started_at), 3),
    }


def _of_a_part(
    pods: Sequence[ShadowPod], sides: Sequence[BindingTimes], started_at: float | None
) -> float:
    """GPU-seconds for which pods of a gang held GPUs and waited for the others."""
    until = started_at
    if until is None:
        ends = [shadow_pod.ended_at for shadow_pod in pods if shadow_pod.ended_at is not None]
        until = max(ends) if len(ends) == len(pods) else None
    if until is None:
        return 0.0
    return sum(
        shadow_pod.gpus * max(0.0, until - side.first_at)
        for shadow_pod, side in zip(pods, sides, strict=True)
        if side.first_at is not None
    )


def _totals(tally: ShadowTally, gangs: Sequence[Json], gpus: int) -> Json:
    both = [
        each for each in gangs if None not in (each["ours"]["wait_s"], each["theirs"]["wait_s"])
    ]
    of_several = [each for each in both if each["pods"] > 1]
    return {
        "gangs": len(gangs),
        "gpus": gpus,
        "started_by_both": len(both),
        "earlier": sum(each["ours"]["wait_s"] < each["theirs"]["wait_s"] for each in both),
        "later": sum(each["ours"]["wait_s"] > each["theirs"]["wait_s"] for each in both),
        "theirs": _of_side("theirs", tally, tally.theirs, gangs, both, of_several, gpus),
        "ours": {
            **_of_side("ours", tally, tally.ours, gangs, both, of_several, gpus),
            "stops": sum(each["ours"]["stops"] for each in gangs),
        },
        "writes_withheld": dict(sorted(tally.withheld.items())),
    }


def _of_side(
    side: str,
    tally: ShadowTally,
    held: GpuTime,
    gangs: Sequence[Json],
    both: Sequence[Json],
    of_several: Sequence[Json],
    gpus: int,
) -> Json:
    lasted_s = tally.now - tally.began_at
    tiers = list(dict.fromkeys(tier for each in of_several for tier in each[side]["domains"]))
    return {
        "started": sum(each[side]["wait_s"] is not None for each in gangs),
        "wait_s": round(fmean(each[side]["wait_s"] for each in both), 3) if both else None,
        "domains": {
            tier: round(fmean(each[side]["domains"].get(tier, 0) for each in of_several), 3)
            for tier in tiers
        },
        "gpu_s_idle": round(max(0.0, gpus * lasted_s - held.gpu_s), 3),
        "gpu_s_of_a_part": round(sum(each[side]["gpu_s_of_a_part"] for each in gangs), 3),
    }
