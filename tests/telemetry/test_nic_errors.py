"""Errors of a NIC count at a rate, and a link that goes down again and again is called so."""

import pytest

from gantree.telemetry.link_judgement import Judged
from gantree.telemetry.nic_errors import FLAPS_WITHIN_S, NicErrors

SYMBOLS = "node_infiniband_symbol_error_total"
SEQUENCE = "node_infiniband_packet_sequence_errors_total"
DOWNED = "node_infiniband_link_downed_total"


def looks(name: str, *readings: tuple[float, float]) -> list[Judged]:
    """What is said after each (count, seconds)."""
    errors = NicErrors()
    return [errors.look("n0", "mlx5_0", {name: count}, at) for count, at in readings]


@pytest.mark.parametrize(
    ("name", "per_s", "judged"),
    [
        (SYMBOLS, 0.5, Judged(1.0)),
        (SYMBOLS, 2.0, Judged(0.9, "symbol errors")),
        (SEQUENCE, 50.0, Judged(1.0)),  # congestion
        (SEQUENCE, 500.0, Judged(0.9, "RDMA sequence errors")),
        ("node_infiniband_port_transmit_wait_total", 1e9, Judged(1.0)),  # load
    ],
)
def test_errors_count_above_a_rate(name: str, per_s: float, judged: Judged) -> None:
    assert looks(name, *((15.0 * per_s * step, 15.0 * step) for step in range(6)))[-1] == judged


def test_a_burst_and_a_counter_that_began_anew_say_nothing() -> None:
    told = looks(SYMBOLS, (0, 0), (10**9, 15), (10**9, 30), (5, 45), (5, 60), (5, 75))
    assert told == [Judged(1.0)] * 6


def test_a_link_that_was_down_once_is_no_flapping_one_and_one_that_was_twice_is_for_an_hour() -> (
    None
):
    told = looks(
        DOWNED,
        (7, 0),
        (8, 15),
        (9, 600),
        (9, 630),
        (9, 16 + FLAPS_WITHIN_S),
        (0, 20 + FLAPS_WITHIN_S),
    )
    flaps = Judged(0.5, "its link flaps")
    assert told == [Judged(1.0), Judged(1.0), flaps, flaps, Judged(1.0), Judged(1.0)]


def test_a_gap_between_two_readings_does_not_hide_that_it_flapped() -> None:
    assert looks(DOWNED, (0, 0), (5, 600))[-1].reason == "its link flaps"
