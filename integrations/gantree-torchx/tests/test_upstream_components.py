"""TorchX's own integration test of a scheduler: its built-in components run to success and their logs are read.

`dist.ddp` needs PyTorch, which is in no lock here; it runs where PyTorch is installed.
"""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from torchx.components.integration_tests import component_provider
from torchx.components.integration_tests.integ_tests import IntegComponentTest


def _providers() -> ModuleType:
    has_torch = importlib.util.find_spec("torch") is not None
    module = ModuleType("providers")
    vars(module).update(
        {
            name: value
            for name, value in vars(component_provider).items()
            if has_torch or name != "DDPComponentProvider"
        }
    )
    return module


def test_the_components_of_torchx_run(
    daemon: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("to be copied")
    IntegComponentTest().run_components(
        _providers(), image=str(tmp_path), scheduler="gantree", cfg={}
    )
    assert (tmp_path / "README.md.copy").read_text() == "to be copied"
    assert (tmp_path / "torchx_touch_test.txt").exists()
