"""Files and standard input as text, for the readers in `gantree.formats`."""

import sys
from pathlib import Path

from gantree.model.errors import BadInput

STDIN = "-"


def read_text(name: str) -> str:
    """The text of a file, or of standard input for "-". Raises BadInput if it cannot be read as UTF-8."""
    try:
        raw = sys.stdin.buffer.read() if name == STDIN else Path(name).read_bytes()
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{source_of(name)}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise BadInput(f"{source_of(name)}: {(error.strerror or str(error)).lower()}") from None


def source_of(name: str) -> str:
    """How messages name the file."""
    return "standard input" if name == STDIN else name


def base_dir_of(name: str) -> Path:
    """The directory that relative paths in the file start from."""
    return Path.cwd() if name == STDIN else Path(name).absolute().parent
