"""What a PATCH makes of an object: merge patch (RFC 7386), JSON patch (RFC 6902), strategic merge.

All of them are functions from an object to a new one; what a patch does not touch is shared between both. A strategic
merge merges the lists of MERGE_KEYS by a key of their elements, the list of finalizers by value, and replaces others.
What a patch names stands in its order, or in that of $setElementOrder, and what is new comes first.
"""

from copy import deepcopy
from typing import Any

from support.kubernetes.server.statuses import Json, Refusal, bad_request

MERGE_KEYS = {
    "conditions": "type",
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "imagePullSecrets": "name",
    "schedulingGates": "name",
    "resourceClaims": "name",
    "resourceClaimStatuses": "name",
    "topologySpreadConstraints": "topologyKey",
    "ownerReferences": "uid",
    "reservedFor": "uid",
    "addresses": "type",
    "podIPs": "ip",
}
SETS = frozenset({"finalizers"})
DELETE_VALUES = "$deleteFromPrimitiveList/"
ORDER = "$setElementOrder/"


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386: null removes, objects are merged, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def strategic_merge(target: Any, patch: Any) -> Any:
    """Like a merge patch, but lists of known kinds are merged by element."""
    if not isinstance(patch, dict):
        return patch
    directive = patch.get("$patch", "merge")
    if directive == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if name.startswith(DELETE_VALUES):
            field = name.removeprefix(DELETE_VALUES)
            merged[field] = [each for each in merged.get(field) or () if each not in value]
        elif name == "$patch" or name.startswith(ORDER):
            continue
        elif value is None:
            merged.pop(name, None)
        else:
            order = patch.get(ORDER + name, value)
            merged[name] = _merged_field(name, merged.get(name), value, order)
    return merged


def _merged_field(name: str, old: Any, new: Any, order: Any) -> Any:
    if not isinstance(new, list):
        return strategic_merge(old, new)
    if name in SETS:
        left = [each for each in old or () if each not in new]
        return _interleaved(left, list(dict.fromkeys(new)), old or [])
    if name in MERGE_KEYS and all(isinstance(each, dict) for each in new):
        return _merged_list(old or [], new, MERGE_KEYS[name], order)
    return new


def _merged_list(old: list[Json], new: list[Json], key: str, order: list[Json]) -> list[Json]:
    """Elements of old changed by those of new that have the same key; order has those that the patch orders."""
    if {"$patch": "replace"} in new:
        return [each for each in new if "$patch" not in each]
    merged = {each.get(key): each for each in old}
    for each in new:
        if key not in each:
            raise bad_request(f"map: {each} does not contain declared merge key: {key}")
        if each.get("$patch") == "delete":
            merged.pop(each[key], None)
        else:
            merged[each[key]] = strategic_merge(merged.get(each[key]), each)
    ordered = [each[key] for each in order if each[key] in merged]
    left = [name for name in merged if name not in ordered]
    names = _interleaved(left, ordered, [each.get(key) for each in old])
    return [merged[name] for name in names]


def _interleaved(left: list[Any], ordered: list[Any], old: list[Any]) -> list[Any]:
    """What a patch does not name among what it does: before the next of these that it came before."""
    told: list[Any] = []
    for each in ordered:
        while left and each in old and old.index(left[0]) < old.index(each):
            told.append(left.pop(0))
        told.append(each)
    return told + left


def json_patch(target: Json, operations: Any) -> Json:
    """RFC 6902. An operation that cannot be applied, a failed test among them, refuses the whole patch (422)."""
    if not isinstance(operations, list):
        raise bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
    document: Any = deepcopy(target)
    for operation in operations:
        try:
            document = _applied(document, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            message = f"the server rejected our request due to an error in our request: {error}"
            raise Refusal(422, "Invalid", message) from None
    if not isinstance(document, dict):
        raise bad_request("a patch must leave an object")
    return document


def _applied(document: Any, operation: Json) -> Any:
    path = _steps(operation["path"])
    match operation["op"]:
        case "add":
            return _added(document, path, operation["value"])
        case "remove":
            return _removed(document, path)
        case "replace":
            _at(document, path)
            return _added(_removed(document, path), path, operation["value"])
        case "move":
            source = _steps(operation["from"])
            value = _at(document, source)
            return _added(_removed(document, source), path, value)
        case "copy":
            return _added(document, path, deepcopy(_at(document, _steps(operation["from"]))))
        case "test":
            if _at(document, path) != operation["value"]:
                raise ValueError(f"testing value {operation['path']} failed: test failed")
            return document
        case other:
            raise ValueError(f"unexpected kind: {other}")


def _steps(pointer: str) -> list[str]:
    """A JSON pointer's steps."""
    if pointer == "":
        return []
    if not pointer.startswith("/"):
        raise ValueError(f"no JSON pointer: {pointer}")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer[1:].split("/")]


def _at(document: Any, path: list[str]) -> Any:
    for step in path:
        document = (
            document[_index(document, step)] if isinstance(document, list) else document[step]
        )
    return document


def _index(items: list[Any], step: str) -> int:
    index = int(step)
    if not 0 <= index < len(items):
        raise IndexError(f"index {step} is out of bounds")
    return index


def _added(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent, last = _at(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        index = len(parent) if last == "-" else int(last)
        if not 0 <= index <= len(parent):
            raise IndexError(f"index {last} is out of bounds")
        parent.insert(index, value)
    else:
        parent[last] = value
    return document


def _removed(document: Any, path: list[str]) -> Any:
    if not path:
        return None
    parent, last = _at(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        del parent[_index(parent, last)]
    else:
        del parent[last]
    return document
