"""pytest plug-in for submitit's own suite (`pytest -p upstream --pyargs submitit`): its local executor is ours.

What is left out, and why, is in LEFT_OUT; all else must pass.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from submitit.core import plugins
from submitit.local import local

from gantree_submitit import GantreeExecutor, GantreeJob

LEFT_OUT = {
    "test_local_job": "at its end it reads LocalJob._process",
    "test_killed": "kills the process of LocalJob",
    "test_cancel": "expects a job to run at once, and reads LocalJob._process",
    "test_make_subprocess": "tests the controller of the local executor",
    "test_find_good_plugin": "expects no plug-in beside its own",
    "test_skip_bad_plugin": "expects no plug-in beside its own",
    "test_assert_markdown_links_not_broken": "needs submitit's repository",
    "test_as_completed": "expects a job to start within 1.4 s",
    "test_requeuing": "expects Python to start within a second, with a time limit of three",
    "test_command_function_deadlock": "measures time, and has nothing to do with executors",
}
_known = dict(plugins.get_executors())  # before the local one is another


class LocalExecutor(GantreeExecutor):
    """gantree's, under the name of the one whose place it takes."""

    @classmethod
    def name(cls) -> str:
        return "local"


def _executors() -> Mapping[str, Any]:
    return {**_known, "local": LocalExecutor}


setattr(local, "LocalExecutor", LocalExecutor)  # noqa: B010 - mypy minds an assignment
setattr(local, "LocalJob", GantreeJob)  # noqa: B010 - the same
_executors.cache_clear = lambda: None  # type: ignore[attr-defined]  # its tests clear the cache of the original
setattr(plugins, "get_executors", _executors)  # noqa: B010 - the same


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is left out."""
    left_out = [item for item in items if item.name.split("[")[0] in LEFT_OUT]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(autouse=True)
def _on_gantree(daemon: Any) -> None:
    """Every test has the daemon of the run."""
