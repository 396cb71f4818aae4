"""Errors cross the wire and come out as what they were."""

import json

import pytest

from gantree.api.http.problems import STATUS, error_of, problem_of
from gantree.model.errors import (
    BadFields,
    BadInput,
    Conflict,
    GantreeError,
    JournalError,
    NotFound,
    NotLeading,
    Problem,
    Unreachable,
    Unsupported,
)

FIELDS = BadFields(
    [
        Problem("job.yaml", 3, "gang[0].members", "-1", "1 or more", "near"),
        Problem("x", None, "f", "a", "b"),
    ]
)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (FIELDS, 422),
        (BadInput("bad"), 422),
        (Unsupported("mig"), 422),
        (NotFound("no job é"), 404),
        (Conflict("ended"), 409),
        (Unreachable("gone"), 503),
        (JournalError("full"), 503),
        (GantreeError("odd"), 500),
    ],
)
def test_an_error_comes_back_as_it_went(error: GantreeError, status: int) -> None:
    sent_status, body = problem_of(error)
    assert sent_status == status == body["status"]
    back = error_of(sent_status, json.loads(json.dumps(body)))
    assert type(back) is type(error)
    assert str(back) == str(error)
    if isinstance(error, BadFields):
        assert isinstance(back, BadFields)
        assert back.problems == error.problems


def test_every_error_of_the_tree_has_a_status() -> None:
    def tree(kind: type[GantreeError]) -> set[type[GantreeError]]:
        return {kind}.union(*(tree(child) for child in kind.__subclasses__()))

    assert {
        kind for kind in tree(GantreeError) if kind.__module__ == "gantree.model.errors"
    } == set(STATUS)


@pytest.mark.parametrize("body", [{}, {"title": "Nonsense", "detail": "x"}, {"title": "BadFields"}])
def test_a_body_that_is_none_of_ours_is_still_an_error(body: dict[str, object]) -> None:
    assert type(error_of(502, body)) is GantreeError


def test_a_leader_that_another_server_names_wrongly_is_none() -> None:
    error = error_of(503, {"title": "NotLeading", "leader": 5, "leader_url": ["x"]})
    assert isinstance(error, NotLeading)
    assert (error.leader, error.url) == (None, None)
