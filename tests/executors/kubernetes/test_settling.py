"""When a site whose nodes have changed is rebuilt: almost at once, and not all the time while many come."""

import pytest

from gantree.executors.kubernetes.controllers.nodes import Nodes


@pytest.mark.parametrize(
    ("took_s", "at", "is_settled"),
    [
        (0.001, 10.04, False),  # more nodes may come with it
        (0.001, 10.06, True),
        (
            0.05,
            10.06,
            False,
        ),  # ten times its own time has not passed since the last rebuild, at 9.9
        (0.05, 10.41, True),
        (30.0, 10.89, False),
        (30.0, 10.91, True),  # a second is the longest
    ],
)
def test_a_site_is_rebuilt_soon_after_a_change_and_a_tenth_of_the_time_at_most(
    took_s: float, at: float, is_settled: bool
) -> None:
    nodes = Nodes("site", ())
    nodes._built_at, nodes._took_s = 9.9, took_s
    assert not nodes._is_settled(at), "nothing has changed"
    nodes.mark_stale(10.0)
    assert nodes._is_settled(at) == is_settled
