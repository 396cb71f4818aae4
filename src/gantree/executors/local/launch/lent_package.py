"""The directory with `gantree.training` alone that every process gets at the end of its PYTHONPATH.

So a script imports it from an environment in which the scheduler is not installed. The directory has no
`gantree/__init__.py`: Python takes a regular package of that name wherever one is found, so an installed gantree, or a
module of the user's own, comes before it. It is a copy, because others than the daemon's user may not be able to read
where the daemon is installed, and its name is that of its content, because a newer daemon must not change the files of
running jobs.
"""

import os
import shutil
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp

LENT = "lent"


def lent_package(state_dir: Path) -> Path:
    """The directory for PYTHONPATH, made where it is not there yet. Raises OSError."""
    sources = _sources()
    digest = sha256(b"".join(path.name.encode() + path.read_bytes() for path in sources))
    lent = state_dir / LENT / digest.hexdigest()[:16]
    if not lent.is_dir():
        lent.parent.mkdir(exist_ok=True)
        _copy(sources, lent)
    return lent


def with_lent_package(python_path: str | None, lent: Path) -> str:
    """A PYTHONPATH with the directory behind all that it has."""
    return f"{python_path}{os.pathsep}{lent}" if python_path else str(lent)


def _sources() -> list[Path]:
    spec = find_spec("gantree.training")
    assert spec is not None
    assert spec.origin is not None
    return sorted(Path(spec.origin).parent.glob("*.py"))


def _copy(sources: list[Path], lent: Path) -> None:
    """Whole or not at all; of two daemons that begin, either's copy will do."""
    draft = Path(mkdtemp(prefix=".new-", dir=lent.parent))
    try:
        package = draft / "gantree" / "training"
        package.mkdir(parents=True)
        for path in sources:
            shutil.copyfile(path, package / path.name)
            (package / path.name).chmod(0o644)
        lent.parent.chmod(0o711)
        for folder in (draft, package.parent, package):
            folder.chmod(0o755)
        draft.rename(lent)
    except OSError:
        if not lent.is_dir():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
