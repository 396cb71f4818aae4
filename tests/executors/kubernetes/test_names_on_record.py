"""Names that go on record are the same in every process, whatever it hashes texts by: a restart knows them again."""

import os
import subprocess
import sys

SEEDS = ("1", "2", "3", "4", "5", "6")
NAMES = """
from msgspec import convert

from gantree.executors.kubernetes.apiserver.device_objects import DeviceClass, ResourceClaim
from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.constraints.pod_index import PodIndex
from gantree.executors.kubernetes.devices.claims import requests_of
from gantree.executors.kubernetes.devices.device_capacity import DeviceCapacity
from gantree.executors.kubernetes.pods.ports import exclusive_devices
from gantree.executors.kubernetes.pods.self_affinity import self_affinity_devices
from gantree.executors.kubernetes.workloads.gangs import gang_of, job_of
from gantree.executors.kubernetes.workloads.keys import key_of
from gantree.journal.encoding.codec import EVENT_CODEC
from gantree.model.events import JobSubmitted

words = ["gpu", "nic", "switch", "disk", "fan"]
tolerations = [{"key": word, "operator": "Exists"} for word in words]
requests = [
    {"name": word, "exactly": {
        "deviceClassName": word, "allocationMode": "ExactCount", "count": 1, "tolerations": tolerations,
        "capacity": {"requests": {word: "1" for word in words}},
    }}
    for word in words
]
constraints = [{"requests": words, "matchAttribute": "x/root"}]
claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests, "constraints": constraints}}}
classes = {word: convert({"metadata": {"name": word}}, DeviceClass) for word in words}
asked = requests_of({"c": convert(claim, ResourceClaim)}, classes)
print(DeviceCapacity().name(asked))

labels = {word: word for word in words}
selector = {"matchLabels": labels, "matchExpressions": [{"key": "gpu", "operator": "In", "values": words}]}
term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
wide = {"weight": 1, "podAffinityTerm": {**term, "namespaces": [*words, "default"]}}
pod = convert({
    "metadata": {"name": "p", "namespace": "default", "uid": "u", "labels": labels},
    "spec": {
        "nodeSelector": labels, "tolerations": tolerations,
        "affinity": {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
            "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wide]},
        },
    },
}, Pod)
print(exclusive_devices(pod), self_affinity_devices(pod))
selected = PodIndex().selector_of(pod.spec.preferred_pod_terms[0][1], pod)
print(selected.name)
job, _, _ = job_of(gang_of(key_of(pod), None, [pod]), lambda tier: tier)
print(EVENT_CODEC.encode(JobSubmitted(id="s", observed_at=1.0, job="a", spec=job)).data)
"""


def names_with(seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
    made = subprocess.run(
        [sys.executable, "-c", NAMES], env=environment, capture_output=True, text=True, check=True
    )
    return made.stdout


def test_processes_that_hash_otherwise_give_the_same_names() -> None:
    (first, *others) = [names_with(seed) for seed in SEEDS]
    assert "claims(gpu, nic, switch, disk, fan)-" in first
    assert others == [first] * len(others)
