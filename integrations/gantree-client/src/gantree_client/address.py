"""Where the daemon is: a state directory with its socket, or URLs with a token, from arguments or the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gantree_client.errors import ApiError

DEFAULT_STATE = "~/.local/state/gantree"
SOCKET = "gantree.sock"


@dataclass(frozen=True)
class Address:
    """A state directory, or one or more URLs of which one leads."""

    state_dir: Path | None = None
    urls: tuple[str, ...] = ()
    token: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """How to name it in a sentence."""
        return (
            f"in {self.state_dir}" if self.state_dir is not None else f"at {', '.join(self.urls)}"
        )


def address(where: Path | str | None = None, variables: Mapping[str, str] = os.environ) -> Address:
    """The daemon at where: a path, URLs with commas between them, or what the environment names.

    Tokens come from the environment only. Raises ApiError.
    """
    if where is None:
        where = _from(variables)
    if isinstance(where, str) and "://" not in where:
        where = Path(where)
    if isinstance(where, Path):
        return Address(state_dir=where.expanduser().absolute())
    urls = tuple(url.strip().rstrip("/") for url in where.split(",") if url.strip())
    for url in urls:
        if not url.startswith(("http://", "https://")) or "@" in url:
            raise ApiError(
                f"GANTREE_SERVER: found {url!r}; allowed: a URL such as https://host:8443"
            )
    return Address(urls=urls, token=_token(variables))


def _from(variables: Mapping[str, str]) -> Path | str:
    if state := variables.get("GANTREE_STATE"):
        return Path(state)
    if server := variables.get("GANTREE_SERVER"):
        return server if "://" in server else f"invalid://{server}"
    return Path(DEFAULT_STATE)


def _token(variables: Mapping[str, str]) -> str | None:
    if token := variables.get("GANTREE_TOKEN"):
        return token
    named = variables.get("GANTREE_TOKEN_FILE")
    if not named:
        return None
    try:
        return Path(named).expanduser().read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ApiError(f"GANTREE_TOKEN_FILE: {named} cannot be read: {error}") from None
