"""Lines of waiting jobs against a plainly sorted list."""

from hypothesis import given
from hypothesis import strategies as st

from gantree.policy.order import Lines, Position

waiting_jobs = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 3)),
    max_size=20,
)


def positions_of(jobs: list[tuple[str, int]]) -> list[tuple[str, Position]]:
    return [
        (line, Position(-priority, seq, f"j{seq}")) for seq, (line, priority) in enumerate(jobs)
    ]


@given(waiting_jobs, st.sets(st.integers(0, 19)))
def test_a_walk_goes_in_order_whatever_the_lines(
    jobs: list[tuple[str, int]], gone: set[int]
) -> None:
    lines = Lines()
    positions = positions_of(jobs)
    for line, position in positions:
        lines.add(line, position)
    left = [pair for pair in positions if pair[1].seq not in gone]
    for line, position in positions:
        if position.seq in gone:
            lines.remove(line, position)
    assert list(lines.walk(lambda _, __: True)) == sorted(left, key=lambda pair: pair[1])
    assert len(lines) == len(left)


@given(waiting_jobs, st.sampled_from("abc"))
def test_a_line_that_is_closed_is_left_out_and_the_others_go_on(
    jobs: list[tuple[str, int]], closed: str
) -> None:
    lines = Lines()
    for line, position in positions_of(jobs):
        lines.add(line, position)
    walked = [line for line, _ in lines.walk(lambda line, _: line != closed)]
    in_order = [line for line, _ in sorted(positions_of(jobs), key=lambda pair: pair[1])]
    assert walked == [line for line in in_order if line != closed]


@given(waiting_jobs)
def test_jobs_may_leave_while_the_walk_goes_on(jobs: list[tuple[str, int]]) -> None:
    lines = Lines()
    for line, position in positions_of(jobs):
        lines.add(line, position)
    for signature, first in lines.walk(lambda _, __: True):
        lines.remove(signature, first)
    assert len(lines) == 0
