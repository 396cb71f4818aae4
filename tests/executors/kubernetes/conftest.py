"""What holds for all tests of gantree on Kubernetes.

Those of a stage, which keeps gantree's state in tmp_path, run on a real server too, where KUBEBUILDER_ASSETS names one.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest

from gantree.executors.kubernetes.workloads import gangs
from support.kubernetes.real import ETCD, is_asked_for, real_controllers, real_server
from support.kubernetes.server.server import Settings
from support.kubernetes.shared import CONTROLLERS, SharedServer, or_skipped
from support.pods import PodStage


@pytest.fixture(autouse=True)
def _what_failed_starts_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that tests need not wait for the backoff of a gang whose owner names none."""
    monkeypatch.setattr(gangs, "RESTARTS", replace(gangs.RESTARTS, backoff_s=0.2))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests with a stage run on both servers, but for those of what only ours lets happen."""
    knows_stages = any(_is_stage(each) for each in vars(metafunc.module).values())
    has_one = knows_stages and "tmp_path" in metafunc.fixturenames
    is_only_ours = metafunc.definition.get_closest_marker("only_ours") is not None
    if has_one and is_asked_for() and not is_only_ours:
        metafunc.parametrize("server", ["ours", "real"], indirect=True)


def _is_stage(told: object) -> bool:
    return isinstance(told, type) and issubclass(told, PodStage)


@pytest.fixture(autouse=True)
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of a test's stages: ours or a real one."""
    if getattr(request, "param", "ours") == "real":
        has_front = request.node.get_closest_marker("faults") is not None
        opened = partial(request.getfixturevalue("open_real"), has_front)
        monkeypatch.setattr(PodStage, "open_server", staticmethod(opened))


@pytest.fixture(scope="session")
def open_real(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[bool, Settings], SharedServer]]:
    """How a stage comes by a real server, one after another by the same."""
    place = tmp_path_factory.mktemp("kubernetes")
    with (
        or_skipped(),
        real_server(place) as (url, token),
        real_controllers(place, url, *CONTROLLERS),
    ):

        def opened(has_front: bool, settings: Settings) -> SharedServer:
            if replace(settings, access=None) != Settings():
                pytest.skip("needs a server that serves other things")
            return SharedServer(url, token, (place / ETCD).read_text(), has_front)

        yield opened
