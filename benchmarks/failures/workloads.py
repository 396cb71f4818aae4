"""What users submit: GangJobs and Jobs that end by themselves after a while, some with devices by claims."""

import random
from dataclasses import dataclass
from typing import Any

from support.kubernetes.client import path_of

Json = dict[str, Any]
RUNS_S = "kubelet.gantree/runs-s"
GANGJOBS, JOBS = (
    path_of("gantree.io/v1alpha1", "gangjobs", "default"),
    path_of("batch/v1", "jobs", "default"),
)
PRIORITIES = ("research", "batch", "production")
LABEL = "failures/of"


@dataclass(frozen=True, slots=True)
class Workload:
    """One job of a user, of so many pods; has_claims: each pod has one GPU by a claim, else gpus by device plugin."""

    name: str
    is_job: bool
    has_claims: bool
    pods: int
    gpus: int
    priority: str
    runs_s: int

    @property
    def collection(self) -> str:
        """The path of objects of its kind."""
        return JOBS if self.is_job else GANGJOBS

    @property
    def path(self) -> str:
        """Its own path."""
        return f"{self.collection}/{self.name}"

    def manifest(self) -> Json:
        """The object that a user creates."""
        return self._job() if self.is_job else self._gang_job()

    def is_over(self, content: Json) -> bool:
        """Whether it has succeeded, by its status."""
        conditions = content.get("status", {}).get("conditions") or ()
        return any(each["type"] == "Complete" and each["status"] == "True" for each in conditions)

    def _gang_job(self) -> Json:
        role = {"role": "worker", "members": self.pods, "template": self._template({})}
        return {
            "apiVersion": "gantree.io/v1alpha1",
            "kind": "GangJob",
            "metadata": {"name": self.name},
            "spec": {
                "priority": self.priority,
                "gang": [role],
                "restarts": {"limit": 1000, "backoffSeconds": 0.2, "backoffMaxSeconds": 2},
            },
        }

    def _job(self) -> Json:
        gang = {"gantree.io/gang": self.name} if self.pods > 1 else {}
        template = self._template(gang)
        template["spec"] |= {"schedulerName": "gantree", "restartPolicy": "Never"}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": self.name},
            "spec": {
                "parallelism": self.pods,
                "completions": self.pods,
                "completionMode": "Indexed",
                "backoffLimit": 100_000,
                "template": template,
            },
        }

    def _template(self, labels: Json) -> Json:
        amounts = {"cpu": "1", "memory": "1Gi"}
        if not self.has_claims:
            amounts["nvidia.com/gpu"] = str(self.gpus)
        resources: Json = {"requests": amounts, "limits": amounts}
        spec: Json = {"containers": [{"name": "main", "image": "train", "resources": resources}]}
        if self.has_claims:
            spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
            resources["claims"] = [{"name": "gpu"}]
        told = {RUNS_S: str(self.runs_s), "gantree.io/priority": self.priority}
        return {
            "metadata": {"labels": {LABEL: self.name, **labels}, "annotations": told},
            "spec": spec,
        }


def drawn(number: int, chance: random.Random) -> Workload:
    """Any workload. Few are Jobs: their controller waits for minutes after some failures."""
    is_job, has_claims = chance.random() < 0.2, chance.random() < 0.35
    gpus = chance.choice((1, 2, 4, 8))
    pods = chance.choice((1, 2, 2, 3, 4, 6))
    priority, runs_s = chance.choice(PRIORITIES), chance.randint(3, 15)
    return Workload(f"w{number}", is_job, has_claims, pods, gpus, priority, runs_s)
