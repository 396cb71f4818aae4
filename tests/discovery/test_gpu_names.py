"""GPU models as people write them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.model.errors import BadInput
from gantree.text.words import WORD_PATTERN
from gantree.topology.discovery.gpu_names import known_model, model_written
from gantree.topology.hardware.gpu_models import GPU_MODELS


@pytest.mark.parametrize("name", GPU_MODELS)
def test_every_model_of_the_catalogue_is_itself_in_any_case(name: str) -> None:
    assert known_model(name.lower(), "--gpu") == model_written(name) == name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("H100", "--gpu H100: no GPU model of the catalogue; Did you mean H100-80GB or H100-94GB"),
        ("H100-80", "Did you mean `H100-80GB`"),
        ("zebra crossing", "known: K80-12GB"),
    ],
)
def test_a_model_that_is_not_known_is_refused_with_the_likely_ones(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        known_model(text, "--gpu")


@given(st.text(max_size=300) | st.from_regex(r"(NVIDIA|Tesla)[ -][A-Z0-9 -]{1,20}[0-9]{1,3}GB"))
def test_whatever_is_written_is_a_word_or_nothing(text: str) -> None:
    name = model_written(text)
    assert name is None or re.fullmatch(WORD_PATTERN, name, re.ASCII)
