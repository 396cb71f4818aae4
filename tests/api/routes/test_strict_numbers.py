"""Numbers in bodies of requests are numbers: "3" and true are refused, by name."""

from typing import Any

import pytest
from pydantic import ValidationError

from gantree.api.http.request_body import Body
from gantree.api.routes.federation import RenewalRequest
from gantree.api.routes.jobs import AssignmentBody, ExtendRequest, PriorityRequest, ScaleRequest
from gantree.api.routes.nodes import BurnInRequest, FaultRequest
from gantree.api.routes.policies import RollbackRequest
from gantree.api.routes.records import RerunRequest
from gantree.api.routes.services.routing import RouterReportBody
from gantree.api.routes.services.services import ServiceScaleRequest
from gantree.api.routes.tokens import TokenRequest

NUMBERS: tuple[tuple[type[Body], str], ...] = (
    (ServiceScaleRequest, "replicas"),
    (ScaleRequest, "members"),
    (ExtendRequest, "for_s"),
    (AssignmentBody, "number"),
    (AssignmentBody, "lease"),
    (RenewalRequest, "number"),
    (RenewalRequest, "lease_s"),
    (FaultRequest, "gpu"),
    (FaultRequest, "xid"),
    (BurnInRequest, "duration_s"),
    (RollbackRequest, "version"),
    (RerunRequest, "attempt"),
    (TokenRequest, "expires_s"),
    (RouterReportBody, "window_s"),
)


def wrong_fields(body: type[Body], values: dict[str, Any]) -> set[str]:
    """The fields that are refused for their type."""
    try:
        body.model_validate(values)
    except ValidationError as error:
        return {str(each["loc"][0]) for each in error.errors() if each["type"].endswith("_type")}
    return set()


@pytest.mark.parametrize("value", ["3", True])
@pytest.mark.parametrize(("body", "field"), NUMBERS)
def test_what_looks_like_a_number_is_none(body: type[Body], field: str, value: object) -> None:
    assert field in wrong_fields(body, {field: value})


@pytest.mark.parametrize(("body", "field"), NUMBERS)
def test_a_number_is_one(body: type[Body], field: str) -> None:
    assert field not in wrong_fields(body, {field: 600})


def test_a_priority_is_a_class_or_a_number() -> None:
    assert PriorityRequest.model_validate({"priority": "5"}).priority == "5"
    assert wrong_fields(PriorityRequest, {"priority": True}) == {"priority"}


def test_counts_of_a_report_are_numbers() -> None:
    report = {"router": "r1", "window_s": 2, "services": [{"service": "chat", "requests": "3"}]}
    with pytest.raises(ValidationError, match="valid integer"):
        RouterReportBody.model_validate(report)
