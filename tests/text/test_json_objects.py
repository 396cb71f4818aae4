"""Plain JSON values as the data of a file: what text they may hold, and that nothing else becomes of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.errors import BadFields
from gantree.text.document import NOT_TEXT
from gantree.text.objects import documents_of
from support.examples import examples

TEXTS = st.text(
    st.one_of(
        st.sampled_from("a\t\n\x00\x7f\x85\xa0\ufeff\ufffe\u2028\U0001f600"), st.characters()
    ),
    max_size=3,
)


@settings(max_examples=examples(200), deadline=None)
@given(TEXTS, st.sampled_from(("value", "key", "item")))
def test_an_object_of_a_request_may_hold_the_text_that_a_file_may(text: str, where: str) -> None:
    given_object = {"value": {"a": text}, "key": {text: 1}, "item": {"a": [1, text]}}[where]
    if NOT_TEXT.search(text) is None:
        (document,) = documents_of([given_object], "jobs", "request")
        assert document.value == given_object
    else:
        with pytest.raises(BadFields, match=r"the character U\+"):
            documents_of([given_object], "jobs", "request")
