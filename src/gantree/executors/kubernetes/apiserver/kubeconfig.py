"""Kubeconfig files: which server, and how to log in. Plug-ins are run as the file says, never through a shell."""

import base64
import binascii
import json
import os
import subprocess
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from gantree.executors.kubernetes.apiserver.connection import (
    READ_AGAIN_S,
    Connection,
    Token,
    inside_a_pod,
    is_inside_a_pod,
    token_in_file,
)
from gantree.model.errors import BadInput

PLUG_IN_WITHIN_S = 30.0
EARLY_S = 60.0
"""A token of a plug-in is asked for anew so long before it ends."""

Section = dict[str, Any]


def connection_of(server: str | None, kubeconfig: Path | None, context: str | None) -> Connection:
    """By address; else by a kubeconfig that is named; else as the pod that this is; else by the usual kubeconfig.

    Raises BadInput.
    """
    if server is not None:
        return Connection(server)
    if kubeconfig is None and is_inside_a_pod():
        return inside_a_pod()
    return by_kubeconfig(kubeconfig or _usual(os.environ), context)


def by_kubeconfig(path: Path, context: str | None = None) -> Connection:
    """As a kubeconfig says, in its current context unless another is named. Raises BadInput."""
    told = _read(path)
    name = context or str(told.get("current-context") or "")
    chosen = _named(told, "contexts", "context", name, path)
    cluster = _named(told, "clusters", "cluster", str(chosen.get("cluster", "")), path)
    user = _named(told, "users", "user", str(chosen.get("user", "")), path)
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("http://", "https://")):
        raise BadInput(f"{path}: clusters: server: found {server!r}; write https://HOST:PORT")
    return Connection(
        server,
        authority=_text(cluster, "certificate-authority", path),
        certificate=_text(user, "client-certificate", path),
        key=_text(user, "client-key", path),
        ask_token=_token(user, path),
        verify=not cluster.get("insecure-skip-tls-verify", False),
        namespace=str(chosen.get("namespace") or "default"),
    )


def _usual(environment: Mapping[str, str]) -> Path:
    """The first file that KUBECONFIG names, else the one in the home directory."""
    first = environment.get("KUBECONFIG", "").split(os.pathsep)[0]
    return Path(first) if first else Path.home() / ".kube" / "config"


def _read(path: Path) -> Section:
    try:
        told = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; name another with --kubeconfig") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{path}: is no kubeconfig: {error}") from error
    if not isinstance(told, dict):
        raise BadInput(f"{path}: is no kubeconfig: found {type(told).__name__}")
    return told


def _named(told: Section, many: str, one: str, name: str, path: Path) -> Section:
    entries = told.get(many)
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name:
            found = entry.get(one)
            return found if isinstance(found, dict) else {}
    raise BadInput(f"{path}: {many}: there is no {name!r}")


def _text(section: Section, key: str, path: Path) -> str | None:
    """A certificate or key, given in place or in a file beside the kubeconfig."""
    given, file = section.get(f"{key}-data"), section.get(key)
    try:
        if given:
            return base64.b64decode(str(given), validate=True).decode()
        return (path.parent / str(file)).read_text(encoding="utf-8") if file else None
    except (binascii.Error, UnicodeDecodeError, OSError) as error:
        raise BadInput(f"{path}: {key}: {error}") from error


def _token(user: Section, path: Path) -> Callable[[], Token] | None:
    if "auth-provider" in user:
        raise BadInput(
            f"{path}: users: auth-provider is of old clusters; use exec, a token or a client certificate"
        )
    if user.get("exec"):
        return _plug_in(user["exec"], path)
    if user.get("tokenFile"):
        return token_in_file(path.parent / str(user["tokenFile"]))
    fixed = str(user.get("token") or "")
    return (lambda: (fixed, float("inf"))) if fixed else None


def _plug_in(section: Section, path: Path) -> Callable[[], Token]:
    """Asks a plug-in (ExecCredential) for a token."""
    command = [str(section.get("command")), *map(str, section.get("args") or ())]
    told = {str(each.get("name")): str(each.get("value")) for each in section.get("env") or ()}
    info = {
        "apiVersion": str(section.get("apiVersion")),
        "kind": "ExecCredential",
        "spec": {"interactive": False},
    }
    environment = {**os.environ, **told, "KUBERNETES_EXEC_INFO": json.dumps(info)}

    def fetch_token() -> Token:
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, timeout=PLUG_IN_WITHIN_S, check=True
            )
            status = json.loads(done.stdout)["status"]
            return str(status["token"]), _good_s(status.get("expirationTimestamp"))
        except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
            raise BadInput(f"{path}: users: exec: {command[0]} gave no token: {error}") from error

    return fetch_token


def _good_s(ends: str | None) -> float:
    if not ends:
        return READ_AGAIN_S
    end = datetime.fromisoformat(ends)
    return max(0.0, (end - datetime.now(end.tzinfo)).total_seconds() - EARLY_S)
