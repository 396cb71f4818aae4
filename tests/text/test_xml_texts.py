"""XML that cannot be read: what was found, in words, with the line once."""

import pytest

from gantree.model.errors import BadFields
from gantree.text.xml_text import read_xml


@pytest.mark.parametrize(
    ("text", "line", "found"),
    [
        ("", 1, "an empty text"),
        ("abc", 1, "text that does not begin with `<`"),
        ("<a>\n<b>", 2, "the end of the text inside <b>, which line 2 opens"),
        ("<a>\n</b>", 2, "</b> where </a> should be, which line 1 opens"),
        ("<a/>x", 1, "more text after its end"),
        ("<a b='1' b='2'/>", 1, "text that is no XML (Attribute b redefined)"),
    ],
)
def test_what_is_no_xml_is_told_in_words(text: str, line: int, found: str) -> None:
    with pytest.raises(BadFields) as caught:
        read_xml(text, "f")
    (problem,) = caught.value.problems
    assert (problem.line, problem.found) == (line, found)
