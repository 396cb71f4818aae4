"""Hostlists: as many names as were counted, or a refusal; the library takes digits beside a bracket for its own."""

import pytest

from gantree.text.hostlists import BadHostlist, count_nodes, expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("n0[1-3]", ["n01", "n02", "n03"]),
        ("n1[1,10]", ["n11", "n110"]),
        ("n[8-10]0", ["n80", "n90", "n100"]),
        ("r1n[1-2]", ["r1n1", "r1n2"]),
    ],
)
def test_a_hostlist_stands_for_as_many_names_as_were_counted(text: str, names: list[str]) -> None:
    assert (count_nodes(text), expand(text)) == (len(names), names)


@pytest.mark.parametrize("text", ["n0[8-10]", "n1[8-10]", "n[1-2]0[3-4]", f"{10**30}[8-10]"])
def test_what_would_be_read_as_other_names_is_refused(text: str) -> None:
    """n1[8-10] would be n18 to n110, ninety-three names and not three."""
    with pytest.raises(BadHostlist, match="right before a bracket"):
        count_nodes(text)
