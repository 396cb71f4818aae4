"""`kind: service` in a job file: what a good document means, and where a bad one is wrong."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.formats import read_job, read_submission, read_submission_objects
from gantree.model.errors import BadFields
from gantree.model.jobs import Job, Restarts
from gantree.model.replicas import Readiness
from gantree.model.services import (
    ADDITIVE,
    METRICS,
    Autoscaling,
    ReplicaCount,
    Routing,
    ScaleSteps,
    ScaleTarget,
    ServiceSpec,
    Update,
)
from support.examples import examples
from support.yaml_text import read_yaml_documents

LEAST = "kind: service\nname: chat\ngang: [{role: server, members: 1, run: [./serve]}]\n"
FULL = """\
kind: service
name: chat
queue: serving
user: ann
gang:
  - {role: server, members: 1, each: {gpus: 1}, run: [./serve], env: {A: "1"}}
replicas: {min: 1, max: 8, floor: 2, spare: 1}
port: 8000
ready: {http: "/health?deep=1", every: 500ms, timeout: 2s, failures: 5, within: 20m}
update: {surge: 2, unavailable: 1}
drain: 45s
spread: {tier: leaf, required: true}
scale:
  on:
    - {metric: concurrency, target: 8}
    - {metric: ttft_p99, target: 500ms}
    - {query: sum(x), target: 10, per_replica: false}
  every: 5s
  tolerance: 0.2
  up: {stabilise: 1s, at_most: 4, per: 30s}
  down: {stabilise: 2m}
  to_zero: 3m
  predict: true
route: {models: [llama, big, llama], concurrency: 32, queue: 7, wait: 9s, timeout: 1m, affinity: prefix}
"""


def test_a_service_is_read_in_full() -> None:
    read = read_submission(FULL, "chat.yaml")
    (service,) = read.services
    assert read.jobs == ()
    assert service.replica.name == service.name == "chat"
    assert (service.replica.queue, service.replica.user) == ("serving", "ann")
    targets = (
        ScaleTarget("concurrency", 8.0),
        ScaleTarget("ttft_p99", 0.5),
        ScaleTarget("", 10.0, "sum(x)", per_replica=False),
    )
    assert service == ServiceSpec(
        "chat",
        service.replica,
        ReplicaCount(1, 8, 2, 1),
        8000,
        Readiness("/health?deep=1", 0.5, 2.0, 5, 1200.0),
        Update(2, 1),
        45.0,
        "leaf",
        spread_required=True,
        scaling=Autoscaling(
            targets, 5.0, 0.2, ScaleSteps(1.0, 4, 30.0), ScaleSteps(120.0), 180.0, predict=True
        ),
        routing=Routing(("llama", "big"), 32, 7, 9.0, 60.0, "prefix"),
    )


def test_a_service_that_says_nothing_has_the_defaults() -> None:
    (service,) = read_submission(LEAST, "chat.yaml").services
    assert service == ServiceSpec(
        "chat", Job("chat", service.replica.roles, priority="serving", restarts=Restarts())
    )


@pytest.mark.parametrize(
    ("written", "count"),
    [
        ("3", ReplicaCount(3, 3)),
        ("{min: 3}", ReplicaCount(3, 3)),
        ("{max: 3}", ReplicaCount(1, 3)),
        ("{min: 0}", ReplicaCount(0, 1)),
        ("{min: 0, max: 2, spare: 1}", ReplicaCount(0, 2, spare=1)),
    ],
)
def test_replicas_may_be_written_short(written: str, count: ReplicaCount) -> None:
    (service,) = read_submission(f"{LEAST}replicas: {written}\n", "chat.yaml").services
    assert service.replicas == count


@pytest.mark.parametrize(
    ("written", "ports"),
    [
        ("true", (0, 0)),
        ("{port: 5557}", (5557, None)),
        ("{port: 5557, replay_port: 5558}", (5557, 5558)),
        ("{replay_port: 5558}", (0, 5558)),
    ],
)
def test_ports_of_cache_events_are_named_or_chosen(
    written: str, ports: tuple[int, int | None]
) -> None:
    route = "route: {affinity: cache, tokenizer: meta/llama-8b}\n"
    text = f"{LEAST}cache_events: {written}\n{route}"
    (service,) = read_submission(text, "chat.yaml").services
    assert (service.cache_events_port, service.cache_replay_port) == ports
    assert (service.routing.affinity, service.routing.tokenizer) == ("cache", "meta/llama-8b")


def test_a_tier_alone_is_where_replicas_spread_as_far_as_possible() -> None:
    (service,) = read_submission(f"{LEAST}spread: leaf\n", "chat.yaml").services
    assert (service.spread, service.spread_required) == ("leaf", False)


def test_jobs_and_services_stand_in_one_file_and_in_one_request() -> None:
    text = f"kind: job\nname: train\ngang: [{{role: r, members: 1}}]\n---\n{LEAST}"
    read = read_submission(text, "all.yaml")
    assert ([each.name for each in read.jobs], [each.name for each in read.services]) == (
        ["train"],
        ["chat"],
    )
    assert read_submission_objects(list(read_yaml_documents(text)), "request") == read


def test_replicas_of_a_service_are_placed_as_jobs() -> None:
    jobs = read_job(f"{LEAST}replicas: {{min: 2, max: 5}}\n", "chat.yaml")
    assert [each.name for each in jobs] == ["chat.1", "chat.2"]
    assert {each.roles for each in jobs} == {jobs[0].roles}
    assert [each.name for each in read_job(f"{LEAST}replicas: {{min: 0}}\n", "c")] == ["chat.1"]


@pytest.mark.parametrize(
    ("added", "field", "words"),
    [
        ("array: 0-3", "array", "allowed: replicas"),
        ("notify: {on: [end, start], mail: a@b.c}", "notify.on[1]", "end, failure, preemption"),
        ("elastic: {min: 1, max: 2}", "elastic", "allowed: replicas"),
        ("after: train", "after", "a service starts when it is submitted"),
        ("time_limit: 1h", "time_limit", "runs until it is cancelled"),
        ("expected: 1h", "expected", "runs until it is cancelled"),
        ("idle: {stop: 30m}", "idle", "`scale` with `to_zero`"),
        ("budget_USD: 10", "budget_USD", "a budget of its queue"),
        ("hold: true", "hold", "gantree scale"),
        ("restarts: 3", "restarts", "replicas restart without limit"),
        ("restarts: {exit_codes: 1}", "restarts.exit_codes", "replicas restart without limit"),
        ("secrets: {PORT: /s}", "secrets.PORT", "gantree sets PORT"),
        ("replicas: 0", "replicas", "a number of replicas from 1 to 10000"),
        ("replicas: {min: 3, max: 2}", "replicas.min", "at most max, which is 2"),
        ("replicas: {max: 2, floor: 3}", "replicas.floor", "at most max, which is 2"),
        ("replicas: {max: 2, spare: 3}", "replicas.spare", "at most max, which is 2"),
        ("replicas: {mim: 3}", "replicas.mim", "Did you mean `min`?"),
        ("port: 0", "port", "a port from 1 to 65535"),
        ("ready: {http: health}", "ready.http", "a path such as /health"),
        ("ready: {http: /a b}", "ready.http", "a path such as /health"),
        ("ready: {failures: 0}", "ready.failures", "1 or more"),
        ("update: {surge: 0}", "update", "no update could begin"),
        ("drain: soon", "drain", "a duration such as"),
        ("spread: {required: true}", "spread.tier", "is required"),
        ("scale: {on: {metric: concurency, target: 1}}", "scale.on.metric", "concurrency"),
        ("scale: {on: {target: 1}}", "scale.on.metric", "one of them"),
        ("scale: {on: {metric: rate, query: x, target: 1}}", "scale.on.metric", "one of them"),
        ("scale: {on: {metric: rate, target: 5s}}", "scale.on.target", "durations are for"),
        ("scale: {on: {metric: gpu_use, target: 80}}", "scale.on.target", "at most 1"),
        ("scale: {on: {metric: rate, target: 80%}}", "scale.on.target", "a number above 0"),
        (f"route: {{models: [{', '.join(map(str, range(33)))}]}}", "route.models", "at most 32"),
        (f"route: {{models: [a, {'é' * 65}]}}", "route.models[1]", "at most 128 bytes"),
        ("ready: {every: 1ms}", "ready.every", "at least 50ms"),
        ("ready: {timeout: 1h}", "ready.timeout", "at most 1m"),
        ("scale: {on: {metric: rate, target: 0}}", "scale.on.target", "above 0"),
        (
            "scale: {on: [{metric: rate, target: 1}, {metric: rate, target: 2}]}",
            "scale.on[1].metric",
            "each once",
        ),
        (
            "scale: {on: {metric: rate, target: 1, per_replica: true}}",
            "scale.on.per_replica",
            "beside query",
        ),
        (
            "cache_events: false",
            "cache_events",
            "true, or a mapping with the fields port, replay_port",
        ),
        ("cache_events: {port: 0}", "cache_events.port", "a port from 1 to 65535"),
        ("route: {tokenizer: ../x}", "route.tokenizer", "a directory below that of all tokenizers"),
        ("route: {affinity: sticky}", "route.affinity", "one of none, session, prefix, cache"),
    ],
)
def test_what_is_wrong_with_a_service_is_told(added: str, field: str, words: str) -> None:
    with pytest.raises(BadFields) as caught:
        read_submission(f"{LEAST}{added}\n", "chat.yaml")
    (problem,) = caught.value.problems
    assert (problem.line, problem.field.removesuffix("[0]")) == (4, field)
    assert words in str(problem)


def test_a_variable_that_gantree_sets_and_a_long_name_are_told() -> None:
    text = LEAST.replace("run:", "env: {PORT: 1}, run:").replace("chat", "c" * 56)
    with pytest.raises(BadFields) as caught:
        read_submission(text, "chat.yaml")
    assert [each.field for each in caught.value.problems] == ["name", "gang[0].env.PORT"]


@pytest.mark.parametrize("field", ["replicas", "port", "scale", "route"])
def test_a_job_with_a_field_of_services_learns_what_is_missing(field: str) -> None:
    text = LEAST.replace("kind: service\n", "") + f"{field}: 1\n"
    with pytest.raises(BadFields) as caught:
        read_submission(text, "chat.yaml")
    assert "write `kind: service`" in str(caught.value.problems[0])


def test_an_unknown_kind_is_told() -> None:
    with pytest.raises(BadFields, match="one of job, service"):
        read_submission(LEAST.replace("service", "servce"), "chat.yaml")


def test_no_job_comes_after_a_service() -> None:
    text = f"{LEAST}---\nname: b\ngang: [{{role: r, members: 1}}]\nafter: [a, chat]\n"
    with pytest.raises(BadFields) as caught:
        read_submission(text, "all.yaml")
    (problem,) = caught.value.problems
    assert (problem.line, problem.field) == (7, "after[1]")


counts = st.integers(0, 12)


@settings(max_examples=examples(100))
@given(low=counts, high=counts, floor=counts, spare=counts)
def test_counts_are_taken_as_they_are_or_refused(
    low: int, high: int, floor: int, spare: int
) -> None:
    written = f"{{min: {low}, max: {high}, floor: {floor}, spare: {spare}}}"
    is_good = high >= 1 and max(low, floor, spare) <= high
    try:
        (service,) = read_submission(f"{LEAST}replicas: {written}\n", "c").services
    except BadFields:
        assert not is_good
    else:
        assert is_good
        assert service.replicas == ReplicaCount(low, high, floor, spare)


@settings(max_examples=examples(60))
@given(metric=st.sampled_from(METRICS), hundredths=st.integers(1, 10**5), as_time=st.booleans())
def test_a_target_has_the_unit_of_its_metric(metric: str, hundredths: int, as_time: bool) -> None:
    value = hundredths / 100
    written = f"{value}s" if as_time else f"{value}"
    text = f"{LEAST}scale: {{on: {{metric: {metric}, target: {written}}}}}\n"
    is_latency = metric not in ADDITIVE and metric != "gpu_use"
    is_good = (is_latency or not as_time) and (metric != "gpu_use" or value <= 1)
    try:
        (service,) = read_submission(text, "c").services
    except BadFields:
        assert not is_good
    else:
        assert is_good
        assert service.scaling.targets == (ScaleTarget(metric, value),)


def test_of_a_document_whose_kind_is_wrong_nothing_else_is_said() -> None:
    with pytest.raises(BadFields) as refused:
        read_submission(f"{LEAST.replace('kind: service', 'kind: servce')}spread: leaf\n", "a.yaml")
    (problem,) = refused.value.problems
    assert (problem.field, problem.found) == ("kind", "`servce`")
