"""The command by which docs/training.md runs the tests of the integrations, in an environment that has pytest alone."""

import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

ROOT = Path(__file__).parents[2]
ALONE = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")


def environment_of(folder: Path) -> Path:
    """Site packages with pytest and what it needs."""
    site = folder / "site"
    site.mkdir()
    for name in ALONE:
        files = distribution(name).files or []
        for top in {file.parts[0] for file in files if file.parts[0] not in ("..", "__pycache__")}:
            (site / top).symlink_to(str(distribution(name).locate_file(top)))
    return site


def test_the_documented_command_passes_where_only_pytest_is_installed(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "training.md").read_text()
    (words,) = re.findall(r"PYTHONPATH=src v/bin/python (-m pytest .*)", text)
    python = str(Path(sys.base_prefix) / "bin" / "python3")
    told = subprocess.run(
        [python, "-S", *words.split()],
        cwd=ROOT,
        env={"PYTHONPATH": f"src:{environment_of(tmp_path)}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "passed" in told.stdout
