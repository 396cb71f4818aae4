"""The address of a daemon: the socket of a state directory, or a URL with a token; errors if it does not answer.

Standard library only, as both clients import it.
"""

import os
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from gantree.api.http import unix_socket
from gantree.model.errors import BadInput, GantreeError, Unreachable

SERVER_VARIABLE = "GANTREE_SERVER"
TOKEN_VARIABLE = "GANTREE_TOKEN"  # noqa: S105 - the name of a variable
TOKEN_FILE_VARIABLE = "GANTREE_TOKEN_FILE"  # noqa: S105 - the same

NOBODY_LISTENS = (FileNotFoundError, NotADirectoryError, ConnectionRefusedError)


class NotSent(Exception):
    """A request reached no daemon, because of error."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(str(error))


@dataclass(frozen=True, slots=True)
class Target:
    """state_dir, or server (scheme, host, port) with the path that stands before its routes."""

    state_dir: Path | None = None
    scheme: str = "http"
    host: str = "localhost"
    port: int | None = None
    prefix: str = ""
    token: str | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """What to call the daemon in a sentence."""
        if self.state_dir is not None:
            return f"in {self.state_dir}"
        return f"at {self.url}"

    @property
    def url(self) -> str:
        """What all paths are behind."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.prefix}"

    @property
    def headers(self) -> dict[str, str]:
        """What every request carries."""
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}

    def is_starting(self, error: Exception) -> bool:
        """Whether a request reached nobody because the daemon does not listen yet."""
        return self._starting_process(error) is not None

    def _starting_process(self, error: Exception) -> str | None:
        cause = error.error if isinstance(error, NotSent) else error
        if self.state_dir is None or not isinstance(cause, NOBODY_LISTENS):
            return None
        return unix_socket.starting_daemon(self.state_dir)

    def problem(self, error: Exception) -> GantreeError:
        """What to raise for what kept a request from being answered."""
        if isinstance(error, GantreeError):
            return error
        return self.unreachable(error.error if isinstance(error, NotSent) else error)

    def unreachable(self, error: Exception) -> Unreachable:
        """What to raise where the daemon did not answer, or stopped doing so."""
        if isinstance(error, TimeoutError):
            return Unreachable(f"the daemon {self.name} does not answer")
        if isinstance(error, ssl.SSLCertVerificationError):
            trust = "to trust an authority of your own, name its file in SSL_CERT_FILE"
            return Unreachable(f"the certificate of {self.url}: {error.verify_message}; {trust}")
        if isinstance(error, NOBODY_LISTENS):
            if self.state_dir is None:
                return Unreachable(f"no daemon answers at {self.url}")
            if (process := self._starting_process(error)) is not None:
                text = f"the daemon in {self.state_dir} (process {process}) is starting"
                return Unreachable(f"{text} and does not answer yet; try again, or see its log")
            start = f"start one: gantree up --state {self.state_dir}"
            return Unreachable(f"no daemon answers in {self.state_dir}; {start}")
        return Unreachable(f"the daemon {self.name} broke off: {error}")

    def broken_off(self, error: Exception) -> Unreachable:
        """What to raise where an answer that came bit by bit has no end."""
        rest = "what came is not all of it, ask again"
        return Unreachable(f"the daemon {self.name} broke off its answer; {rest} ({error})")


def targets(where: Path | str, token: str | None = None) -> tuple[Target, ...]:
    """The same of several URLs with commas between them: daemons of which one leads."""
    if isinstance(where, Path):
        return (target(where),)
    return tuple(target(url.strip(), token) for url in where.split(","))


def target(where: Path | str, token: str | None = None) -> Target:
    """What a state directory or a URL stands for. Raises BadInput for a URL that is none, or carries a password."""
    if isinstance(where, Path):
        return Target(state_dir=where)
    try:
        parts = urlsplit(where)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if host is None or parts.scheme not in ("http", "https") or parts.query or parts.fragment:
        raise BadInput(f"server: found {where!r}; allowed: a URL such as https://host:8443")
    if parts.username is not None:
        raise BadInput(
            f"server: a URL may hold no name or password; put a token in {TOKEN_VARIABLE}"
        )
    return Target(None, parts.scheme, host, port, parts.path.rstrip("/"), token)


def token_from_environment() -> str | None:
    """The token of GANTREE_TOKEN, else what the file of GANTREE_TOKEN_FILE holds. Raises BadInput if it cannot."""
    if token := os.environ.get(TOKEN_VARIABLE):
        return _one_word(token, TOKEN_VARIABLE)
    named = os.environ.get(TOKEN_FILE_VARIABLE)
    if not named:
        return None
    try:
        text = Path(named).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{TOKEN_FILE_VARIABLE}: {named} cannot be read: {error}") from None
    return _one_word(text, f"{TOKEN_FILE_VARIABLE}: {named}")


def _one_word(text: str, source: str) -> str:
    """The token in a text. Raises BadInput, without the text, which is a secret, for one with anything beside it."""
    token = text.strip()
    if not re.fullmatch("[!-~]*", token):
        raise BadInput(f"{source}: found more than a token; allowed: the token alone, in one line")
    return token
