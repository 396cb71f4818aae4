"""Fixtures of the command line's tests: files for it to read."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.command_line import CommandLine

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
CLUSTER = """
name: two-leaves
tiers: [spine, leaf, node]
machines:
  m4: {gpus: 4, gpu: H100-80GB, cpus: 32, memory_GiB: 256, nics: 2}
nodes:
  - {names: "n[0-1]", machine: m4, at: {spine: s0, leaf: l0}}
  - {names: "n[2-3]", machine: m4, at: {spine: s0, leaf: l1}}
allocations:
  - {job: old, node: n0, gpus: [0, 1]}
"""


Complaints = Callable[[Any, str], list[str]]
Gantree = CommandLine
JobFile = Callable[..., Path]


@pytest.fixture
def cluster_file(tmp_path: Path) -> Path:
    """Two leaves of two nodes of four GPUs; two GPUs of n0 are taken."""
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    return path


@pytest.fixture
def job_file(tmp_path: Path) -> JobFile:
    """Write a job file of one role."""

    def write(name: str, members: int, gpus: int, **more: object) -> Path:
        role = {"role": "worker", "members": members, "each": {"gpus": gpus}, "run": ["true"]}
        path = tmp_path / f"{name}.yaml"
        path.write_text(json.dumps({"name": name, "gang": [role], **more}))
        return path

    return write


@pytest.fixture
def complaints() -> Complaints:
    """What a document has against docs/schemas/NAME-output.schema.json.

    The schemas leave room for fields to come; here a field that a schema does not name counts as a complaint, so
    that what is printed stays documented.
    """

    def judge(document: Any, name: str) -> list[str]:
        root = json.loads((SCHEMAS / f"{name}-output.schema.json").read_text())
        return list(_complaints(document, root, root, "$"))

    return judge


def _complaints(value: Any, schema: Any, root: Any, at: str) -> Iterator[str]:
    """The part of JSON Schema that ours use."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    if "anyOf" in schema:
        tried = [list(_complaints(value, each, root, at)) for each in schema["anyOf"]]
        yield from [] if [] in tried else min(tried, key=len)
        return
    if "const" in schema and value != schema["const"]:
        yield f"{at}: {value!r} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is none of {schema['enum']}"
    if "type" not in schema:
        return
    if not isinstance(value, TYPES[schema["type"]]) or (
        isinstance(value, bool) and schema["type"] != "boolean"
    ):
        yield f"{at}: {value!r} is no {schema['type']}"
    elif isinstance(value, dict):
        yield from _object_complaints(value, schema, root, at)
    elif isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            yield f"{at}: only {len(value)} items"
        for number, each in enumerate(value):
            yield from _complaints(each, schema["items"], root, f"{at}[{number}]")


def _object_complaints(value: dict[str, Any], schema: Any, root: Any, at: str) -> Iterator[str]:
    named = schema.get("properties", {})
    for field in schema.get("required", ()):
        if field not in value:
            yield f"{at}: {field} is missing"
    for field, each in value.items():
        inner = named.get(field, schema.get("additionalProperties"))
        if inner is None:
            yield f"{at}: {field} is not in the schema"
        else:
            yield from _complaints(each, inner, root, f"{at}.{field}")
