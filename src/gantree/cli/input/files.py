"""Files and standard input as text, for the readers in `gantree.formats`."""

import sys
from pathlib import Path

from gantree.cli.options import PRESETS
from gantree.model.errors import BadInput
from gantree.text.words import did_you_mean

STDIN = "-"
MAX_BYTES = 32 << 20
"""What the readers in `gantree.formats` take at most."""
MAX_POLICY_BYTES = 1 << 20
"""As `formats.policies.MAX_POLICY_FILE_BYTES`, which takes long to import; a test holds the two equal."""


def read_text(name: str) -> str:
    """The text of a file, or of standard input for "-". Raises BadInput if it cannot be read as UTF-8."""
    try:
        raw = _start_of(name)
        if len(raw) > MAX_BYTES:
            raise BadInput(f"{source_of(name)}: larger than {MAX_BYTES >> 20} MiB")
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{source_of(name)}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise BadInput(f"{source_of(name)}: {(error.strerror or str(error)).lower()}") from None


def _start_of(name: str) -> bytes:
    """All of a file, or just more of it than any reader takes: the file may be a device that never ends."""
    if name == STDIN:
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    with Path(name).open("rb") as file:
        return file.read(MAX_BYTES + 1)


def read_policy_text(name: str) -> str:
    """As `read_text`, of what is named as a policy and is no preset; an error tells the presets, too."""
    try:
        text = read_text(name)
    except BadInput as error:
        allowed = f"a policy file, or a preset ({', '.join(PRESETS)})"
        raise BadInput(
            f"{error}; allowed: {allowed}. {did_you_mean(name, PRESETS)}".rstrip()
        ) from None
    if len(text.encode()) > MAX_POLICY_BYTES:
        raise BadInput(f"{source_of(name)}: larger than {MAX_POLICY_BYTES >> 20} MiB")
    return text


def source_of(name: str) -> str:
    """How messages name the file."""
    return "standard input" if name == STDIN else name


def base_dir_of(name: str) -> Path:
    """The directory that relative paths in the file start from. Raises BadInput if its name is not UTF-8."""
    directory = Path.cwd() if name == STDIN else Path(name).absolute().parent
    check_utf8(str(directory), "the directory of the file")
    return directory


def check_utf8(text: str, whose: str) -> None:
    """Raise BadInput where text that came from the system holds bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInput(f"{whose}: not UTF-8 text: {text!r}") from None
