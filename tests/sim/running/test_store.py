"""Transfers through one store, against a twin that goes through time transfer by transfer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.sim.running.store import Store

Transfers = list[tuple[float, float]]


def ends_of(store: Store, transfers: Transfers) -> dict[str, float]:
    """When each transfer, (begun at, GB), is done."""
    waiting, ends = sorted((at, str(n), GB) for n, (at, GB) in enumerate(transfers)), {}
    while waiting or store.next_moment() is not None:
        done_at = store.next_moment()
        if waiting and (done_at is None or waiting[0][0] <= done_at):
            at, key, GB = waiting.pop(0)
            store.begin(key, GB, at)
        else:
            assert done_at is not None
            ends[store.pop(done_at)] = done_at
    return ends


def twin_of(GBps: float, transfers: Transfers) -> dict[str, float]:
    """All open transfers get the same share until the next one begins or ends."""
    left = {str(n): GB for n, (_, GB) in enumerate(transfers)}
    begins = {str(n): at for n, (at, _) in enumerate(transfers)}
    ends: dict[str, float] = {}
    now = 0.0
    while left:
        there = [key for key in left if begins[key] <= now]
        later = [begins[key] for key in left if begins[key] > now]
        step = min([left[key] * len(there) / GBps for key in there] + [at - now for at in later])
        now += step
        for key in there:
            left[key] -= step * GBps / len(there)
            if left[key] < 1e-9:
                ends[key] = now
                del left[key]
    return ends


@given(
    st.floats(0.5, 20),
    st.lists(st.tuples(st.integers(0, 50).map(float), st.integers(1, 40).map(float)), max_size=8),
)
def test_transfers_share_the_store_evenly(GBps: float, transfers: Transfers) -> None:
    assert ends_of(Store(GBps), transfers) == pytest.approx(twin_of(GBps, transfers), abs=1e-6)


def test_a_transfer_that_is_dropped_leaves_its_share_to_the_others() -> None:
    store = Store(1.0)
    store.begin("a", 10, 0)
    store.begin("b", 10, 0)
    store.drop("a", 10)
    assert store.next_moment() == 15
    assert store.pop(15) == "b"
    assert store.next_moment() is None
