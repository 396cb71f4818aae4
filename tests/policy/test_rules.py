"""Priority classes and presets."""

import ast
import pickle
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, replace
from importlib.resources import files
from pathlib import Path

import pytest

from gantree.formats.policy.form import RulesForm
from gantree.formats.policy.reader import PRESET_NAMES, PRESETS, preset_text
from gantree.model.errors import BadInput
from gantree.policy.rules import DEFAULT_PRIORITIES, Backfill, Policy, Preemption

SOURCES = Path(__file__).resolve().parents[2] / "src"


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


def test_the_default_preset_is_the_default_policy() -> None:
    assert PRESET_NAMES[0] == "gantree"
    assert PRESETS["gantree"] == Policy()


def test_each_preset_is_a_file_and_each_file_a_preset() -> None:
    kept = files("gantree.formats") / "presets"
    assert sorted(file.name for file in kept.iterdir()) == sorted(f"{n}.yaml" for n in PRESET_NAMES)
    assert tuple(PRESETS) == PRESET_NAMES
    assert len(PRESETS) == len(PRESET_NAMES)
    assert "gantre" not in PRESETS
    with pytest.raises(KeyError):
        PRESETS["gantre"]


@pytest.mark.parametrize("name", PRESET_NAMES)
def test_a_preset_says_what_it_is_and_where_it_is_from(name: str) -> None:
    lines = preset_text(name).splitlines()
    comment = " ".join(line for line in lines if line.startswith("#"))
    assert comment.startswith(f"# {name}: ")
    assert "Source: " in comment
    assert max(map(len, lines)) <= 120
    assert not any(line.startswith("preset:") for line in lines)


def test_a_preset_names_no_other_preset() -> None:
    assert "preset" not in RulesForm.model_fields


def test_presets_are_what_their_names_say() -> None:
    nobody, who_goes_first = Preemption(by="none"), Preemption(by="order")
    assert PRESETS["fifo"] == Policy(
        order=("arrival",), backfill=Backfill("none"), preemption=nobody, elastic=False
    )
    assert PRESETS["backfill"] == replace(PRESETS["fifo"], backfill=Backfill("promised"))
    assert PRESETS["first-fit"] == replace(
        PRESETS["fifo"], backfill=Backfill("any"), placement="first-fit"
    )
    assert PRESETS["blind-first-fit"] == Policy(placement="first-fit")
    assert PRESETS["blind-best-fit"] == Policy(placement="best-fit")
    assert PRESETS["blind-random"] == Policy(placement="random")
    assert PRESETS["fair"] == Policy(
        order=("share", "priority", "arrival"),
        half_life_s=7 * 86_400.0,
        share_users=True,
        gpu_weights=PRESETS["fair"].gpu_weights,
        preemption=Preemption(),
    )
    assert PRESETS["fair"].gpu_weights["T4-16GB"] < PRESETS["fair"].gpu_weights["A100-80GB"]
    assert PRESETS["least-attained-service"] == Policy(
        order=("attained", "arrival"),
        attained_levels=(3250.0,),
        backfill=Backfill("any"),
        preemption=who_goes_first,
        elastic=False,
    )
    assert PRESETS["srsf"] == Policy(
        order=("remaining_service", "arrival"),
        backfill=Backfill("any"),
        preemption=who_goes_first,
        elastic=False,
    )
    assert PRESETS["least-stretch"] == Policy(
        order=("priority", "share", "stretch", "arrival"),
        backfill=Backfill("any"),
        preemption=who_goes_first,
        elastic=False,
    )
    assert PRESETS["cells"] == Policy(
        order=("priority", "arrival"),
        backfill=Backfill("none"),
        preemption=Preemption(),
        elastic=False,
    )


def _compared(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, text) of each text that code compares with, matches, or looks up in a table written on the spot."""
    for node in ast.walk(tree):
        texts: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            texts = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            texts = [node.value]
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Dict):
            texts = [key for key in node.value.keys if key is not None]
        for text in texts:
            for part in ast.walk(text):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


def _branches_on_presets(text: str) -> list[tuple[int, str]]:
    if not any(f"{quote}{name}{quote}" in text for name in PRESET_NAMES for quote in "'\""):
        return []  # to parse every file takes seconds
    return [(line, word) for line, word in _compared(ast.parse(text)) if word in PRESET_NAMES]


def test_no_code_asks_for_the_name_of_a_preset() -> None:
    asked = {
        str(path.relative_to(SOURCES)): found
        for path in sorted(SOURCES.rglob("*.py"))
        if (found := _branches_on_presets(path.read_text(encoding="utf-8")))
    }
    assert asked == {}


@pytest.mark.parametrize(
    "text",
    [
        "if policy.preset == 'fifo': pass",
        "x = 'srsf' != name",
        "if name in ('cells', 'fair'): pass",
        "match name:\n    case 'first-fit': pass",
        "rank = {'fair': 1, 'fifo': 2}[name]",
    ],
)
def test_the_check_for_names_of_presets_sees(text: str) -> None:
    assert _branches_on_presets(text)


def test_presets_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        PRESETS["gantree"].grace_s = 0.0  # type: ignore[misc]  # that is what is tested
    with pytest.raises(TypeError):
        DEFAULT_PRIORITIES["batch"] = 1  # type: ignore[index]  # that is what is tested


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_policy_can_be_sent_to_another_process(name: str) -> None:
    assert pickle.loads(pickle.dumps(PRESETS[name])) == PRESETS[name]
