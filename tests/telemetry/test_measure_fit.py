"""Links fitted to times: what a ring would take comes back, outliers do little, mere latency is told as such."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.model.cluster import Link
from gantree.telemetry.measuring.fit import (
    FITTED,
    bus_bytes,
    busbw_GBps,
    fit,
    links_of,
    predicted_s,
    steps,
)
from gantree.topology.fabric.calibration import MeasuredRow

SIZES = tuple(1024 * 4**k for k in range(11))


def row(collective: str, ranks: int, size: int, time_s: float, within: str = "NV18") -> MeasuredRow:
    return MeasuredRow(
        collective, ranks, 1, size, time_s, busbw_GBps(collective, ranks, size, time_s), within
    )


def rows_of(link: Link, collective: str, ranks: int, within: str = "NV18") -> list[MeasuredRow]:
    return [
        row(collective, ranks, size, predicted_s(link, collective, ranks, size), within)
        for size in SIZES
    ]


@pytest.mark.parametrize(
    ("collective", "ring_steps", "factor"),
    [
        ("all_reduce", 14, 1.75),
        ("all_gather", 7, 0.875),
        ("reduce_scatter", 7, 0.875),
        ("all_to_all", 7, 0.875),
        ("broadcast", 7, 1.0),
        ("reduce", 7, 1.0),
        ("send_recv", 1, 1.0),
    ],
)
def test_a_ring_of_eight_takes_so_many_steps_and_moves_so_many_bytes(
    collective: str, ring_steps: int, factor: float
) -> None:
    assert steps(collective, 8) == ring_steps
    assert bus_bytes(collective, 8, 1000) == factor * 1000


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    """8 A100, microsoft/superbenchmark: 8 GiB in 63896 us is 235.26 GB/s."""
    assert busbw_GBps("all_reduce", 8, 8589934592, 63896e-6) == pytest.approx(235.26, abs=0.01)


@given(
    st.sampled_from(FITTED), st.integers(2, 64), st.floats(1, 1000), st.floats(0.5, 20)
)  # fmt: skip
def test_a_link_is_found_again_in_the_times_it_makes(
    collective: str, ranks: int, bandwidth_GBps: float, latency_us: float
) -> None:
    fitted = fit(rows_of(Link(bandwidth_GBps, latency_us), collective, ranks))
    if fitted.told:
        assert fitted.link.bandwidth_GBps == pytest.approx(bandwidth_GBps, rel=1e-6)
        assert fitted.link.latency_us == pytest.approx(latency_us, rel=1e-6)
    else:
        largest = predicted_s(Link(bandwidth_GBps, latency_us), collective, ranks, SIZES[-1])
        assert largest < 2.5 * latency_us * 1e-6 * steps(collective, ranks)


@pytest.mark.parametrize("late", range(len(SIZES)))
def test_one_outlier_moves_the_link_little(late: int) -> None:
    rows = rows_of(Link(200, 5), "all_reduce", 8)
    rows[late] = row("all_reduce", 8, SIZES[late], 3 * rows[late].time_s)
    link = fit(rows).link
    assert 60 < link.bandwidth_GBps < 205
    assert 4.9 < link.latency_us < 11


@pytest.mark.parametrize("late", range(3))
def test_a_small_message_that_waited_long_moves_nothing(late: int) -> None:
    rows = rows_of(Link(200, 5), "all_reduce", 8)
    rows[late] = row("all_reduce", 8, SIZES[late], 100 * rows[late].time_s)
    link = fit(rows).link
    assert link.bandwidth_GBps == pytest.approx(200, rel=0.02)
    assert link.latency_us == pytest.approx(5, rel=0.02)


def test_where_all_is_latency_the_bandwidth_is_the_best_that_was_seen() -> None:
    rows = [row("all_reduce", 2, size, 1e-3) for size in SIZES[:6]]
    fitted = fit(rows)
    assert not fitted.told
    assert fitted.link.bandwidth_GBps == pytest.approx(max(each.busbw_GBps for each in rows))
    assert fitted.link.latency_us == pytest.approx(500)


@given(st.lists(st.floats(1e-6, 10), min_size=2, max_size=11))
def test_no_times_make_a_link_that_is_none(times: list[float]) -> None:
    found = fit([row("all_reduce", 4, size, t) for size, t in zip(SIZES, times, strict=False)])
    assert found.link.bandwidth_GBps > 0
    assert found.link.latency_us >= 0


def test_an_a100_log_gives_its_large_message_bandwidth_and_its_small_message_floor() -> None:
    """8 A100, microsoft/superbenchmark, all_reduce out of place: time in us by bytes."""
    log = {1024: 36.07, 4096: 35.92, 16384: 35.9, 1048576: 74.86, 134217728: 1162.2, 1073741824: 8159.8,
           4294967296: 32170, 8589934592: 63896}  # fmt: skip
    link = fit([row("all_reduce", 8, size, us * 1e-6, "NV12") for size, us in log.items()]).link
    assert link.bandwidth_GBps == pytest.approx(235.3, rel=0.01)
    assert predicted_s(link, "all_reduce", 8, 4096) == pytest.approx(36e-6, rel=0.02)


def test_each_path_gets_a_link_from_its_best_series() -> None:
    rows = [
        *rows_of(Link(10, 9), "broadcast", 2, "PIX"),
        *rows_of(Link(20, 8), "all_reduce", 4, "PIX"),
        *rows_of(Link(30, 7), "all_reduce", 2, "PIX"),
        *rows_of(Link(40, 6), "send_recv", 2, "SYS"),
        *rows_of(Link(50, 5), "all_reduce", 2, "NODE")[:1],
        *(row("broadcast", 1, size, 1e-3, "alone") for size in SIZES),
    ]
    links = {name: fitted.link for name, fitted in links_of(rows).items()}
    assert sorted(links) == ["PIX", "SYS"]
    assert links["PIX"].bandwidth_GBps == pytest.approx(30)
    assert links["SYS"].latency_us == pytest.approx(6)
