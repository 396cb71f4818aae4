"""Validates a response with its OpenAPI model, to find why a client could not decode it.

Answers are not checked as they come: the imports of this module take longer than most commands (`decoding` finds
missing fields). The first field that does not match is named, without its value.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from gantree import __version__
from gantree.api.client.request import Request
from gantree.api.http.response_models.explanations import (
    DefragmentResponse,
    ForecastResponse,
    WhatIfResponse,
    WhenResponse,
    WhyResponse,
)
from gantree.api.http.response_models.history import (
    EndedJobRow,
    EndedJobsResponse,
    NodeSignsResponse,
    UsageHistoryResponse,
    WaitHistoryResponse,
)
from gantree.api.http.response_models.jobs import (
    CurveResponse,
    JobCommandResponse,
    JobIdResponse,
    JobResponse,
    JobsResponse,
    ReceiptResponse,
)
from gantree.api.http.response_models.records import RecordResponse
from gantree.api.http.response_models.services import (
    ServiceCommandResponse,
    ServiceResponse,
    ServicesResponse,
)
from gantree.api.http.response_models.site import (
    ClusterResponse,
    DomainsResponse,
    HealthResponse,
    QueuesResponse,
)
from gantree.api.routes import audit, federation, links, nodes, policies, sessions, tokens
from gantree.api.routes.accounting import book, usage, waste
from gantree.api.routes.services import routing

_A_JOB = "/v1/jobs/{job}"
_A_NODE = "/v1/nodes/{node}"
RESPONSE_MODELS: Mapping[str, type[BaseModel]] = {
    "POST /v1/jobs": ReceiptResponse,
    "POST /v1/jobs/check": ReceiptResponse,
    "GET /v1/jobs": JobsResponse,
    f"GET {_A_JOB}": JobResponse,
    "GET /v1/job-id": JobIdResponse,
    f"GET {_A_JOB}/why": WhyResponse,
    f"GET {_A_JOB}/when": WhenResponse,
    "POST /v1/jobs/forecast": ForecastResponse,
    f"POST {_A_JOB}/what-if": WhatIfResponse,
    f"GET {_A_JOB}/record": RecordResponse,
    f"GET {_A_JOB}/curve": CurveResponse,
    f"POST {_A_JOB}/rerun": ReceiptResponse,
    f"GET {_A_JOB}/defragment": DefragmentResponse,
    f"POST {_A_JOB}/defragment": DefragmentResponse,
    **dict.fromkeys(
        (
            f"POST {_A_JOB}/{command}"
            for command in (
                "cancel",
                "hold",
                "release",
                "suspend",
                "resume",
                "scale",
                "priority",
                "extend",
                "exempt",
            )
        ),
        JobCommandResponse,
    ),
    "GET /v1/nodes": nodes.NodesResponse,
    f"GET {_A_NODE}": nodes.NodeResponse,
    **dict.fromkeys(
        (
            f"POST {_A_NODE}/{command}"
            for command in ("cordon", "drain", "uncordon", "labels", "repair")
        ),
        nodes.NodeCommandResponse,
    ),
    "POST /v1/nodes/burn-in": nodes.BurnInResponse,
    f"POST {_A_NODE}/fault": nodes.NodeFaultResponse,
    "POST /v1/federation/lease": federation.LeaseResponse,
    "GET /v1/federation/{kind}/{namespace}/{name}": federation.GangJobResponse,
    "POST /v1/federation/{kind}/{namespace}/{name}/cancel": federation.GangJobCommandResponse,
    "GET /v1/links": links.LinksResponse,
    "POST /v1/links/degrade": links.LinkCommandResponse,
    "POST /v1/links/restore": links.LinkCommandResponse,
    "GET /v1/services": ServicesResponse,
    "GET /v1/services/{service}": ServiceResponse,
    "POST /v1/services/{service}/scale": ServiceCommandResponse,
    "POST /v1/services/{service}/cancel": ServiceCommandResponse,
    "GET /v1/routes": routing.RoutesResponse,
    "POST /v1/routes/reports": routing.ReportTakenResponse,
    "GET /v1/policy": policies.PolicyVersionResponse,
    "GET /v1/policy/versions": policies.PolicyVersionsResponse,
    "GET /v1/policy/versions/{number}": policies.PolicyVersionResponse,
    "POST /v1/policy/what-if": policies.PolicyChangeResponse,
    "POST /v1/policy": policies.PolicyAdoptedResponse,
    "POST /v1/policy/rollback": policies.PolicyAdoptedResponse,
    "GET /v1/queues": QueuesResponse,
    "GET /v1/cluster": ClusterResponse,
    "GET /v1/cluster/domains": DomainsResponse,
    "GET /v1/usage": usage.UsageResponse,
    "GET /v1/usage/gpus": usage.GpuUseResponse,
    "GET /v1/usage/book": book.BookResponse,
    "GET /v1/waste": waste.WasteResponse,
    "GET /v1/history/jobs": EndedJobsResponse,
    "GET /v1/history/jobs/{job}": EndedJobRow,
    "GET /v1/history/nodes": NodeSignsResponse,
    "GET /v1/history/usage": UsageHistoryResponse,
    "GET /v1/history/waits": WaitHistoryResponse,
    "GET /v1/health": HealthResponse,
    "GET /v1/session": sessions.SessionResponse,
    "GET /v1/tokens": tokens.TokensResponse,
    "POST /v1/tokens": tokens.NewTokenResponse,
    "DELETE /v1/tokens/{token}": tokens.TokenResponse,
    "GET /v1/audit": audit.AuditResponse,
}
"""Method and path, as `requests` writes them -> what the OpenAPI says of the answer; a test holds the two equal."""


def mismatch_in(request: Request[Any], answer: object) -> str | None:
    """What is wrong with an answer, as a sentence; None where it matches its model."""
    model = RESPONSE_MODELS.get(f"{request.method} {request.path}")
    if model is None:
        return None
    try:
        TypeAdapter(model).validate_python(answer, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "the whole"
        return (
            f"the answer to {request.method} {request.path} is not as a gantree daemon of version {__version__} gives"
            f" it: {field}: {first['msg'][:1].lower()}{first['msg'][1:]}"
        )
    return None
