"""Files of reports in the run directory: replaced as a whole and not synced, so that a report delays no step."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any


def replace_record(path: Path, record: dict[str, Any]) -> None:
    """Write a record in the place of the last one. Write errors are ignored."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(OSError):
        draft.write_text(json.dumps(record), encoding="utf-8")
        draft.replace(path)


def progress_folder(run_dir: str) -> Path | None:
    """Return where ranks put their reports; None where it is not visible to this process."""
    folder = Path(run_dir) / "progress"
    return folder if folder.is_dir() else None
