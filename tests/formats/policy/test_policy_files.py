"""policy.yaml: presets, what overrides them, and where it is wrong. Its queues: `test_queues`."""

import json
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.formats import read_policy
from gantree.formats.policy.form import (
    DEFRAGMENT,
    ORDER_KEYS,
    OVERTAKE,
    PLACEMENTS,
    PREEMPT_BY,
    VICTIMS,
)
from gantree.formats.policy.reader import PRESETS
from gantree.model.errors import BadFields, GantreeError
from gantree.model.jobs import Shape
from gantree.policy.rules import (
    DEFAULT_PRIORITIES,
    Backfill,
    Boost,
    Policy,
    Preemption,
    TimeSharing,
    UseWeights,
)
from gantree.topology.hardware.gpu_models import GPU_MODELS
from gantree.topology.hardware.prices import LIST_PRICES

EVERYTHING = """\
preset: gantree
priorities: {urgent: 900, notebook: 150}
order: [priority, share, attained, arrival]
attained_levels: [1h, 10h]
age_per_day: 2.5
half_life: 7d
boosts:
  - {by: 50, until: 2026-12-01, queue: research/nlp, user: ann, job: "llama-*"}
  - {by: -10, until: 2026-12-01T18:00:00+01:00}
gpu_weights: {T4-16GB: 0.1, H100-80GB: 2}
users: {share: true}
share_by: {idle: 2, lost_to_others: 0.5}
backfill: {overtake: any, reservations: 2, quantile: 0.5}
preempt: {by: order, who: {serving: [batch, research], urgent: []}, across: false}
evictions: {per_job_per_day: 4, min_run: 10m, grace: 60s, restart: 2m}
elastic: false
defragment: apply
time_sharing: {classes: notebook, quantum: 90s}
placement: random
placement_seed: 7
fragmentation_weight: 0.5
exact: 2s
"""


def test_every_rule_is_read() -> None:
    assert read_policy(EVERYTHING, "p.yaml") == Policy(
        priorities={**DEFAULT_PRIORITIES, "urgent": 900, "notebook": 150},
        order=("priority", "share", "attained", "arrival"),
        attained_levels=(3600.0, 36_000.0),
        age_per_day=2.5,
        half_life_s=7 * 86_400.0,
        boosts=(
            Boost(50, _unix_s(2026, 12, 1), "research/nlp", "ann", "llama-*"),
            Boost(-10, _unix_s(2026, 12, 1, 17)),
        ),
        gpu_weights={"T4-16GB": 0.1, "H100-80GB": 2.0},
        share_users=True,
        share_by=UseWeights(2.0, 0.5),
        backfill=Backfill("any", 2, 0.5),
        preemption=Preemption("order", {"serving": ("batch", "research"), "urgent": ()}, False),
        grace_s=60.0,
        min_run_s=600.0,
        evictions_per_day=4,
        restart_s=120.0,
        elastic=False,
        defragment="apply",
        time_sharing=TimeSharing(("notebook",), 90.0),
        placement="random",
        placement_seed=7,
        fragmentation_weight=0.5,
        exact_s=2.0,
    )


def _unix_s(year: int, month: int, day: int, hour: int = 0) -> float:
    return datetime(year, month, day, hour, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("backfill: none", "backfill", Backfill("none")),
        ("backfill: any", "backfill", Backfill("any")),
        ("backfill: {quantile: 1}", "backfill", Backfill(quantile=1.0)),
        ("backfill: {depth: 8}", "backfill", Backfill(depth=8)),
        ("preempt: {plans: 4}", "preemption", Preemption("priority", plans=4)),
        ("preempt: {victims: youngest}", "preemption", Preemption(victims="youngest")),
        ("preempt: true", "preemption", Preemption("priority")),
        ("preempt: {gain: 2.5}", "preemption", Preemption("priority", gain=2.5)),
        ("preempt: {by: none, gain: 2.5}", "preemption", Preemption("none")),
        ("preempt: false", "preemption", Preemption("none")),
        ("preempt: {across: false}", "preemption", Preemption("priority", {}, False)),
        ("preset: fair\nhalf_life: none", "half_life_s", None),
        ("evictions: {per_job_per_day: unlimited}", "evictions_per_day", None),
        ("evictions: {per_job_per_day: 0}", "evictions_per_day", 0),
        ("evictions: {leave_unwell: false}", "leave_unwell", False),
        ("evictions: {leave_degraded: false}", "leave_degraded", False),
        ("defragment: off", "defragment", "off"),
        ("gpu_weights: equal", "gpu_weights", {}),
        ("gpu_weights: {by: equal, T4: 1}", "gpu_weights", {"T4": 1.0}),
        ("preset: least-attained-service\nattained_levels: []", "attained_levels", ()),
        ("preset: srsf\npreempt: {across: false}", "preemption", Preemption("order", {}, False)),
        ("half_life:\norder:\nqueues:\nboosts:", "order", Policy().order),
        ("order: [arrival]", "order", ("arrival",)),
        ("preset: fair\nshare_by: useful", "share_by", UseWeights(0.0, 0.0)),
        ("preset: fair\nshare_by: {lost_to_others: 0}", "share_by", UseWeights(1.0, 0.0)),
        ("share_by: held", "share_by", UseWeights()),
    ],
)
def test_words_and_empty_lists_mean_what_they_say(text: str, field: str, value: object) -> None:
    assert getattr(read_policy(text, "p.yaml"), field) == value


@pytest.mark.parametrize(
    ("written", "moment"),
    [
        ("2026-12-01", _unix_s(2026, 12, 1)),
        ("2026-12-01T12:00", _unix_s(2026, 12, 1, 12)),
        ("2026-12-01T12:00:00Z", _unix_s(2026, 12, 1, 12)),
        ("2026-12-01T12:00:00-05:00", _unix_s(2026, 12, 1, 17)),
        ("2024-02-29", _unix_s(2024, 2, 29)),
    ],
)
def test_a_boost_ends_at_a_moment_in_utc(written: str, moment: float) -> None:
    (boost,) = read_policy(f"boosts: [{{by: 1, until: {written}}}]", "p.yaml").boosts
    assert boost.until_s == moment


def test_gpus_by_speed_count_what_their_data_sheets_say() -> None:
    weights = read_policy("gpu_weights: speed", "p.yaml").gpu_weights
    assert weights["A100-80GB"] == pytest.approx(312 / 2500, abs=1e-4)
    assert weights["T4"] == weights["T4-16GB"] == pytest.approx(65 / 2500, abs=1e-4)
    assert "K80-12GB" not in weights
    assert max(weights.values()) == 1


def test_gpus_by_price_count_what_they_cost_and_else_by_their_speed() -> None:
    weights = read_policy(
        "gpu_weights: {by: price, K80-12GB: 0.01, A100-40GB: 7}", "p.yaml"
    ).gpu_weights
    dearest = LIST_PRICES.quote("B300-288GB")
    assert dearest is not None
    for model in ("A100-80GB", "H100-80GB", "RTX8000-48GB"):
        quote = LIST_PRICES.quote(model)
        assert quote is not None
        assert weights[model] == pytest.approx(quote.USD_per_hour / dearest.USD_per_hour, abs=1e-4)
    assert weights["T4-16GB"] == pytest.approx(65 / 2500, abs=1e-4)
    assert (weights["K80-12GB"], weights["A100-40GB"]) == (0.01, 7.0)


def test_every_weight_of_the_catalogue_is_of_a_gpu_of_it() -> None:
    names = {name for model in GPU_MODELS.values() for name in (model.name, model.family)}
    for word in ("price", "speed"):
        weights = read_policy(f"gpu_weights: {word}", "p.yaml").gpu_weights
        assert set(weights) <= names
        assert all(0 < weight <= 1 for weight in weights.values())


classes = st.sampled_from(sorted(DEFAULT_PRIORITIES))
policies = st.builds(
    Policy,
    order=st.lists(st.sampled_from(ORDER_KEYS[:-1]), min_size=1, unique=True).map(tuple),
    attained_levels=st.lists(st.integers(1, 10**6).map(float), unique=True).map(sorted).map(tuple),
    age_per_day=st.floats(0, 1e6),
    stretch=st.floats(0, 1e6),
    half_life_s=st.none() | st.integers(1, 10**6).map(float),
    share_users=st.booleans(),
    backfill=st.builds(Backfill, st.sampled_from(OVERTAKE), st.integers(1, 99), st.floats(1e-6, 1)),
    preemption=st.builds(
        Preemption,
        st.sampled_from(PREEMPT_BY),
        st.dictionaries(classes, st.lists(classes).map(tuple)),
        st.booleans(),
        victims=st.sampled_from(VICTIMS),
    ),
    evictions_per_day=st.none() | st.integers(0, 100),
    elastic=st.booleans(),
    defragment=st.sampled_from(DEFRAGMENT),
    time_sharing=st.none()
    | st.builds(TimeSharing, st.lists(classes).map(tuple), st.integers(1, 600).map(float)),
    placement=st.sampled_from(PLACEMENTS),
    placement_seed=st.integers(0, 99),
)


def _written(policy: Policy) -> dict[str, Any]:
    """A policy as its file would have it."""
    sharing = policy.time_sharing
    budget = policy.evictions_per_day
    plain = (
        "order", "attained_levels", "stretch", "age_per_day", "elastic", "defragment", "placement",
        "placement_seed",
    )  # fmt: skip
    return {
        **{field: getattr(policy, field) for field in plain},
        "half_life": "none" if policy.half_life_s is None else policy.half_life_s,
        "users": {"share": policy.share_users},
        "backfill": {
            field.name: getattr(policy.backfill, field.name) for field in fields(Backfill)
        },
        "preempt": {
            "by": policy.preemption.by,
            "who": dict(policy.preemption.who),
            "across": policy.preemption.across,
            "gain": policy.preemption.gain,
            "plans": policy.preemption.plans,
            "victims": policy.preemption.victims,
        },
        "evictions": {"per_job_per_day": "unlimited" if budget is None else budget},
        "time_sharing": sharing and {"classes": sharing.classes, "quantum": sharing.quantum_s},
    }


@given(policies, st.sampled_from(sorted(PRESETS)))
def test_a_policy_that_is_written_in_full_is_the_same_over_every_preset(
    policy: Policy, preset: str
) -> None:
    base = replace(policy, gpu_weights=PRESETS[preset].gpu_weights)
    text = json.dumps({"preset": preset, **_written(policy)})
    assert read_policy(text, "p.yaml") == base


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_alone_is_a_whole_policy(name: str) -> None:
    assert read_policy(f"preset: {name}\n", "p.yaml") == PRESETS[name]


def test_the_rest_overrides_the_preset() -> None:
    text = (
        "preset: fifo\npriorities: {urgent: 900, batch: 5}\npreempt: true\n"
        "evictions: {per_job_per_day: 4, min_run: 10m, grace: 60s}\n"
    )
    expected = replace(
        PRESETS["fifo"],
        preemption=Preemption(by="priority"),
        priorities={**DEFAULT_PRIORITIES, "urgent": 900, "batch": 5},
        grace_s=60.0,
        min_run_s=600.0,
        evictions_per_day=4,
    )
    assert read_policy(text, "p.yaml") == expected


def test_what_a_site_prefers_of_places_is_read() -> None:
    text = (
        "fragmentation_weight: 1.5\ndemand:\n"
        "  - {each: {gpus: 1, cpus: 8}, weight: 6}\n"
        "  - {each: {mig: 3g.40gb}, gpu: A100-80GB, node_labels: {pool: a}}\n"
    )
    demand = (
        (Shape(1, 8.0), 6.0),
        (Shape(mig="3g.40gb", models=("A100-80GB",), labels=(("pool", "a"),)), 1.0),
    )
    policy = read_policy(text, "p.yaml")
    assert policy == replace(PRESETS["gantree"], fragmentation_weight=1.5, demand=demand)


@pytest.mark.parametrize(
    ("text", "placement"),
    [
        ("topology: false\n", "first-fit"),
        ("topology: true\n", "topology"),
        ("preset: first-fit\ntopology: true\n", "topology"),
        ("topology: false\nplacement: best-fit\n", "best-fit"),
        ("topology: true\nplacement: topology\n", "topology"),
    ],
)
def test_without_topology_is_an_older_word_for_first_fit(text: str, placement: str) -> None:
    assert read_policy(text, "p.yaml").placement == placement


def test_a_weight_of_nothing_is_no_missing_weight() -> None:
    assert read_policy("fragmentation_weight: 0\n", "p.yaml").fragmentation_weight == 0


@pytest.mark.parametrize(
    ("text", "line", "field", "words"),
    [
        ("preset: gantre\n", 1, "preset", "Did you mean `gantree`?"),
        ("preset: 3\n", 1, "preset", "`3`"),
        ("prest: fifo\n", 1, "prest", "Did you mean `preset`?"),
        ("preset: fifo\npriorities: {batch: high}\n", 2, "priorities.batch", "a whole number"),
        ("preset: fifo\npriorities: {batch: true}\n", 2, "priorities.batch", "`true`"),
        ("preset: fifo\npriorities: {a/b: 1}\n", 2, "priorities.a/b", "a name"),
        ("preset: fifo\npreempt: 1\n", 2, "preempt", "true or false"),
        ("preset: fifo\npreempt: yes\n", 2, "preempt", "true or false"),
        ("evictions:\n  grace: 1x\n", 2, "evictions.grace", "a duration"),
        ("evictions:\n  per_job_per_day: -1\n", 2, "evictions.per_job_per_day", "0 or more"),
        ("evictions:\n  minrun: 1m\n", 2, "evictions.minrun", "Did you mean `min_run`?"),
        ("age_per_day: 2e9\n", 1, "age_per_day", "a number of 0 or more, at most 1e+09"),
        ("fragmentation_weight: 11\n", 1, "fragmentation_weight", "a number from 0 to 10"),
        ("fragmentation_weight: heavy\n", 1, "fragmentation_weight", "`heavy`"),
        ("demand: {each: {gpus: 1}}\n", 1, "demand", "a list"),
        ("demand:\n  - {weight: 1}\n", 2, "demand[0].each", "required"),
        ("demand:\n  - {each: {}, weight: 0}\n", 2, "demand[0].weight", "above 0"),
        ("demand:\n  - {each: {gpus: 1, mig: 3g.40gb}}\n", 2, "demand[0].each.mig", "one of gpus, mig"),
        ("demand:\n  - {each: {mig: 3g.40gb}, gpu: T4-16GB}\n", 2, "demand[0].each.mig", "a GPU with MIG"),
        ("half_life: 7d\nprest: x\n", 2, "prest", "unknown field"),
        ("preset: fare\n", 1, "preset", "Did you mean `fair`?"),
        ("order: []\n", 1, "order", "at least one key"),
        ("order: [priority, shares]\n", 1, "order[1]", "Did you mean `share`?"),
        ("order: [share, priority, share]\n", 1, "order[2]", "each key once"),
        ("order:\n  - arrival\n  - share\n", 3, "order[1]", "arrival as the last key"),
        ("attained_levels: [1h, 30m]\n", 1, "attained_levels[1]", "increasing levels"),
        ("attained_levels: [0s]\n", 1, "attained_levels[0]", "longer than 0s"),
        ("half_life: never\n", 1, "half_life", "a duration"),
        ("half_life: 0\n", 1, "half_life", "longer than 0s"),
        ("age_per_day: -1\n", 1, "age_per_day", "0 or more"),
        ("boosts: [{by: 1}]\n", 1, "boosts[0].until", "required"),
        ("boosts: [{by: 1, until: 2026-02-30}]\n", 1, "boosts[0].until", "a date such as"),
        ("boosts: [{by: 1, until: tomorrow}]\n", 1, "boosts[0].until", "a date such as"),
        ("boosts: [{by: 1, until: 1796083200}]\n", 1, "boosts[0].until", "a date such as"),
        ("boosts: [{by: much, until: 2026-12-01}]\n", 1, "boosts[0].by", "a whole number"),
        ("boosts: [{by: 1, until: 2026-12-01, job: a/b}]\n", 1, "boosts[0].job", "a pattern"),
        ("gpu_weights: cost\n", 1, "gpu_weights", "one of price, speed, equal"),
        ("gpu_weights: {T4: -1}\n", 1, "gpu_weights.T4", "a number from 0"),
        ("gpu_weights: {T4: speed}\n", 1, "gpu_weights.T4", "a number"),
        ("gpu_weights: {T4: slow}\n", 1, "gpu_weights.T4", "one of"),
        ("gpu_weights: {by: 1}\n", 1, "gpu_weights.by", "one of price, speed, equal"),
        ("share_by: used\n", 1, "share_by", "one of held, useful"),
        ("half_life: 7d\nshare_by: {idle: 11}\n", 2, "share_by.idle", "from 0 to 10"),
        ("share_by: useful\n", 1, "share_by", "a half_life such as 7d"),
        ("preset: fair\nhalf_life: none\nshare_by: {idle: 2}\n", 3, "share_by", "a half_life such as 7d"),
        ("users: {share: yes}\n", 1, "users.share", "true or false"),
        ("backfill: all\n", 1, "backfill", "one of any, promised, none"),
        ("backfill: {reservations: 0}\n", 1, "backfill.reservations", "1 or more"),
        ("backfill: {quantile: 1.5}\n", 1, "backfill.quantile", "at most 1"),
        ("backfill: {overtake: all}\n", 1, "backfill.overtake", "any, promised, none"),
        ("preempt: {by: age}\n", 1, "preempt.by", "priority, order, none"),
        ("preempt:\n  who: {serving: [bach]}\n", 2, "preempt.who.serving[0]", "`batch`?"),
        ("preempt:\n  who: {serve: [batch]}\n", 2, "preempt.who.serve", "a class of priorities"),
        ("priorities: {serving: 4, batch: 2, own: 1}\npreempt: {who: {mine: [batch]}}\n", 2, "preempt.who.mine",
         "(research, batch, production, serving, own)"),
        ("evictions: {per_job_per_day: many}\n", 1, "evictions.per_job_per_day", "unlimited"),
        ("defragment: on\n", 1, "defragment", "off, plan, apply"),
        ("time_sharing: {classes: [notebook]}\n", 1, "time_sharing.classes[0]", "a class of"),
        ("time_sharing: {classes: batch, quantum: 0}\n", 1, "time_sharing.quantum", "longer than"),
        ("topology: 1\n", 1, "topology", "true or false"),
        ("placement: worst-fit\n", 1, "placement", "topology, first-fit, best-fit, random"),
        ("placement_seed: -1\n", 1, "placement_seed", "0 or more"),
        ("placement: best-fit\ntopology: true\n", 2, "topology", "`placement` alone"),
        ("placement: topology\ntopology: false\n", 2, "topology", "false beside `placement: topology`"),
        ("", 1, "document", "an empty file"),
        ("preset: fifo\n---\npreset: fifo\n", 3, "document", "a second document"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_with_its_line(text: str, line: int, field: str, words: str) -> None:
    with pytest.raises(BadFields) as caught:
        read_policy(text, "p.yaml")
    (problem,) = caught.value.problems
    assert (problem.line, problem.field) == (line, field)
    assert words in str(problem)


@pytest.mark.parametrize(
    "text", ["\ufeffpreset: fifo\n", "preset: fifo\r\n", "{preset: fifo}", "preset: 'fifo'"]
)
def test_byte_order_mark_line_ends_and_quotes_do_not_matter(text: str) -> None:
    assert read_policy(text, "p.yaml") == PRESETS["fifo"]


TREE = """\
queues:
  - name: research
    guarantee: {gpus: {any: 80, H100-80GB: 64}, cpus: 1000}
    lend: {gpus: 32}
    queues: [{name: nlp, limit: {gpus: 8}}, {name: vision, user: {most_running: 4}}]
  - {name: serving, cells: [{nvlink: 2}, {gpus: 16}]}
"""


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 3), st.text(max_size=3)), max_size=6)
)
def test_a_mutated_policy_is_read_or_refused_in_words(
    mutations: list[tuple[int, int, str]],
) -> None:
    text = EVERYTHING + TREE
    for place, length, new in mutations:
        start = place % len(text)
        text = text[:start] + new + text[start + length :]
    try:
        read_policy(text, "p.yaml")
    except GantreeError as error:
        assert str(error)


def test_what_could_not_be_read_makes_nothing_else_look_wrong() -> None:
    text = (
        "priorities: {urgent: high}\nqueues: [{name: a, guarantee: 8, lend: {gpus: 4}}, {nam: b}]\n"
        "boosts: [{by: 1, until: 2026-12-01, queue: b}]\n"
        "time_sharing: {classes: [urgent, 1/2]}\norder: [prio, arrival]\n"
    )
    with pytest.raises(BadFields) as caught:
        read_policy(text, "p.yaml")
    assert [problem.field for problem in caught.value.problems] == [
        "priorities.urgent",
        "queues[0].guarantee",
        "queues[1].name",
        "queues[1].nam",
        "time_sharing.classes[1]",
        "order[0]",
    ]
