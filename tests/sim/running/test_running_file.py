"""running.yaml: what is read, what is refused with line and field, and the preset."""

import pytest

from gantree.model.errors import BadFields, BadInput
from gantree.sim.running.model import (
    Checkpoints,
    FailureRate,
    Failures,
    RunningModel,
    Service,
    ServiceScaling,
    Spot,
    Stragglers,
)
from gantree.sim.running.reader import check_tiers, preset, read_running

WHOLE = """
step_time: true
contention: true
checkpoints: {every: 30m, save: 10s, restore: 2m, store_GBps: 80, state_GB_per_GPU: 12}
failures:
  process: {per_day: 0.001}
  GPU: {per_day: 0.002, repair: 1h}
  node: {per_day: 0.01, repair: 2h, announced: 0.5, lead: 10m}
  domains: {leaf: {per_day: 0.001, repair: 1h}}
  links: {spine: {per_day: 0.02, repair: 30m, health: 0.25}}
  restarts: 5
stragglers: {nodes: 0.01, attempts: 0.02, speed: 0.8, named_after: 4m}
spot: {notice: 30s, away: 10m}
services:
  - {name: chat, gpus: 2, trough: 1, peak: 4, curve: {"16:30": 1, "04:00": 0}, queue: web}
"""


def test_every_field_is_read() -> None:
    assert read_running(WHOLE, "r.yaml") == RunningModel(
        step_time=True,
        contention=True,
        checkpoints=Checkpoints(1800, 10, 120, 80, 12),
        failures=Failures(
            FailureRate(0.001, 0),
            FailureRate(0.002, 3600),
            FailureRate(0.01, 7200, announced=0.5, lead_s=600),
            (("leaf", FailureRate(0.001, 3600)),),
            (("spine", FailureRate(0.02, 1800, 0.25)),),
            5,
        ),
        stragglers=Stragglers(0.01, 0.02, 0.8, 240),
        spot=Spot(30, 600),
        services=(Service("chat", 2, 1, 4, ((14_400.0, 0.0), (59_400.0, 1.0)), "web"),),
    )


def test_the_autoscaler_of_a_service_is_read() -> None:
    text = """
services:
  - name: chat
    gpus: 1
    trough: 1
    peak: 4
    curve: {"04:00": 0}
    scale:
      {target: 0.7, spare: 2, every: 30s, start: 3m, stabilise: 10m, slots: 16, request: 8s, wait: 20s, predict: true}
  - {name: code, gpus: 1, trough: 1, peak: 4, curve: {"04:00": 0}, scale: {}}
"""
    chat, code = read_running(text, "r.yaml").services
    assert chat.scaling == ServiceScaling(0.7, 2, 30, 180, 600, 16, 8, 20, True)
    assert code.scaling == ServiceScaling()
    with pytest.raises(BadFields, match=r"r.yaml:\d+.*scale.target"):
        read_running(text.replace("target: 0.7", "target: 1.2"), "r.yaml")


def test_what_is_not_given_is_off() -> None:
    assert read_running("step_time: true", "r.yaml") == RunningModel(step_time=True)
    assert not read_running("step_time: false", "r.yaml").on


def test_a_preset_gives_what_the_file_leaves_out() -> None:
    model = read_running("preset: realistic\ncontention: false\nspot: {away: 1m}", "r.yaml")
    assert not model.contention
    assert model.spot == Spot(120, 60)
    assert model.failures == preset("realistic").failures


def test_the_rates_of_the_preset_come_to_what_llama_3_saw() -> None:
    """419 interruptions in 54 days on 16,384 GPUs in 2,048 nodes, of which 35 by switches and cables."""
    failures = preset("realistic").failures
    assert failures is not None
    assert failures.process and failures.GPU and failures.node
    per_day = (
        16_384 * (failures.process.per_day + failures.GPU.per_day) + 2_048 * failures.node.per_day
    )
    assert per_day * 54 == pytest.approx(419 - 35, rel=0.01)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steptime: true", "r.yaml:1: steptime"),
        ("step_time: true\nstragglers: {speed: 0}", "r.yaml:2: stragglers.speed: found `0`"),
        ("failures:\n  GPU: {per_day: often}", "r.yaml:2: failures.GPU.per_day: found `often`"),
        ("failures:\n  links: {leaf: {per_day: 1}}", "r.yaml:2: failures.links.leaf.repair"),
        ("spot: {notice: soon}", "r.yaml:1: spot.notice: found `soon`"),
        (
            'services: [{name: a, gpus: 1, trough: 3, peak: 2, curve: {"04:00": 0}}]',
            "r.yaml:1: services[0].trough: found `3`; allowed: at most its peak, 2",
        ),
        (
            'services: [{name: a, gpus: 1, trough: 1, peak: 2, curve: {"25:00": 0}}]',
            "a time of day",
        ),
        ("services: [{name: a, gpus: 1, trough: 1, peak: 2, curve: {}}]", "services[0].curve"),
        ("preset: real", "preset: found `real`; allowed: one of realistic"),
    ],
)
def test_mistakes_are_named_with_file_line_and_field(text: str, message: str) -> None:
    with pytest.raises(BadFields) as told:
        read_running(text, "r.yaml")
    assert message in str(told.value)


def test_a_tier_that_the_cluster_does_not_have_is_refused() -> None:
    model = read_running("failures: {domains: {rack: {per_day: 1}}}", "r.yaml")
    with pytest.raises(BadInput, match="no tier `rack`; allowed: fabric, leaf, node, switch"):
        check_tiers(model, ("fabric", "leaf", "node"))
    check_tiers(preset("realistic"), ("fabric", "leaf", "node"))
