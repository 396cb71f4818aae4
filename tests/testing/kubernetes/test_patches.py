"""The three patches: what they make of an object, and what they refuse."""

import json
from typing import Any

import pytest

from support.kubernetes.samples import pod
from support.kubernetes.server.patch import json_patch, merge_patch, strategic_merge
from support.kubernetes.server.statuses import Refusal
from support.kubernetes.server.thread import Api

JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        (["a"], {"a": "b"}, {"a": "b"}),
        ({"a": "b"}, ["c"], ["c"]),
    ],
)
def test_merge_patches_as_the_rfc_lists_them(target: Any, patch: Any, expected: Any) -> None:
    """Convention: RFC 7386, appendix A."""
    before = json.dumps(target)
    assert merge_patch(target, patch) == expected
    assert json.dumps(target) == before


@pytest.mark.parametrize(
    ("target", "operations", "expected"),
    [
        ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"foo": "bar", "baz": "qux"}),
        ({"foo": ["a", "b"]}, [{"op": "add", "path": "/foo/1", "value": "x"}], {"foo": ["a", "x", "b"]}),
        ({"foo": ["a"]}, [{"op": "add", "path": "/foo/-", "value": "x"}], {"foo": ["a", "x"]}),
        ({"foo": 1, "bar": 2}, [{"op": "remove", "path": "/foo"}], {"bar": 2}),
        ({"foo": ["a", "b", "c"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["a", "c"]}),
        ({"foo": ["a", "b"]}, [{"op": "replace", "path": "/foo/0", "value": "x"}], {"foo": ["x", "b"]}),
        ({"a": {"b": 1}, "c": {}}, [{"op": "move", "from": "/a/b", "path": "/c/d"}], {"a": {}, "c": {"d": 1}}),
        ({"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}),
        ({"a/b": 1, "m~n": 2}, [{"op": "replace", "path": "/a~1b", "value": 3}], {"a/b": 3, "m~n": 2}),
        ({"m~n": 2}, [{"op": "test", "path": "/m~0n", "value": 2}], {"m~n": 2}),
    ],
)  # fmt: skip
def test_json_patches_as_the_rfc_lists_them(target: Any, operations: Any, expected: Any) -> None:
    """Convention: RFC 6902, appendix A."""
    before = json.dumps(target)
    assert json_patch(target, operations) == expected
    assert json.dumps(target) == before


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": 2},
        {"op": "remove", "path": "/none"},
        {"op": "replace", "path": "/none", "value": 1},
        {"op": "add", "path": "/none/a", "value": 1},
        {"op": "add", "path": "/l/5", "value": 1},
        {"op": "spin", "path": "/a"},
        {"op": "add", "path": "a", "value": 1},
    ],
)
def test_a_json_patch_that_does_not_fit_changes_nothing(operation: dict[str, Any]) -> None:
    """Convention: 422 for an operation that cannot be applied, the whole patch with it."""
    with pytest.raises(Refusal) as refused:
        json_patch({"a": 1, "l": []}, [{"op": "replace", "path": "/a", "value": 3}, operation])
    assert refused.value.code == 422


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        (
            {"conditions": [{"type": "Ready", "status": "False", "reason": "r"}, {"type": "B", "status": "x"}]},
            {"conditions": [{"type": "Ready", "status": "True"}, {"type": "C", "status": "y"}]},
            {"conditions": [
                {"type": "Ready", "status": "True", "reason": "r"}, {"type": "C", "status": "y"},
                {"type": "B", "status": "x"},
            ]},
        ),
        ({"finalizers": ["a"]}, {"finalizers": ["b", "a"]}, {"finalizers": ["b", "a"]}),
        ({"finalizers": ["a", "b"]}, {"finalizers": ["c", "b"]}, {"finalizers": ["c", "a", "b"]}),
        ({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]}, {"finalizers": ["b"]}),
        ({"taints": [{"key": "k"}]}, {"taints": [{"key": "l"}]}, {"taints": [{"key": "l"}]}),
        (
            {"volumes": [{"name": "k"}, {"name": "l"}]}, {"volumes": [{"name": "k", "$patch": "delete"}]},
            {"volumes": [{"name": "l"}]},
        ),
        (
            {"volumes": [{"name": "k"}]}, {"volumes": [{"$patch": "replace"}, {"name": "m"}]},
            {"volumes": [{"name": "m"}]},
        ),
        (
            {"containers": [{"name": "a", "image": "1"}]}, {"containers": [{"name": "a", "image": "2"}]},
            {"containers": [{"name": "a", "image": "2"}]},
        ),
        ({"args": ["a"]}, {"args": ["b"]}, {"args": ["b"]}),
        ({"a": {"b": 1}}, {"a": {"$patch": "replace", "c": 2}}, {"a": {"c": 2}}),
        ({"a": {"b": 1}}, {"a": None}, {}),
    ],
)  # fmt: skip
def test_strategic_merges_know_the_lists_that_have_keys(
    target: Any, patch: Any, expected: Any
) -> None:
    """Convention: conditions by type, containers by name, finalizers as a set; others, taints among them, are replaced.
    Fact: what is new comes first."""
    before = json.dumps(target)
    assert strategic_merge(target, patch) == expected
    assert json.dumps(target) == before


def test_the_media_type_says_which_patch_it_is(api: Api, space: str) -> None:
    """Convention: three media types; another is 415."""
    path = f"/api/v1/namespaces/{space}/pods"
    api.post(path, pod("a", {"finalizers": ["example.com/a"]}))
    for body, media_type, expected in (
        (
            {"metadata": {"finalizers": ["example.com/b"]}},
            STRATEGIC,
            ["example.com/b", "example.com/a"],
        ),
        ([{"op": "remove", "path": "/metadata/finalizers/0"}], JSON_PATCH, ["example.com/a"]),
        ({"metadata": {"finalizers": None}}, "application/merge-patch+json", None),
    ):
        told = api.patch(f"{path}/a", body, media_type)
        assert told.status_code == 200, told.text
        assert told.json()["metadata"].get("finalizers") == expected
    assert api.patch(f"{path}/a", {}, "application/json").status_code == 415
    failed = api.patch(f"{path}/a", [{"op": "test", "path": "/kind", "value": "X"}], JSON_PATCH)
    assert failed.status_code == 422
