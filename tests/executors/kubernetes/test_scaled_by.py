"""Who has scaled a GangService, by the managedFields that a kube-apiserver 1.36 wrote."""

import json

import msgspec
import pytest

from gantree.executors.kubernetes.apiserver.objects import ManagedGroup
from gantree.executors.kubernetes.services.scaling import scaled_by
from gantree.model.services import ANOTHER_CLIENT

APPLIED = {
    "apiVersion": "gantree.io/v1alpha1",
    "fieldsType": "FieldsV1",
    "fieldsV1": {
        "f:spec": {
            ".": {},
            "f:port": {},
            "f:replicas": {".": {}, "f:max": {}, "f:min": {}},
            "f:schedulerName": {},
        }
    },
    "manager": "argocd-controller",
    "operation": "Update",
    "time": "2026-11-28T23:43:43Z",
}
SCALED = {
    "apiVersion": "gantree.io/v1alpha1",
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:spec": {"f:replicas": {"f:wanted": {}}}},
    "manager": "kubectl",
    "operation": "Update",
    "subresource": "scale",
}
EDITED = {**SCALED, "manager": "kubectl-edit", "subresource": ""}


@pytest.mark.parametrize(
    ("managed", "by"),
    [
        ([SCALED, APPLIED], "kubectl"),
        ([APPLIED, EDITED], "kubectl-edit"),
        ([EDITED, SCALED], "kubectl"),
        ([APPLIED], ANOTHER_CLIENT),
        ([], ANOTHER_CLIENT),
        ([{**SCALED, "fieldsV1": {"f:spec": "odd"}}], ANOTHER_CLIENT),
    ],
)
def test_who_has_set_the_number_has_scaled(managed: list[object], by: str) -> None:
    told = {"metadata": {"name": "chat", "managedFields": managed}}
    assert scaled_by(msgspec.json.decode(json.dumps(told), type=ManagedGroup)) == by
