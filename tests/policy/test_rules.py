"""Priority classes and presets."""

import pickle
from dataclasses import FrozenInstanceError

import pytest

from gantree.formats.policies import PRESETS
from gantree.model.errors import BadInput
from gantree.policy.rules import DEFAULT_PRIORITIES, Policy, Preemption


@pytest.mark.parametrize(
    ("word", "number"),
    [("research", 100), ("batch", 200), ("production", 300), ("serving", 400), (7, 7), (-3, -3), (0, 0)],
)  # fmt: skip
def test_a_class_or_a_number_is_a_priority(word: str | int, number: int) -> None:
    assert Policy().priority_of(word) == number


@pytest.mark.parametrize(
    ("word", "hint"),
    [("bach", "Did you mean `batch`?"), ("Serving", "`serving`"), ("zzz", "batch")],
)
def test_an_unknown_class_names_the_known_ones_and_the_nearest(word: str, hint: str) -> None:
    with pytest.raises(BadInput, match="found") as caught:
        Policy().priority_of(word)
    assert hint in str(caught.value)


def test_a_truth_is_no_priority() -> None:
    with pytest.raises(BadInput):
        Policy().priority_of(True)


def test_presets_differ_in_preemption_only() -> None:
    assert PRESETS["gantree"] == Policy()
    assert PRESETS["fifo"] == Policy(preemption=Preemption(by="none"))


def test_presets_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        PRESETS["gantree"].grace_s = 0.0  # type: ignore[misc]  # that is what is tested
    with pytest.raises(TypeError):
        DEFAULT_PRIORITIES["batch"] = 1  # type: ignore[index]  # that is what is tested


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_policy_can_be_sent_to_another_process(name: str) -> None:
    assert pickle.loads(pickle.dumps(PRESETS[name])) == PRESETS[name]
