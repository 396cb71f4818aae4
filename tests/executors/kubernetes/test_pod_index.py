"""Counts that are kept are those that are counted anew, and a gang's spread is right as it would be pod by pod."""

from collections import Counter
from itertools import permutations
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.executors.kubernetes.apiserver.objects import (
    LabelSelector,
    Node,
    Pod,
    SpreadConstraint,
)
from gantree.executors.kubernetes.apiserver.selectors import digest, matches
from gantree.executors.kubernetes.constraints import affinity, spread
from gantree.executors.kubernetes.constraints.pod_index import PodIndex
from gantree.executors.kubernetes.pods.pod_selectors import PodSelector
from support.examples import examples

ZONE = "zone"
ZONES = ("a", "b", "c")


def node(name: str, **labels: str) -> Node:
    told = {ZONE: name[0], **labels}
    return msgspec.convert({"metadata": {"name": name, "labels": told}}, Node)


def pod(uid: str, app: str = "web", leaving: bool = False, **spec: Any) -> Pod:
    metadata: dict[str, Any] = {"name": uid, "uid": uid, "namespace": "x", "labels": {"app": app}}
    if leaving:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


def selector(**labels: str) -> LabelSelector:
    return LabelSelector(match_labels=labels)


def evenly(skew: int, min_domains: int | None = None) -> dict[str, Any]:
    """The spec of a pod with one constraint over zones."""
    told = {"maxSkew": skew, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    chosen = {"labelSelector": {"matchLabels": {"app": "web"}}, "minDomains": min_domains}
    return {"topologySpreadConstraints": [{**told, **chosen}]}


def scene_of(*nodes: str) -> PodIndex:
    index = PodIndex()
    for name in nodes:
        index.update_node(name, node(name))
    return index


@pytest.mark.parametrize(
    ("told", "labels", "is_like"),
    [
        ({}, {"a": "1"}, True),
        ({"matchLabels": {"a": "1"}}, {"a": "1", "b": "2"}, True),
        ({"matchLabels": {"a": "1"}}, {"b": "2"}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]}, {"a": "1"}, True),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, {}, True),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {}, False),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {}, True),
        ({"matchExpressions": [{"key": "a", "operator": "Near"}]}, {"a": "1"}, False),
    ],
)
def test_labels_are_as_a_selector_asks(
    told: dict[str, Any], labels: dict[str, str], is_like: bool
) -> None:
    assert matches(msgspec.convert(told, LabelSelector), labels) is is_like
    assert not matches(None, labels)


def test_selectors_that_ask_the_same_have_one_name() -> None:
    assert digest(selector(a="1", b="2")) == digest(selector(b="2", a="1"))
    assert digest(selector(a="1")) != digest(selector(a="2"))


MOVES = st.lists(
    st.tuples(
        st.integers(0, 5), st.sampled_from((None, "a0", "b0")), st.sampled_from("xy"), st.booleans()
    ),
    max_size=12,
)


@given(MOVES)
@settings(max_examples=examples(60))
def test_a_census_that_is_kept_is_one_that_is_taken_anew(
    moves: list[tuple[int, str | None, str, bool]],
) -> None:
    kept = scene_of("a0", "b0")
    kinds = [
        PodSelector(frozenset({"x"}), selector(app=app), skip_terminating=skip_terminating)
        for app in "xy"
        for skip_terminating in (False, True)
    ]
    for kind in kinds:
        kept.counts_by_node(kind)
    there: dict[str, tuple[Pod, str]] = {}
    for number, where, app, leaving in moves:
        uid = f"p{number}"
        if where is None:
            kept.remove(uid)
            there.pop(uid, None)
        else:
            each = pod(uid, app, leaving)
            kept.place(each, where)
            there[uid] = (each, where)
    replacing = scene_of("a0", "b0")
    for each, where in there.values():
        replacing.place(each, where)
    for kind in kinds:
        assert kept.counts_by_node(kind) == replacing.counts_by_node(kind)
        assert kept.counts_in_domains(kind, ZONE) == replacing.counts_in_domains(kind, ZONE)


def pod_by_pod(before: Counter[str], gang: tuple[str, ...], skew: int, min_domains: int) -> bool:
    """Whether there is an order in which each pod of a gang may be bound, as upstream counts."""
    for order in set(permutations(gang)):
        counts = Counter({zone: before[zone] for zone in ZONES})
        for zone in order:
            least = 0 if len(ZONES) < min_domains else min(counts.values())
            if counts[zone] + 1 - least > skew:
                break
            counts[zone] += 1
        else:
            return True
    return False


@given(
    st.lists(st.sampled_from(ZONES), max_size=5),
    st.lists(st.sampled_from(ZONES), min_size=1, max_size=5),
    st.integers(1, 3),
    st.sampled_from((1, 4)),
)
@settings(max_examples=examples(100))
def test_a_gang_is_spread_right_exactly_if_its_pods_could_be_bound_one_by_one(
    before: list[str], gang: list[str], skew: int, min_domains: int
) -> None:
    index = scene_of(*(f"{zone}0" for zone in ZONES))
    spec = evenly(skew, min_domains)
    for number, zone in enumerate(before):
        index.place(pod(f"old-{number}"), f"{zone}0")
    (constraint,) = msgspec.convert(spec["topologySpreadConstraints"], tuple[SpreadConstraint, ...])
    first = pod("first", **spec)
    asked = [each for each, _ in spread.requirements(index, first, len(gang))]
    placed = [(pod(f"new-{number}", **spec), f"{zone}0") for number, zone in enumerate(gang)]
    for each, where in placed:
        index.place(each, where)
    is_right = not list(spread.objections(index, placed))
    assert is_right == pod_by_pod(Counter(before), tuple(gang), skew, min_domains)
    assert constraint.max_skew == skew
    if is_right:
        assert all(rule.holds({ZONE: zone}) for rule in asked for zone in gang), "barred in vain"


def away(app: str, **term: Any) -> dict[str, Any]:
    told = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": ZONE, **term}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [told]}
    return {"affinity": {"podAntiAffinity": required}}


@pytest.mark.parametrize(
    ("term", "is_away"),
    [
        ({}, True),
        ({"namespaces": ["y"]}, False),
        ({"namespaces": ["x", "y"]}, True),
        ({"namespaceSelector": {}}, True),
        ({"namespaceSelector": {"matchLabels": {"team": "a"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"team": "b"}}}, False),
        ({"labelSelector": None}, False),
    ],
)
def test_a_term_is_about_pods_of_the_namespaces_that_it_names(
    term: dict[str, Any], is_away: bool
) -> None:
    """Both ways: what a pod says that comes, and what one says that is there."""
    index = scene_of("a0", "b0")
    index.update_namespace("x", {"team": "a"})
    index.place(pod("db", "db"), "a0")
    asked = list(affinity.requirements(index, pod("p", **away("db", **term))))
    assert (asked != []) is is_away
    index.place(pod("lonely", "z", **away("web", **term)), "b0")
    assert (index.forbidden_domains(pod("p")) == {ZONE: {"b"}}) is is_away
    index.remove("lonely")
    assert index.forbidden_domains(pod("p")) == {}


def test_namespaces_that_get_other_labels_are_selected_anew() -> None:
    index = scene_of("a0")
    term = {"namespaceSelector": {"matchLabels": {"team": "a"}}}
    index.place(pod("lonely", "z", **away("web", **term)), "a0")
    assert index.forbidden_domains(pod("p")) == {}
    index.update_namespace("x", {"team": "a"})
    assert index.forbidden_domains(pod("p")) == {ZONE: {"a"}}
    index.update_namespace("x", {"team": "b"})
    assert index.forbidden_domains(pod("p")) == {}


def near_pod_by_pod(before: set[str], gang: tuple[str, ...]) -> bool:
    """Whether there is an order in which each pod of a gang that is near to its kind may be bound, as upstream does."""
    for order in set(permutations(gang)):
        there = set(before)
        for zone in order:
            if there and zone not in there:
                break
            there.add(zone)
        else:
            return True
    return False


@given(
    st.lists(st.sampled_from(ZONES), max_size=2),
    st.lists(st.sampled_from(ZONES), min_size=1, max_size=4),
)
@settings(max_examples=examples(100))
def test_a_gang_is_near_to_its_kind_exactly_if_its_pods_could_be_bound_one_by_one(
    before: list[str], gang: list[str]
) -> None:
    index = scene_of(*(f"{zone}0" for zone in ZONES))
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": ZONE}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    for number, zone in enumerate(before):
        index.place(pod(f"old-{number}"), f"{zone}0")
    spec: dict[str, Any] = {"affinity": {"podAffinity": required}}
    placed = [(pod(f"new-{number}", **spec), f"{zone}0") for number, zone in enumerate(gang)]
    for each, where in placed:
        index.place(each, where)
    is_right = not list(affinity.objections(index, placed))
    assert is_right == near_pod_by_pod(set(before), tuple(gang))
