"""ResourceClaims: the order of writes of a scheduler, what the server refuses, and what it does not check."""

from typing import Any

import pytest

from support.kubernetes.samples import DRIVER, allocation, claim, consumer, pod, result
from support.kubernetes.server.thread import Api, ServerThread

API = "/apis/resource.k8s.io/v1"
FINALIZER = "resource.kubernetes.io/delete-protection"


@pytest.fixture
def claims(space: str) -> str:
    return f"/apis/resource.k8s.io/v1/namespaces/{space}/resourceclaims"


@pytest.fixture
def made(api: Api, space: str) -> dict[str, Any]:
    told: dict[str, Any] = api.post(f"/api/v1/namespaces/{space}/pods", pod("p")).json()
    return told


def status_of(devices: list[dict[str, Any]], *consumers: dict[str, Any]) -> dict[str, Any]:
    return {
        "status": {"allocation": {"devices": {"results": devices}}, "reservedFor": list(consumers)}
    }


def test_a_scheduler_allocates_a_claim(api: Api, claims: str, made: dict[str, Any]) -> None:
    """Fact: merge patch of the finalizer, then of status with the version of the read; a stale one: 409."""
    api.post(claims, claim("c", 2))
    first = api.patch(f"{claims}/c", {"metadata": {"finalizers": [FINALIZER]}}).json()
    version = first["metadata"]["resourceVersion"]
    selector = {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-0"]}]}
        ]
    }
    body = {
        "metadata": {"resourceVersion": version},
        "status": {
            "allocation": {**allocation("gpu-0", "gpu-1"), "nodeSelector": selector},
            "reservedFor": [consumer(made)],
        },
    }
    told = api.patch(f"{claims}/c/status", body)
    assert told.status_code == 200
    assert told.json()["status"]["reservedFor"][0]["uid"] == made["metadata"]["uid"]
    assert told.json()["metadata"]["finalizers"] == [FINALIZER]
    assert api.patch(f"{claims}/c/status", body).status_code == 409


@pytest.mark.parametrize("field", ["request", "driver", "pool", "device"])
def test_each_field_of_a_result_is_required(api: Api, claims: str, field: str) -> None:
    """Fact: required in every result: request, driver, pool, device: each missing -> 422."""
    api.post(claims, claim("c"))
    device = {name: value for name, value in result("gpu-0").items() if name != field}
    refused = api.patch(f"{claims}/c/status", status_of([device]))
    assert (refused.status_code, refused.json()["reason"]) == (422, "Invalid")


def test_a_result_names_a_request_of_the_claim(api: Api, claims: str) -> None:
    """Fact: request is a request name of the claim, or request/subrequest."""
    api.post(claims, claim("c"))
    alternatives = [
        {
            "name": "big",
            "deviceClassName": "gpu.example.com",
            "count": 1,
            "allocationMode": "ExactCount",
        }
    ]
    either = claim("d")
    either["spec"]["devices"]["requests"] = [{"name": "any", "firstAvailable": alternatives}]
    assert api.post(claims, either).status_code == 201
    for name, request, code in (
        ("c", "none", 422),
        ("c", "gpus", 200),
        ("d", "any/none", 422),
        ("d", "any/big", 200),
    ):
        told = api.patch(f"{claims}/{name}/status", status_of([result("gpu-0", request=request)]))
        assert told.status_code == code, (name, request)


def test_nothing_is_reserved_without_an_allocation(
    api: Api, claims: str, made: dict[str, Any]
) -> None:
    """Fact: reservedFor without allocation: 422."""
    api.post(claims, claim("c"))
    refused = api.patch(f"{claims}/c/status", {"status": {"reservedFor": [consumer(made)]}})
    assert refused.status_code == 422


def test_an_allocation_stays_until_it_is_cleared(api: Api, claims: str) -> None:
    """Fact: allocation is immutable once set (clear it first)."""
    api.post(claims, claim("c"))
    assert api.patch(f"{claims}/c/status", status_of([result("gpu-0")])).status_code == 200
    assert api.patch(f"{claims}/c/status", status_of([result("gpu-1")])).status_code == 422
    assert api.patch(f"{claims}/c/status", {"status": {"allocation": None}}).status_code == 200
    assert api.patch(f"{claims}/c/status", status_of([result("gpu-1")])).status_code == 200


def test_the_server_prevents_no_double_allocation(
    api: Api, claims: str, made: dict[str, Any]
) -> None:
    """Fact: not checked: that a device exists, count, constraints, or that another claim holds the same device; nor
    is the finalizer enforced."""
    for name in ("c", "d"):
        api.post(claims, claim(name, 8))
        same = status_of([result("no-such-device", "no-such-node")], consumer(made))
        assert api.patch(f"{claims}/{name}/status", same).status_code == 200


def test_a_claim_may_be_reserved_for_a_pod_group(api: Api, claims: str) -> None:
    """Fact: reservedFor may name a PodGroup (gate DRAWorkloadResourceClaims) -> 200."""
    api.post(claims, claim("c"))
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "u"}
    told = api.patch(f"{claims}/c/status", status_of([result("gpu-0")], group))
    assert (told.status_code, told.json()["status"]["reservedFor"]) == (200, [group])


def test_the_spec_of_a_claim_has_a_form_and_never_changes(api: Api, claims: str) -> None:
    """Fact: v1 nests a request under `exactly`. Convention: the spec is immutable, 422."""
    flat = claim("c")
    flat["spec"]["devices"]["requests"] = [{"name": "gpus", "deviceClassName": "gpu.example.com"}]
    assert api.post(claims, flat).status_code == 422
    api.post(claims, claim("c"))
    assert api.patch(f"{claims}/c", {"spec": claim("c", 2)["spec"]}).status_code == 422


def test_slices_and_classes_are_kept_as_they_are_told(api: Api, space: str) -> None:
    """Fact: the ResourceSlice and the DeviceClass of the facts are taken; slices are found by spec.nodeName."""
    group = "/apis/resource.k8s.io/v1"
    spec = {
        "driver": "gpu.example.com",
        "nodeName": space,
        "pool": {"name": space, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "attributes": {"index": {"int": 0}}}],
    }
    assert (
        api.post(f"{group}/resourceslices", {"metadata": {"name": space}, "spec": spec}).status_code
        == 201
    )
    found = api.get(f"{group}/resourceslices", fieldSelector=f"spec.nodeName={space}").json()[
        "items"
    ]
    assert [each["spec"] for each in found] == [spec]
    selectors = [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]
    device_class = {"metadata": {"name": space}, "spec": {"selectors": selectors}}
    assert api.post(f"{group}/deviceclasses", device_class).status_code == 201


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"devices": [{"name": "gpu-0"}]}, "exactly one of `nodeName`"),
        ({"nodeName": "node-0", "allNodes": True}, "exactly one of `nodeName`"),
        (
            {
                "nodeName": "node-0",
                "devices": [{"name": "gpu-0"}],
                "sharedCounters": [{"name": "set", "counters": {"slices": {"value": "1"}}}],
            },
            "only one of `sharedCounters` or `devices`",
        ),
    ],
)
def test_a_slice_is_of_one_place_and_of_devices_or_counters(
    running: ServerThread, spec: dict[str, Any], why: str
) -> None:
    """Read, in the reference of ResourceSliceSpec: exactly one place, and only one of devices and sharedCounters."""
    pool = {"name": "node-0", "generation": 1, "resourceSliceCount": 1}
    told = {"driver": "gpu.example.com", "pool": pool, **spec}
    with Api(running.url) as api:
        body = {"metadata": {"name": "slice"}, "spec": told}
        refused = api.post("/apis/resource.k8s.io/v1/resourceslices", body)
    assert refused.status_code == 422
    assert why in refused.json()["message"]


def test_what_selects_devices_is_cel(api: Api, space: str) -> None:
    """Fact: CEL that cannot be read is refused, of classes, claims and templates alike, 422 with the field."""
    selectors = [{"cel": {"expression": "device.driver =="}}]
    wrong = claim("a")["spec"]
    wrong["devices"]["requests"][0]["exactly"]["selectors"] = selectors
    first = {"name": "first", "deviceClassName": DRIVER, "selectors": selectors}
    some = {"devices": {"requests": [{"name": "gpus", "firstAvailable": [first]}]}}
    below = f"{API}/namespaces/{space}"
    for path, spec, field in (
        (f"{API}/deviceclasses", {"selectors": selectors}, "spec"),
        (f"{below}/resourceclaims", wrong, "spec.devices.requests[0].exactly"),
        (f"{below}/resourceclaims", some, "spec.devices.requests[0].firstAvailable[0]"),
        (f"{below}/resourceclaimtemplates", {"spec": wrong}, "spec.spec.devices.requests[0].exactly"),
    ):  # fmt: skip
        refused = api.post(path, {"metadata": {"name": "a"}, "spec": spec})
        assert (refused.status_code, refused.json()["reason"]) == (422, "Invalid")
        (cause,) = refused.json()["details"]["causes"]
        assert cause["field"] == f"{field}.selectors[0].cel.expression"


def test_a_slice_has_devices_or_what_they_share(api: Api, space: str) -> None:
    """Fact: not both, an empty list of devices included, 422."""
    counters = [{"name": "set-0", "counters": {"slices": {"value": "2"}}}]
    pool = {"name": space, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": space, "pool": pool, "sharedCounters": counters}
    path, metadata = f"{API}/resourceslices", {"name": space}
    both = api.post(path, {"metadata": metadata, "spec": {**spec, "devices": []}})
    assert both.status_code == 422
    assert api.post(path, {"metadata": metadata, "spec": spec}).status_code == 201
