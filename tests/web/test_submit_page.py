"""The file that the page for handing in jobs begins with names a queue that takes it."""

from typing import Any

import pytest

from gantree.api.access.access import EVERYTHING, Caller
from gantree.model.access import grant_of
from gantree.web.pages.submit import queue_for

OPERATOR = Caller("op", EVERYTHING, "tcp")
VISITOR = Caller("v", (grant_of("user", "serving"),), "tcp")


def rows(*queues: str, **more: bool) -> list[dict[str, Any]]:
    """Rows as GET /v1/queues tells them: in_policy stands only where it is false."""
    return [
        {"kind": "cluster", "queue": None},
        *({"kind": "queue", "queue": each, **more} for each in queues),
    ]


@pytest.mark.parametrize(
    ("caller", "told", "queue"),
    [
        (OPERATOR, rows(), "default"),
        (OPERATOR, rows("default", "serving"), "default"),
        (OPERATOR, rows("research", "research/nlp", "serving"), "research/nlp"),
        (VISITOR, rows("research", "research/nlp", "serving"), "serving"),
        (OPERATOR, rows("gone", in_policy=False), "default"),
    ],
)
def test_the_file_names_a_queue_that_takes_jobs_of_the_caller(
    caller: Caller, told: list[dict[str, Any]], queue: str
) -> None:
    assert queue_for(caller, told) == queue
