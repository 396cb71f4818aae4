"""Log lines: one JSON object each, fields from the context, libraries' lines alike, nothing secret in any of them."""

import io
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.contextvars import bound_contextvars

from gantree.api.observability.log_format import (
    REDACTED,
    Format,
    Level,
    formatter,
    redact,
    redacted,
    set_up,
)

SECRET = "s3cr3t-Value_9"


def record(message: str, *values: object, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("a.library", logging.WARNING, "f.py", 1, message, values, None)
    vars(made).update(fields)
    return made


def line(message: str, *values: object, **fields: object) -> str:
    return formatter(as_json=True).format(record(message, *values, **fields))


def test_a_line_of_any_library_is_one_json_object_with_the_fields_of_its_context() -> None:
    with bound_contextvars(job="a", attempt=2, cause="a/2/started", turn=7, epoch=3):
        text = line("no %s on %s", "room", "n0", node="n0")
    assert "\n" not in text
    found = json.loads(text)
    assert found.pop("timestamp").endswith("Z")
    assert found == {
        "event": "no room on n0", "level": "warning", "logger": "a.library", "node": "n0",
        "job": "a", "attempt": 2, "cause": "a/2/started", "turn": 7, "epoch": 3,
    }  # fmt: skip


def test_an_exception_stands_in_its_line() -> None:
    try:
        raise ValueError(f"password={SECRET}")
    except ValueError as error:
        made = record("broken")
        made.exc_info = (ValueError, error, error.__traceback__)
    found = json.loads(formatter(as_json=True).format(made))
    assert "Traceback" in found["exception"]
    assert SECRET not in found["exception"]


@pytest.mark.parametrize(
    ("form", "is_json"), [(Format.AUTO, True), (Format.JSON, True), (Format.TEXT, False)]
)
def test_off_a_terminal_auto_means_json(kept_logging: None, form: Format, is_json: bool) -> None:
    out = io.StringIO()
    set_up(Level.INFO, form, out)
    logging.getLogger("x").info("hello", extra={"job": "a"})
    logging.getLogger("x").debug("not this")
    assert out.getvalue().startswith("{") == is_json
    assert out.getvalue().count("\n") == 1
    assert "hello" in out.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {SECRET}",
        f"authorization=Basic {SECRET}",
        f"{{'authorization': 'Bearer {SECRET}'}}",
        f"asked with bearer {SECRET}",
        f"postgresql+psycopg://user:{SECRET}@db:5432/gantree",
        f"cannot connect to redis://:{SECRET}@cache",
        f"https://u:p@{SECRET}@host/path",
        f"PGPASSWORD={SECRET} psql",
        f"password: {SECRET}, user: x",
        f'{{"token": "{SECRET}"}}',
        f"?api_key={SECRET}&x=1",
        "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0." + SECRET,
    ],
)
def test_secrets_are_blotted_out_of_texts(text: str) -> None:
    assert SECRET not in redacted(text)
    assert REDACTED in redacted(text)
    assert SECRET not in line("said %s", text)
    assert SECRET not in line("said", said=text)


@pytest.mark.parametrize(
    "name",
    ["authorization", "Authorization", "password", "db_password", "token", "tokens", "api-key",
     "client_secret", "Cookie"],
)  # fmt: skip
def test_fields_named_like_secrets_are_blotted_out_however_deep(name: str) -> None:
    fields = {"outer": [{"inner": {name: SECRET}}], name: SECRET}
    assert SECRET not in json.dumps(redact(None, "", fields))
    assert SECRET not in line("x", **{name: SECRET})


@pytest.mark.parametrize(
    "text",
    [
        "order a/1/start: StartGang",
        "set aside: event 4, TimePassed p",
        "postgresql://host:5432/gantree has no table",
        "the token file /x/token cannot be read: denied",
        "epoch 3 has begun, 2 is over",
        "the basic shape",
        "by basic counting",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redacted(text) == text


@given(
    st.text(alphabet=st.characters(codec="ascii", categories=["L", "N"]), min_size=8, max_size=40)
)
def test_no_password_of_an_address_survives(password: str) -> None:
    found = redacted(f"journal postgresql://gantree:{password}@db/gantree: refused")
    assert found == f"journal postgresql://gantree:{REDACTED}@db/gantree: refused"
