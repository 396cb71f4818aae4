"""Takes in faults of GPUs that happen at a moment: of the kernel's log, of NVML's events, of scripts and operators.

A fault makes its node unhealthy at once, and a lost GPU ends what holds it (`core.events.nodes`). It is no state that
can be read again, so the node stays out until an operator uncordons it or its source says that it is well. As with
exporters (`health_watch`), many nodes at once are more likely a fault of a driver: beyond a fifth they stay in use
(`blast_radius`).
"""

import logging
from collections.abc import Callable

from gantree.control.nodes.blast_radius import nodes_out, why_kept
from gantree.control.nodes.health_watch import joined
from gantree.control.ports import Clock
from gantree.control.requests.node_commands import check_line, node_problem
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.site import Illness
from gantree.model.errors import BadInput, NotFound
from gantree.model.events import Event, HealthObserved
from gantree.topology.hardware.xids import LOST, XIDS, xid_in_words

OPERATOR = "operator"
"""The source of a report that names none."""
LARGEST_XID = 999

log = logging.getLogger(__name__)


class GpuFaults:
    """Reports of faults. append makes an event durable; name gives it a new id."""

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

    def report(
        self,
        node: str,
        *,
        gpu: int | None = None,
        xid: int | None = None,
        reason: str = "",
        source: str = OPERATOR,
        address: str = "",
    ) -> str:
        """Report a fault of a GPU (None: not known which) or of a node; return it in words, "" for an XID of a program.

        address is the GPU's PCI address, for words. Raises NotFound for a node or GPU that is not there, BadInput.
        """
        ledger = self._checked(node, source)
        check_line("reason", reason)
        if xid is None and not reason:
            raise BadInput("fault: found neither xid nor reason; give at least one")
        if xid is not None and not 0 < xid <= LARGEST_XID:
            raise BadInput(f"xid: found {xid}; allowed: 1 to {LARGEST_XID}")
        _check_gpu(ledger, node, gpu)
        if xid is not None and xid not in XIDS:
            return ""
        fault = _in_words(gpu, address, xid, reason)
        lost = None if xid not in LOST else () if gpu is None else (gpu,)
        self._note(ledger, node, source, fault, lost)
        return fault

    def clear(self, node: str, source: str = OPERATOR) -> str:
        """A source says that a node is well again; give the node. Raises as `report`."""
        self._checked(node, source)
        self._tell(node, source)
        return node

    def _checked(self, node: str, source: str) -> Ledger:
        ledger = self._ledger()
        problem = node_problem(ledger, node)
        if problem:
            raise NotFound(problem)
        check_line("source", source)
        if not source:
            raise BadInput("source: found no text; name who reports it")
        return ledger

    def _note(
        self, ledger: Ledger, node: str, source: str, fault: str, lost: tuple[int, ...] | None
    ) -> None:
        """What is known already adds up; a fault after an operator overruled the earlier ones counts anew."""
        before = ledger.site.unwell.get(node, {}).get(source)
        if before is not None and before.forgiven:
            self._tell(node, source)
            before = None
        reason = fault if before is None else joined(before.reason, [fault])
        self._tell(node, source, reason, _kept(ledger, node), _both(before, lost))

    def _tell(
        self,
        node: str,
        source: str,
        reason: str = "",
        kept: str = "",
        lost: tuple[int, ...] | None = None,
    ) -> None:
        self._append(
            HealthObserved(
                id=self._name(node, "fault-reported"),
                observed_at=self._now(),
                node=node,
                source=source,
                reason=reason,
                kept=kept,
                lost_gpus=lost,
            )
        )


def _check_gpu(ledger: Ledger, node: str, gpu: int | None) -> None:
    fabric = ledger.fabric
    assert fabric is not None, "a node is known without a cluster"
    gpus = fabric.machine_of_node(fabric.index_of_node[node]).gpus
    if gpu is not None and not 0 <= gpu < gpus:
        allowed = f"0 to {gpus - 1}" if gpus else "none, for it has no GPU"
        raise NotFound(f"node {node} has no GPU {gpu}; allowed: {allowed}")


def _in_words(gpu: int | None, address: str, xid: int | None, reason: str) -> str:
    what = "" if xid is None else xid_in_words(xid)
    what = ", ".join(filter(None, (what, reason)))
    where = f"GPU {gpu}" if gpu is not None else f"GPU {address}" if address else ""
    return f"{where}: {what}" if where else what


def _both(before: Illness | None, lost: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """The lost GPUs that were known and those that are new."""
    known = None if before is None else before.lost_gpus
    if known is None or lost is None:
        return lost if known is None else known
    return tuple(sorted({*known, *lost}))


def _kept(ledger: Ledger, node: str) -> str:
    """Why a node with a fault stays in use; "" if it is taken out."""
    kept = why_kept(ledger, node, nodes_out(ledger))
    if kept:
        log.error("node %s has a fault and stays in use, for %s", node, kept)
    return kept
