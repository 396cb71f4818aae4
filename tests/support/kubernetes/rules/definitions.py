"""CustomResourceDefinitions: what they define is served a moment after they are kept, until a moment after their end.

A new definition is established by a controller of the server (Installing, Established). One that is told to go is held
by a finalizer: nothing new is created of it, its objects are deleted, and it goes with the last of them.

Objects of a definition are checked against its schema (422); what the schema does not know is cut off, as a structural
schema asks for, and its defaults are filled in.
"""

from collections.abc import Iterator
from typing import Any

import jsonschema_rs

from support.kubernetes.rules.resources import Resource
from support.kubernetes.rules.rules import Others, Rules
from support.kubernetes.rules.scales import PART, ScalePaths
from support.kubernetes.server.statuses import Json, forbidden, invalid

GROUP, PLURAL = "apiextensions.k8s.io", "customresourcedefinitions"
KEEP_ALL = "x-kubernetes-preserve-unknown-fields"
IS_OBJECT = "x-kubernetes-embedded-resource"
INT_OR_STRING = "x-kubernetes-int-or-string"
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
PROTECTED, APPROVED = (".k8s.io", ".kubernetes.io"), "api-approved.kubernetes.io"
TERMINATING = "create not allowed while custom resource definition is terminating"
WHOLE = frozenset({"kind", "apiVersion", "metadata"})


class DefinitionRules(Rules):
    """Those of definitions themselves."""

    tells_deletion_first = True

    def create(self, others: Others, new: Json) -> Json:
        """Not established yet, if its name is that of what it defines."""
        spec = new.get("spec") or {}
        expected = f"{(spec.get('names') or {}).get('plural')}.{spec.get('group')}"
        if new["metadata"]["name"] != expected:
            why = f'Invalid value: "{new["metadata"]["name"]}": must be spec.names.plural+"."+spec.group'
            raise invalid(
                "CustomResourceDefinition", GROUP, new["metadata"]["name"], ("metadata.name", why)
            )
        annotations = new["metadata"].get("annotations") or {}
        if spec["group"].endswith(PROTECTED) and APPROVED not in annotations:
            where = f"metadata.annotations[{APPROVED}]"
            why = "Required value: protected groups must have approval annotation"
            raise invalid("CustomResourceDefinition", GROUP, new["metadata"]["name"], (where, why))
        stored = [each["name"] for each in spec["versions"] if each.get("storage")]
        names = {"plural": "", "kind": ""}
        status = {"conditions": None, "acceptedNames": names, "storedVersions": stored}
        return {**new, "status": status}

    def deleting(self, content: Json) -> Json:
        """Held until its objects are gone."""
        metadata = content["metadata"]
        finalizers = [*(metadata.get("finalizers") or ()), CLEANUP]
        held = {**content, "metadata": {**metadata, "finalizers": finalizers}}
        return with_condition(held, "Terminating", "True", "InstanceDeletionPending")

    def holds(self, content: Json) -> bool:
        """Until it was told to go, by which its finalizer comes."""
        return "deletionTimestamp" not in content["metadata"]


def with_condition(definition: Json, kind: str, status: str, reason: str) -> Json:
    """A definition with one condition as it is now."""
    told = definition["status"]
    rest = [each for each in told.get("conditions") or () if each["type"] != kind]
    condition = {"type": kind, "status": status, "reason": reason, "message": ""}
    return {**definition, "status": {**told, "conditions": [*rest, condition]}}


class CustomRules(Rules):
    """Those of the objects of a definition, by the schema of one version."""

    def __init__(self, group: str, plural: str, kind: str, schema: Json | None) -> None:
        self.group = group
        self.plural = plural
        self.kind = kind
        self.schema = schema
        self._validator = (
            jsonschema_rs.Draft4Validator(_plain(schema), validate_formats=False)
            if schema
            else None
        )

    def create(self, others: Others, new: Json) -> Json:
        """Cut to its schema, filled in and checked, unless its definition goes."""
        definition = others.lookup(GROUP, PLURAL, "", f"{self.plural}.{self.group}")
        if definition and "deletionTimestamp" in definition["metadata"]:
            raise forbidden(self.plural, self.group, "", TERMINATING)
        return self._kept(new)

    def update(self, others: Others, old: Json, new: Json) -> Json:
        """Likewise."""
        return self._kept(new)

    def update_status(self, others: Others, old: Json, new: Json) -> Json:
        """Likewise."""
        return self._kept(new)

    def _kept(self, new: Json) -> Json:
        if self.schema is None or self._validator is None:
            return new
        rest = {name: value for name, value in new.items() if name != "metadata"}
        kept = _fitted(rest, self.schema)
        causes = [
            (_field(error), f"Invalid value: {error.message}")
            for error in self._validator.iter_errors(kept)
        ]
        if causes:
            raise invalid(self.kind, self.group, new["metadata"]["name"], *causes)
        return {**kept, "metadata": new["metadata"]}


def _field(error: Any) -> str:
    """Where an error is, as a field of an object."""
    path = "".join(
        f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path
    )
    return path.lstrip(".") or "<nil>"


def _fitted(value: Any, schema: Json) -> Any:
    """A value without what its schema does not know, with what it fills in."""
    if isinstance(value, list):
        return [_fitted(each, schema.get("items") or {KEEP_ALL: True}) for each in value]
    if not isinstance(value, dict):
        return value
    known, others = schema.get("properties") or {}, schema.get("additionalProperties")
    keeps = schema.get(KEEP_ALL) or others is True or schema.get("type") != "object"
    fitted = {}
    for name, each in value.items():
        if name in known and each is None and not known[name].get("nullable"):
            continue
        if name in known:
            fitted[name] = _fitted(each, known[name])
        elif isinstance(others, dict):
            fitted[name] = _fitted(each, others)
        elif keeps or (schema.get(IS_OBJECT) and name in WHOLE):
            fitted[name] = each
    for name, below in known.items():
        if name not in fitted and "default" in below:
            fitted[name] = _fitted(below["default"], below)
    return fitted


def _plain(schema: Any) -> Any:
    """A structural schema as a JSON schema: nullable and int-or-string are words of OpenAPI alone."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {
        name: _plain_part(name, part) for name, part in schema.items() if not name.startswith("x-")
    }
    if schema.get(INT_OR_STRING):
        plain["type"] = ["integer", "string"]
    if schema.get("nullable") and "type" in plain:
        kinds = plain["type"] if isinstance(plain["type"], list) else [plain["type"]]
        plain["type"] = [*kinds, "null"]
    return plain


def _plain_part(name: str, part: Any) -> Any:
    if name in {"properties", "patternProperties"}:
        return {field: _plain(below) for field, below in part.items()}
    return part if name in {"default", "enum", "example"} else _plain(part)


def _scale_of(version: Json) -> ScalePaths | None:
    told = (version.get("subresources") or {}).get(PART)
    return None if told is None else ScalePaths.read(told)


def defined(spec: Json) -> Iterator[Resource]:
    """A resource for each version that a definition serves."""
    names = spec["names"]
    for version in spec["versions"]:
        if not version.get("served", True):
            continue
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        yield Resource(
            spec["group"],
            version["name"],
            names["plural"],
            names["kind"],
            namespaced=spec.get("scope") == "Namespaced",
            subresources=tuple(
                name for name in ("status", PART) if name in (version.get("subresources") or {})
            ),
            scale=_scale_of(version),
            fields=tuple(
                each["jsonPath"].lstrip(".") for each in version.get("selectableFields") or ()
            ),
            short_names=tuple(names.get("shortNames") or ()),
            has_generation=True,
            needs_version=True,
            is_custom=True,
            rules=CustomRules(spec["group"], names["plural"], names["kind"], schema),
        )
