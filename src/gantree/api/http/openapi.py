"""The OpenAPI document: FastAPI's, with the daemon's errors and its authentication scheme."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from gantree.api.http.problems import MEDIA_TYPE
from gantree.api.http.response_models.base import FieldProblem, ProblemResponse

Json = dict[str, Any]
WHAT = {
    "4XX": "It was asked for wrongly, or cannot be done now.",
    "5XX": "The daemon cannot do it.",
}


def described(app: FastAPI) -> Json:
    """The OpenAPI of an application."""
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title, version=app.version, summary=app.summary, routes=app.routes
        )
        for path in schema["paths"].values():
            for operation in path.values():
                _say_errors(operation)
        schemas = schema.setdefault("components", {}).setdefault("schemas", {})
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        models = [(model, "serialization") for model in (ProblemResponse, FieldProblem)]
        _, definitions = models_json_schema(models, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]  # the literal is one
        schemas.update(definitions["$defs"])
        schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        schema["security"] = [{"token": []}, {}]
        app.openapi_schema = schema
    return app.openapi_schema


def _say_errors(operation: Json) -> None:
    responses: Json = operation["responses"]
    responses.pop("422", None)
    problem = {"$ref": "#/components/schemas/ProblemResponse"}
    for status, what in WHAT.items():
        responses[status] = {"description": what, "content": {MEDIA_TYPE: {"schema": problem}}}
