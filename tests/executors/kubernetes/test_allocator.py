"""Plans count from the moment they are made, and no longer than they stand."""

import json
from typing import Any, TypeVar

import msgspec
import pytest

from gantree.executors.kubernetes.apiserver.device_objects import (
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
)
from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.controllers.allocator import Allocator
from gantree.executors.kubernetes.devices.claims import Unfit
from gantree.executors.kubernetes.writes.writes import Binding
from support.devices import GPU, gpu, request

T = TypeVar("T")


def typed(body: dict[str, Any], kind: type[T]) -> T:
    return msgspec.json.decode(json.dumps(body), type=kind)


def claimant(allocator: Allocator, name: str) -> Pod:
    """A pod with a claim for one GPU."""
    devices = {"requests": [request("gpu", "gpu")]}
    meta = {"name": name, "namespace": "d", "uid": f"claim-{name}"}
    claim = typed({"metadata": meta, "spec": {"devices": devices}}, ResourceClaim)
    allocator.update_claim(("d", name), claim)
    spec = {"resourceClaims": [{"name": "c", "resourceClaimName": name}]}
    body = {"metadata": {"name": name, "namespace": "d", "uid": name}, "spec": spec}
    return allocator.read(typed(body, Pod))


def test_two_plans_of_one_moment_do_not_share_a_device() -> None:
    allocator = Allocator()
    pool = {"name": "n0", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": GPU, "nodeName": "n0", "pool": pool, "devices": [gpu(0), gpu(1)]}
    allocator.update_slice(
        ("", "s"), typed({"metadata": {"name": "s"}, "spec": spec}, ResourceSlice)
    )
    allocator.update_class(("", "gpu"), typed({"metadata": {"name": "gpu"}}, DeviceClass))
    pods = {name: claimant(allocator, name) for name in ("a", "b", "c")}
    bindings = {name: Binding("d", name, name, "n0", {"gantree.io/gpus": "0"}) for name in pods}
    with pytest.raises(Unfit, match="not free on node n0"):
        allocator.plan(list(bindings.values()), pods)
    assert allocator.book.plans == {}
    planned = allocator.plan([bindings["a"], bindings["b"]], pods)
    assert [each.grants[0].devices[0].device.key[2] for each in planned] == ["gpu-0", "gpu-1"]
    allocator.give_up("a")
    (again,) = allocator.plan([bindings["c"]], pods)
    assert again.grants[0].devices[0].device.key[2] == "gpu-0"


def test_a_node_that_is_deleted_while_the_first_lists_are_read_is_none() -> None:
    Allocator().read_all([("node", ("", "n0"), None, None)])
