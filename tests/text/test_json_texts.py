"""JSON that cannot be read: what was found, in words, and where."""

import pytest

from gantree.model.errors import BadFields
from gantree.text.json_text import read_json


@pytest.mark.parametrize(
    ("text", "line", "found"),
    [
        ("", 1, "an empty text"),
        ("{", 1, "the end of the text where a field name in double quotes should be"),
        ("[1\n", 2, "the end of the text where a `,` should be"),
        ("[1 2]", 1, "text where a `,` should be"),
        ('{"a" 1}', 1, "text where a `:` should be"),
        ('{"a":}', 1, "text where a value should be"),
        ("{} x", 1, "more text after its end"),
        ('\n"a', 2, "a text without its closing quote"),
        ('"\\q"', 1, "an unknown escape in a text"),
        ("[NaN]", None, "the number NaN"),
        ("1" * 5000, None, "a number of too many digits"),
        ("[" * 100_000, None, "more than 32 levels"),
    ],
)
def test_what_is_no_json_is_told_in_words(text: str, line: int | None, found: str) -> None:
    with pytest.raises(BadFields) as caught:
        read_json(text, "f")
    (problem,) = caught.value.problems
    assert (problem.line, problem.found) == (line, found)
