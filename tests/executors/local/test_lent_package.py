"""`gantree.training` in environments in which the scheduler is not installed."""

import sys
from pathlib import Path

import pytest

from support.gangs import GangStage

BARE_PYTHON = str(Path(sys.base_prefix) / "bin" / "python3")
"""The Python that the environment of the tests was made of: nothing is installed there."""
SHOW = "import sys; from gantree import training; print(training.rank(), training.__file__)"


def test_a_script_imports_the_helper_where_gantree_is_not_installed(stage: GangStage) -> None:
    stage.start(BARE_PYTHON, "-S", "-c", SHOW, env=(("PYTHONPATH", "/mine"),))
    assert stage.until_ended() == 0, stage.log()
    rank, file = stage.log().split()
    assert rank == "0"
    assert Path(file).is_relative_to(stage.state_dir / "lent")


@pytest.mark.parametrize("module", ["gantree/__init__.py", "gantree.py"])
def test_an_installed_gantree_and_a_module_of_the_user_come_first(
    stage: GangStage, tmp_path: Path, module: str
) -> None:
    own = tmp_path / "own" / module
    own.parent.mkdir(parents=True)
    own.write_text("WHOSE = 'mine'\n")
    show = f"import sys; sys.path.append({str(tmp_path / 'own')!r}); import gantree; print(gantree.WHOSE)"
    stage.start(BARE_PYTHON, "-S", "-c", show)
    assert stage.until_ended() == 0, stage.log()
    assert stage.log() == "mine\n"


def test_the_directory_holds_that_package_alone_and_comes_last(stage: GangStage) -> None:
    stage.start("sh", "-c", "echo $PYTHONPATH", env=(("PYTHONPATH", "/mine:/too"),))
    assert stage.until_ended() == 0
    *own, lent = stage.log().strip().split(":")
    assert own == ["/mine", "/too"]
    files = [path.relative_to(lent) for path in Path(lent).rglob("*") if path.is_file()]
    assert {path.parent.as_posix() for path in files} == {"gantree/training"}
    assert Path("gantree/training/__init__.py") in files
