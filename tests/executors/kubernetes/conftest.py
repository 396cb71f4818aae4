"""What holds for all tests of gantree on Kubernetes."""

from dataclasses import replace

import pytest

from gantree.executors.kubernetes.workloads import gangs


@pytest.fixture(autouse=True)
def _what_failed_starts_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that tests need not wait for the backoff of a gang whose owner names none."""
    monkeypatch.setattr(gangs, "RESTARTS", replace(gangs.RESTARTS, backoff_s=0.2))
