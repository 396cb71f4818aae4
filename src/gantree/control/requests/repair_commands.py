"""Requests about repairs (stop one, begin another), and reports of who runs them. Impossible ones are refused."""

from collections.abc import Callable

from gantree.control.ports import Clock
from gantree.control.requests.node_commands import node_problem
from gantree.core.ledger.ledger import Ledger
from gantree.model.errors import Conflict, NotFound
from gantree.model.events import Event, RepairObserved
from gantree.model.repairs import RepairState


class RepairCommands:
    """Requests about the repairs of one ledger. append makes an event durable; name gives it a new id.

    asked and to_stop are nodes of requests that the runner has not taken yet; is_on: there are repair hooks.
    """

    def __init__(
        self,
        ledger: Callable[[], Ledger],
        append: Callable[[Event], None],
        name: Callable[[str, str], str],
        now: Clock,
    ) -> None:
        self._ledger = ledger
        self._append = append
        self._name = name
        self._now = now
        self.asked: dict[str, None] = {}
        self.to_stop: dict[str, None] = {}
        self.is_on = False

    def start(self, node: str) -> str:
        """Repair a node (again) from its first step; give its name. Raises NotFound and Conflict."""
        ledger = self._known(node)
        repair = ledger.site.repairs.get(node)
        if repair is not None and repair.state is RepairState.RUNNING:
            raise Conflict(f"node {node} is being repaired already")
        cordon = ledger.site.cordoned.get(node)
        if cordon is None or not cordon.unwell:
            raise Conflict(
                f"no fault has taken node {node} out; report one with gantree node-fault"
            )
        self.asked[node] = None
        return node

    def stop(self, node: str) -> str:
        """Stop the repair of a node, which stays out; give its name. Raises NotFound and Conflict."""
        repair = self._known(node).site.repairs.get(node)
        if repair is None or repair.state is not RepairState.RUNNING:
            raise Conflict(f"node {node} is not being repaired")
        self.to_stop[node] = None
        return node

    def note(
        self,
        node: str,
        state: RepairState,
        sign: str,
        steps: tuple[str, ...],
        step: int,
        reason: str = "",
    ) -> None:
        """Put down how far a repair has come, durably."""
        self._append(
            RepairObserved(
                id=self._name(node, "repair"),
                observed_at=self._now(),
                node=node,
                state=state,
                sign=sign,
                steps=steps,
                step=step,
                reason=reason,
            )
        )

    def _known(self, node: str) -> Ledger:
        """The ledger, in which there is such a node. Raises NotFound, and Conflict without repair hooks."""
        ledger = self._ledger()
        problem = node_problem(ledger, node)
        if problem:
            raise NotFound(problem)
        if not self.is_on:
            raise Conflict("this daemon has no repair hooks; start it with --repair-hooks FILE")
        return ledger
