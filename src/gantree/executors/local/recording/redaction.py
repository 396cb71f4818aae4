"""Redacts commands and environments in records: whatever looks like a secret.

The rule (see docs/training.md): a variable or option is a secret by its *name* if one of the words of the name
(parted by `_`, `-` or `.`) is of `SECRET_WORDS`, or ends with one of `SECRET_ENDS`; a value is one by its *form* if it
is a URL with a password, a private key, or begins as tokens of well-known services do. Numbers of up to seven digits
and booleans are no secrets (`--max-tokens 4096`). A name alone is always kept. What a value itself gives
by a name, as a shell's text does (`sh -c "API_KEY=x ./run"`), goes by that name.
"""

import re
from collections.abc import Mapping, Sequence

REDACTED = "(redacted)"
SECRET_WORDS = frozenset(
    {
        "key", "keys", "token", "tokens", "secret", "secrets", "password", "passwd", "passphrase", "pass", "pw",
        "credential", "credentials", "cred", "creds", "auth", "authorization", "bearer", "cookie", "cookies", "session",
        "private", "signature", "sig", "dsn", "jwt", "pat", "otp", "salt", "cert", "pwd",
    }
)  # fmt: skip
SECRET_ENDS = (
    "apikey",
    "accesskey",
    "privatekey",
    "token",
    "secret",
    "password",
    "passwd",
    "credentials",
)
_NOT_SECRET = frozenset({"ssl_cert_file", "ssl_cert_dir", "pwd"})
_PART = re.compile(r"[_.-]|(?<=[a-z0-9])(?=[A-Z])")
_LOOKS_SECRET = re.compile(
    r"[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|\b(?:gh[pousr]_|github_pat_|glpat-|hf_|sk-|xox[abprs]-|AKIA|ASIA|AIza|ya29\.|npm_|pypi-|dckr_pat_)[\w-]{8,}"
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\."
    r"|\bBearer\s+\S+",
    re.IGNORECASE,
)
_HARMLESS = re.compile(r"-?[0-9.]{1,7}|true|false|", re.IGNORECASE)
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*")
_GIVEN_INSIDE = re.compile(
    r"(?<![\w$.-])(-{0,2}[A-Za-z_][\w.-]*=|--?[A-Za-z][\w.-]*\s+)('[^']*'|\"[^\"]*\"|[^\s;&|<>'\"-][^\s;&|<>'\"]*)"
)
"""A name and its value within a longer text, as in `sh -c "export API_KEY=x; ..."`."""


def is_secret_name(name: str) -> bool:
    """Whether what is called so is a secret whatever it looks like."""
    words = [word.lower() for word in _PART.split(name)]
    if name.lower() in _NOT_SECRET:
        return False
    return any(word in SECRET_WORDS or word.endswith(SECRET_ENDS) for word in words)


def redacted_value(name: str, value: str) -> str:
    """A value as a record keeps it."""
    if _HARMLESS.fullmatch(value):
        return value
    if is_secret_name(name) or _LOOKS_SECRET.search(value):
        return REDACTED
    return _GIVEN_INSIDE.sub(_given_inside, value)


def _given_inside(found: re.Match[str]) -> str:
    name, value = found.groups()
    is_kept = _HARMLESS.fullmatch(value.strip("'\"")) or not is_secret_name(name.strip("-= \t\n"))
    return found[0] if is_kept else name + REDACTED


def redacted_env(env: Mapping[str, str]) -> dict[str, str]:
    """An environment as a record keeps it, by name."""
    return {name: redacted_value(name, env[name]) for name in sorted(env)}


def redacted_command(words: Sequence[str]) -> list[str]:
    """A command as a record keeps it: values of `--api-key=x`, `--api-key x` and `API_KEY=x` go by their names."""
    kept: list[str] = []
    names_next = False
    for word in words:
        name, equals, value = word.partition("=")
        if equals and re.fullmatch(r"-{0,2}[A-Za-z_][\w.-]*", name):
            kept.append(f"{name}={redacted_value(name.lstrip('-'), value)}")
        elif names_next and not _OPTION.fullmatch(word):
            kept.append(redacted_value("secret", word))
        else:
            kept.append(redacted_value("", word))
        names_next = bool(_OPTION.fullmatch(word)) and is_secret_name(word.lstrip("-"))
    return kept
