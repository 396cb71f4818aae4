"""A cluster that has no nodes yet."""

from threading import Timer

import pytest

from gantree.core.scheduler import Scheduler
from gantree.core.view import LedgerView
from gantree.executors.kubernetes.apiserver.connection import Connection
from gantree.executors.kubernetes.apiserver.settings import KubernetesSettings
from gantree.executors.kubernetes.opening import Opened
from gantree.formats.policy.reader import PRESETS
from gantree.model.errors import Unreachable
from support.kubernetes.server.thread import Api, ServerThread

NODE = {
    "metadata": {"name": "n0"},
    "status": {
        "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


def view() -> LedgerView:
    return LedgerView(Scheduler(PRESETS["gantree"]).ledger)


def test_the_first_node_is_waited_for() -> None:
    """By watching: everything is listed once."""
    with ServerThread() as running, Api(running.url) as api:
        later = Timer(0.3, lambda: api.post("/api/v1/nodes", NODE))
        later.start()
        opened = Opened(
            KubernetesSettings(Connection(running.url)), lambda: None, nodes_within_s=60.0
        )
        later.join()
        try:
            assert [node.name for node in opened.site(view()).nodes] == ["n0"]
        finally:
            opened.close()


@pytest.mark.parametrize("leads", [True, False])
def test_without_a_node_it_gives_up_after_a_while_or_once_it_does_not_lead(leads: bool) -> None:
    within_s = 0.1 if leads else 60.0
    with ServerThread() as running:
        told = KubernetesSettings(Connection(running.url))
        opened = Opened(told, lambda: None, lambda: leads, within_s)
        try:
            with pytest.raises(Unreachable, match="has no nodes yet"):
                opened.site(view())
        finally:
            opened.close()
