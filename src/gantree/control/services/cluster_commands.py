"""Requests about services that a cluster keeps itself: scale, and why nothing is cancelled here.

A GangService is scaled as by every other client of its API server. What ends it, or scales pods of other controllers,
is said: whoever made an object deletes it.
"""

from gantree.control.requests.service_commands import check_within, live_service
from gantree.core.ledger.ledger import Ledger
from gantree.executors.served_services import ClusterServices
from gantree.model.errors import Conflict
from gantree.model.services import Keeper


class ClusterServiceCommands:
    """Takes commands for the services of a cluster. ledger has them."""

    def __init__(self, ledger: Ledger, own: ClusterServices) -> None:
        self._ledger, self._own = ledger, own

    def scale(self, name: str, replicas: int, by: str = "") -> str:
        """Have another number of replicas wanted; give the service's name.

        Raises NotFound, Conflict for pods of other controllers, and BadInput for a number outside the bounds.
        """
        service = live_service(self._ledger, name)
        if service.keeper is Keeper.PODS:
            raise Conflict(
                f"the replicas of {name} are pods of other controllers: scale what makes them, as with"
                f" `kubectl scale deployment NAME --replicas {replicas} -n {_namespace(name)}`"
            )
        namespace, object_name = _namespace(name), name.partition(".")[2]
        check_within(
            service,
            replicas,
            f"`kubectl edit gangservice {object_name} -n {namespace}` changes `replicas`",
        )
        self._own.scale(name, replicas, by, automatic=False)
        return name

    def cancel(self, name: str) -> str:
        """Raises NotFound, and Conflict with what ends it: objects are deleted by those who made them."""
        service = live_service(self._ledger, name)
        namespace, object_name = _namespace(name), name.partition(".")[2]
        if service.keeper is Keeper.PODS:
            raise Conflict(
                f"the replicas of {name} are pods of other controllers: delete what makes them, as with"
                f" `kubectl delete deployment NAME -n {namespace}`"
            )
        raise Conflict(
            f"{name} is an object of Kubernetes: `kubectl delete gangservice {object_name} -n {namespace}` ends it"
        )


def _namespace(name: str) -> str:
    """That of a service by its name: namespaces have no dots."""
    return name.partition(".")[0]
