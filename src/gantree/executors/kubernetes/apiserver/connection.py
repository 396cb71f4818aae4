"""The connection to an API server: from inside a pod, by a kubeconfig, or to a plain address.

A token may be fixed, stand in a file (the kubelet renews it), or come from a plug-in that a kubeconfig names (`exec`):
both are asked anew when they get old. Other ways to log in (`auth-provider`) are refused.
"""

import os
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gantree.model.errors import BadInput

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds the token and the authority of its service account."""
READ_AGAIN_S = 60.0

Token = tuple[str, float]
"""A bearer token, and for how many seconds it may be used before it is asked for anew."""


@dataclass(slots=True)
class Connection:
    """An address and what it takes to be let in. authority, certificate and key are PEM texts."""

    server: str
    authority: str | None = None
    certificate: str | None = None
    key: str | None = field(default=None, repr=False)
    ask_token: Callable[[], Token] | None = None
    verify: bool = True
    namespace: str = "default"
    _token: str = field(default="", repr=False)
    _old_at: float = field(default=float("-inf"), repr=False)

    @property
    def is_token_old(self) -> bool:
        """Whether the token must be asked for before the next request."""
        return self.ask_token is not None and time.monotonic() >= self._old_at

    def renew(self) -> None:
        """Ask for the token; this may read a file or run a plug-in. Raises BadInput."""
        if self.ask_token is not None:
            self._token, good_s = self.ask_token()
            self._old_at = time.monotonic() + good_s

    @property
    def token(self) -> str:
        """The bearer token as last asked for, "" for none."""
        return self._token

    def ssl_context(self) -> ssl.SSLContext | None:
        """What to trust and show over TLS; None for a plain address. Raises BadInput for what cannot be used."""
        if not self.server.startswith("https:"):
            return None
        try:
            context = ssl.create_default_context(cadata=self.authority)
            if self.certificate is not None:
                with _in_memory(self.certificate) as shown, _in_memory(self.key or "") as key:
                    context.load_cert_chain(shown, key if self.key else None)
        except (OSError, ssl.SSLError) as error:
            raise BadInput(f"certificates for {self.server}: {error}") from error
        if not self.verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context


def token_in_file(path: Path) -> Callable[[], Token]:
    """A token in a file that another program refreshes."""

    def read() -> Token:
        try:
            return path.read_text(encoding="utf-8").strip(), READ_AGAIN_S
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{path}: the token cannot be read: {error}") from error

    return read


def inside_a_pod() -> Connection:
    """As the service account of the pod that this runs in. Raises BadInput where there is none."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        authority = (ACCOUNT / "ca.crt").read_text(encoding="utf-8")
        namespace = (ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
    except OSError as error:
        raise BadInput(f"{error.filename}: {error.strerror}; is this a pod?") from error
    address = f"[{host}]" if ":" in host else host
    return Connection(
        f"https://{address}:{port}",
        authority=authority,
        ask_token=token_in_file(ACCOUNT / "token"),
        namespace=namespace,
    )


def is_inside_a_pod() -> bool:
    """Whether this process runs in a pod that may talk to its API server."""
    return "KUBERNETES_SERVICE_HOST" in os.environ and ACCOUNT.exists()


@contextmanager
def _in_memory(text: str) -> Iterator[str]:
    """A path under which a text can be read, while it is needed: TLS takes certificates from files alone."""
    handle = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        os.write(handle, text.encode())
        yield f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)
