"""Anti-affinity to other jobs (`topology.apart`): the nodes that it excludes.

A domain is excluded as soon as a job with a matching name (of a rule with `at_most`: more than that) holds anything in
it. A preferred rule is tried as one that binds, with the fewest jobs first (`as_binding`). For a tier inside the node
the whole node is excluded, which is stricter than requested. The rule binds only the job that has it: matching jobs may
be placed in its domains later.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import translate

import numpy as np

from gantree.model.jobs import Apart, Job
from gantree.topology.fabric.fabric import BoolArray, Fabric, IntArray
from gantree.topology.occupancy.occupancy import Occupancy

MOST_LEVELS = 4
"""So many numbers of jobs in a domain are tried for a preferred rule, the lowest ones; then it is dropped."""
_CACHED = "the last copy without excluded nodes"


def without_excluded_domains(occupancy: Occupancy, apart: Sequence[Apart]) -> Occupancy:
    """Return the occupancy itself where there are no rules, else a copy in which excluded nodes are not usable.

    The copy is cached until the occupancy or the rules change. Do not change it.
    """
    if not apart:
        return occupancy
    kept = occupancy.indexes.get(_CACHED)
    if isinstance(kept, _CachedCopy) and (kept.version, kept.apart) == (occupancy.version, apart):
        return kept.without
    without = occupancy.copy()
    without.usable_node &= ~excluded_nodes(occupancy, apart)
    occupancy.indexes[_CACHED] = _CachedCopy(occupancy.version, tuple(apart), without)
    return without


def excluded_nodes(occupancy: Occupancy, apart: Sequence[Apart]) -> BoolArray:
    """Return the mask of excluded nodes, [node]."""
    fabric, out = occupancy.fabric, np.zeros(len(occupancy.fabric.nodes), dtype=np.bool_)
    for rule in apart:
        tier = _tier(fabric, rule)
        out |= (_jobs_in_domain(occupancy, rule, tier) > rule.at_most)[fabric.domain_of_node[tier]]
    return out


def as_binding(occupancy: Occupancy, job: Job) -> Iterator[Job]:
    """The job with its preferred rules as ones that bind, the strictest that may be kept first; last without them."""
    topology = job.topology
    rules = [rule for rule in topology.apart if rule.preferred]
    binding = tuple(rule for rule in topology.apart if not rule.preferred)
    if not rules:
        yield job
        return
    levels = [_levels(occupancy, rule) for rule in rules]
    for step in range(max(map(len, levels))):
        kept = tuple(
            replace(rule, preferred=False, at_most=of_rule[min(step, len(of_rule) - 1)])
            for rule, of_rule in zip(rules, levels, strict=True)
        )
        yield replace(job, topology=replace(topology, apart=(*binding, *kept)))
    yield replace(job, topology=replace(topology, apart=binding))


def _levels(occupancy: Occupancy, rule: Apart) -> list[int]:
    """The numbers of these jobs in a domain that occur on usable nodes, the lowest few, rising; 0 without any."""
    fabric = occupancy.fabric
    tier = _tier(fabric, rule)
    domains = fabric.domain_of_node[tier][occupancy.usable_node]
    return np.unique(_jobs_in_domain(occupancy, rule, tier)[domains])[:MOST_LEVELS].tolist() or [0]


def _tier(fabric: Fabric, rule: Apart) -> int:
    return fabric.tiers.index(rule.tier) if rule.tier in fabric.tiers else fabric.node_tier


def job_of(owner: str) -> str:
    """Return the job of an owner, without its prefix: "site:", "claim:" or a number and a colon."""
    prefix, colon, name = owner.partition(":")
    return name if colon and (prefix in ("site", "claim") or prefix.isdigit()) else owner


def _jobs_in_domain(occupancy: Occupancy, rule: Apart, tier: int) -> IntArray:
    """How many jobs of these names hold something in each domain of a tier, [domain]."""
    fabric, matches = occupancy.fabric, re.compile("|".join(map(translate, rule.jobs))).match
    number_of_job: dict[str, int] = {}
    nodes, jobs = list[int](), list[int]()
    for owner, members in occupancy.owners.items():
        if matches(job := job_of(owner)):
            number = number_of_job.setdefault(job, len(number_of_job))
            nodes += [fabric.index_of_node[member.node] for member in members]
            jobs += [number] * len(members)
    if not nodes:
        return np.zeros(fabric.domains(tier), dtype=np.int64)
    pairs = fabric.domain_of_node[tier][nodes] * len(number_of_job) + np.array(jobs)
    return np.bincount(np.unique(pairs) // len(number_of_job), minlength=fabric.domains(tier))


@dataclass(frozen=True, slots=True)
class _CachedCopy:
    """A copy for some rules, and the version of the occupancy that it was made from."""

    version: int
    apart: tuple[Apart, ...]
    without: Occupancy

    def check(self, occupancy: Occupancy) -> None:
        """AssertionError if the copy should be current and is not."""
        if self.version == occupancy.version:
            out = excluded_nodes(occupancy, self.apart)
            assert (self.without.usable_node == (occupancy.usable_node & ~out)).all(), "stale"
