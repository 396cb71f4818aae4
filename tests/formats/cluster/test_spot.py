"""`spot` of nodes in a cluster file."""

import pytest

from gantree.formats import read_cluster
from gantree.model.cluster import MARKET_LABEL
from gantree.model.errors import BadFields

HEAD = "name: c\ntiers: [node]\nnodes:\n"


def test_spot_says_how_often_a_day_a_node_is_taken_back() -> None:
    text = (
        HEAD
        + "  - {names: n0, machine: t4-4, spot: {per_day: 0.5}}\n  - {names: n1, machine: t4-4}\n"
    )
    assert [node.spot for node in read_cluster(text, "c.yaml").nodes] == [0.5, None]


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("spot: {per_day: -1}", "spot.per_day"),
        ("spot: {}", "spot.per_day"),
        ("spot: yes", "spot"),
        (f"labels: {{{MARKET_LABEL}: spot}}", "spot: {per_day: ...}"),
    ],
)
def test_what_is_no_spot_names_its_line(field: str, words: str) -> None:
    with pytest.raises(BadFields) as error:
        read_cluster(HEAD + f"  - {{names: n0, machine: t4-4, {field}}}\n", "c.yaml")
    assert words in str(error.value)
    assert "c.yaml:4" in str(error.value)
