"""Lives of a federation under faults, and bugs that the checker must find in them."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from gantree.control.federation.lease import Lease, renewed
from gantree.federation.granted_lease import GrantedLease
from gantree.federation.jobs.federated_jobs import FederatedJobs
from gantree.model.federation import Renewal, Stamp
from support.examples import seeds
from support.federation import simulated_cluster
from support.federation.lives import Life, check
from support.federation.simulated_cluster import SimulatedCluster

SEARCHED = 200


@pytest.mark.parametrize("seed", seeds(40))
def test_nothing_runs_twice_nothing_is_lost_and_every_job_ends(seed: int) -> None:
    check(Life(seed).run())


def moves_without_the_lease(patch: pytest.MonkeyPatch) -> None:
    """The front moves jobs as soon as a cluster is silent."""
    patch.setattr(GrantedLease, "is_over", lambda self, now_s: now_s - self.answered_at_s > 20.0)


def renews_before_strays_are_gone(patch: pytest.MonkeyPatch) -> None:
    """A cluster that returns gets its lease, and releases what was moved."""
    renewal = GrantedLease.renewal

    def at_once(self: GrantedLease, now_s: float) -> Renewal:
        self.is_cleared = True
        return renewal(self, now_s)

    patch.setattr(GrantedLease, "renewal", at_once)


def counts_from_the_arrival(patch: pytest.MonkeyPatch) -> None:
    """The cluster counts the lease from the arrival of a renewal."""

    def late(lease: Lease | None, asked: Renewal, now: Stamp) -> Lease:
        is_stamped = asked.stamp is not None and asked.stamp.boot == now.boot
        return renewed(lease, replace(asked, stamp=now) if is_stamped else asked, now)

    patch.setattr(simulated_cluster, "renewed", late)


def ends_with_the_daemon_alone(patch: pytest.MonkeyPatch) -> None:
    """Shims do not read the lease: what a killed daemon started runs on."""
    is_over = SimulatedCluster._lease_is_over
    patch.setattr(
        SimulatedCluster, "_lease_is_over", lambda self, now: self.is_up and is_over(self, now)
    )


def forgets_the_number(patch: pytest.MonkeyPatch) -> None:
    """The number of a lease is not durable: a front that starts again goes on with the old one."""
    withdraw = FederatedJobs.withdraw
    patch.setattr(
        FederatedJobs,
        "withdraw",
        lambda self, jobs, reason, lease=None: withdraw(self, jobs, reason),
    )


def starts_without_the_lease(patch: pytest.MonkeyPatch) -> None:
    """A Kubernetes cluster that was switched off goes on by itself."""
    for name in ("_is_running_out", "_lease_is_over"):
        with_lease = getattr(SimulatedCluster, name)
        patch.setattr(
            SimulatedCluster,
            name,
            lambda self, now, with_lease=with_lease: self._ends_jobs and with_lease(self, now),
        )


@pytest.mark.parametrize(
    ("plant", "first"),
    [
        (moves_without_the_lease, 0),
        (renews_before_strays_are_gone, 0),
        (counts_from_the_arrival, 0),
        (ends_with_the_daemon_alone, 0),
        (starts_without_the_lease, 0),
        (forgets_the_number, 4),
    ],
)
def test_the_checker_finds_a_planted_bug(
    plant: Callable[[pytest.MonkeyPatch], None], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search begins at a seed that finds it today; which one does changes with the lives."""
    plant(monkeypatch)
    assert any(is_broken(seed) for seed in range(first, first + SEARCHED))


def is_broken(seed: int) -> bool:
    try:
        check(Life(seed).run())
    except AssertionError:
        return True
    return False
