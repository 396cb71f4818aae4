"""PodDisruptionBudgets: whether a pod may be evicted now.

The server goes by what the budget's status says; to keep that up to date is a controller's work (controllers.py).
"""

from support.kubernetes.rules.pods import ENDED
from support.kubernetes.rules.rules import Others, Rules
from support.kubernetes.server.selectors import selector_of
from support.kubernetes.server.statuses import Json, Refusal, too_many_requests

RETRY_S = 10
VIOLATES = "Cannot evict pod as it would violate the pod's disruption budget."


class BudgetRules(Rules):
    """Those of budgets: none but that a new one allows nothing before its controller has seen it."""

    def create(self, others: Others, new: Json) -> Json:
        """With an empty status."""
        status = {
            "disruptionsAllowed": 0,
            "currentHealthy": 0,
            "desiredHealthy": 0,
            "expectedPods": 0,
        }
        return {**new, "status": status}


def to_charge(others: Others, pod: Json) -> Json | None:
    """The budget that an eviction of a pod is charged to, if any.

    A pod that does not run yet costs nothing; neither does one that is not ready, while enough others are healthy.
    """
    if pod["status"].get("phase") in {*ENDED, "Pending"} or "deletionTimestamp" in pod["metadata"]:
        return None
    namespace = pod["metadata"]["namespace"]
    found = [
        budget
        for budget in others.listed("policy", "poddisruptionbudgets", namespace)
        if selector_of(budget["spec"].get("selector"))(pod)
    ]
    if len(found) > 1:
        message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise Refusal(500, "InternalError", message)
    if not found or _is_free(found[0], pod):
        return None
    _check(found[0])
    return found[0]


def _is_free(budget: Json, pod: Json) -> bool:
    """Whether a pod that is not ready goes without a charge: the budget counts only healthy ones."""
    conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions") or ()}
    if conditions.get("Ready") == "True":
        return False
    status = budget["status"]
    is_met = status["currentHealthy"] >= status["desiredHealthy"] > 0
    is_always = budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
    return bool(is_met or is_always)


def _check(budget: Json) -> None:
    name, status = budget["metadata"]["name"], budget["status"]
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise too_many_requests(VIOLATES, RETRY_S)
    if status["disruptionsAllowed"] <= 0:
        has, needs = status["currentHealthy"], status["desiredHealthy"]
        told = f"The disruption budget {name} needs {needs} healthy pods and has {has} currently"
        details = {"causes": [{"reason": "DisruptionBudget", "message": told}]}
        raise Refusal(429, "TooManyRequests", VIOLATES, details)


def disrupted(pod: Json, now: str) -> Json:
    """A pod as the eviction subresource leaves it behind for its kubelet: it says why it goes.

    Documented at "Pod disruption conditions" of Kubernetes: DisruptionTarget, EvictionByEvictionAPI.
    """
    told = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastTransitionTime": now,
    }
    status = pod["status"]
    rest = [each for each in status.get("conditions", ()) if each["type"] != told["type"]]
    return {**pod, "status": {**status, "conditions": [*rest, told]}}


def charged(budget: Json, pod: Json, now: str) -> Json:
    """The budget after an eviction."""
    status = budget["status"]
    disrupted = {**status.get("disruptedPods", {}), pod["metadata"]["name"]: now}
    left = status["disruptionsAllowed"] - 1
    return {**budget, "status": {**status, "disruptionsAllowed": left, "disruptedPods": disrupted}}
