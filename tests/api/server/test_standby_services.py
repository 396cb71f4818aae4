"""What a standby says of services: those of its journal; those that a cluster keeps itself are the leader's alone."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from gantree.api.server.standby.reads import StandbyBackend
from gantree.api.views import service_view
from gantree.control.readers.supervisor import ReaderSupervisor
from gantree.model.errors import NotLeading


class Journal:
    """A reader whose journal has one service."""

    async def query(self, *_: Any, **__: Any) -> Any:
        return type("Reply", (), {"value": ["chat"]})()


def answer(tmp_path: Path, *, cluster_keeps_services: bool) -> object:
    standby = StandbyBackend(
        cast("ReaderSupervisor", Journal()),
        tmp_path,
        asyncio.Event(),
        lambda: NotLeading("b stands by: a leads at https://a:8443", "a", "https://a:8443"),
        cluster_keeps_services=cluster_keeps_services,
    )
    return asyncio.run(standby.read_services(service_view.services, cast("Any", None), asker="ann"))


def test_services_of_the_journal_are_answered(tmp_path: Path) -> None:
    assert answer(tmp_path, cluster_keeps_services=False) == ["chat"]


def test_services_of_a_cluster_are_for_the_leader_who_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotLeading, match="a leads at https://a:8443"):
        answer(tmp_path, cluster_keeps_services=True)
