"""What pods only prefer of other pods: preferred affinity to pods and away from them, spreads with ScheduleAnyway.

They are company to the core (`gantree.model.jobs.Company`). It counts those of a pod's own kind itself, by their
devices (`kin`); others of the kind, and pods that for their part prefer something of pods like this one, are counted
as they are when the gang is handed in. As upstream both directions count: preferences of pods that are there, and
each that is there and must be near to this one as a weight of one. Members of a gang do not count each other, and
the first pod of a role speaks for all.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.constraints import spread
from gantree.executors.kubernetes.constraints.pod_index import Scene
from gantree.executors.kubernetes.constraints.preferred_affinity_index import Name
from gantree.executors.kubernetes.pods.pod_selectors import Kind
from gantree.executors.kubernetes.pods.self_affinity import kin_of_spread, kin_of_term, spreads_of
from gantree.model.jobs import Company

BOTH_WAYS = 2
"""A pod of the same kind prefers the same of this one."""


def company_of(scene: Scene, pod: Pod) -> tuple[Company, ...]:
    """What a pod prefers of others, and others of it, as they are now."""
    return (*_of_terms(scene, pod), *_of_spreads(scene, pod), *_of_others(scene, pod))


def _of_terms(scene: Scene, pod: Pod) -> Iterator[Company]:
    for weight, term in pod.spec.leanings:
        key, kin = term.topology_key, kin_of_term(pod, term)
        there = _in_domains(scene, key, scene.census(scene.kind(term, pod, kin)))
        yield Company(key, kin, weight * BOTH_WAYS if kin else weight, there)


def _of_spreads(scene: Scene, pod: Pod) -> Iterator[Company]:
    for each in spreads_of(pod):
        kin, kind = kin_of_spread(pod, each), spread.kind_of(pod, each)
        others = Kind(kind.namespaces, kind.selector, kin, kind.stay)
        there = _in_domains(scene, each.topology_key, scene.census(others))
        yield Company(each.topology_key, kin, 1, there, spread=True)


def _of_others(scene: Scene, pod: Pod) -> Iterator[Company]:
    if not scene.leanings.are_there:
        return
    own: set[Name] = {
        (term.topology_key, scene.kind(term, pod).name)
        for _, term in pod.spec.leanings
        if kin_of_term(pod, term)
    }
    for key, weight_on_node in scene.leanings.towards(pod, own):
        yield Company(key, "", 1, _in_domains(scene, key, weight_on_node))


def _in_domains(scene: Scene, key: str, on_node: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Sums by the value of a label; nodes without it are in no domain."""
    sums: Counter[str] = Counter()
    for node, count in on_node.items():
        value = scene.domain(node, key)
        if value is not None:
            sums[value] += count
    return tuple(sorted((value, count) for value, count in sums.items() if count))
