"""Requests about links: report which share of its rate one carries, or overrule that. Impossible ones are refused."""

import math
from collections.abc import Callable

from gantree.control.ports import Clock
from gantree.control.requests.node_commands import check_line
from gantree.core.ledger.ledger import Ledger
from gantree.model.cluster import LinkId
from gantree.model.errors import BadInput, NotFound
from gantree.model.events import Event, LinkHealthObserved, LinkRestoreRequested
from gantree.topology.fabric.conditions import has_link

OPERATOR = "operator"
"""The source of a report that names none."""


class LinkCommands:
    """Takes in reports about the links of one ledger. append makes an event durable; name gives it a new id."""

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

    def degrade(
        self,
        text: str,
        health: float,
        reason: str = "",
        source: str = OPERATOR,
        load: float = 0.0,
    ) -> str:
        """Report which share of its rate a link carries, and how busy it is, both from 0 to 1; give the link.

        The lowest health and the highest load that are reported count. Raises NotFound, and BadInput for a share that
        is none, for a load of links of a GPU, and for texts that are no line.
        """
        link = self._known(text)
        _check_share("health", health, "the share of its rate that the link carries")
        _check_share("load", load, "the share of that which is taken")
        if load and link.gpu is not None:
            raise BadInput(f"load: found {load:g} for {text}; allowed: for up-links and NICs")
        check_line("reason", reason)
        check_line("source", source)
        if not source:
            raise BadInput("source: found no text; name who reports it")
        self._append(
            LinkHealthObserved(
                id=self._name(text, "link-reported"),
                observed_at=self._now(),
                link=link,
                source=source,
                health=health,
                reason=reason,
                load=load,
            )
        )
        return text

    def restore(self, text: str) -> str:
        """Count a link as whole, until a source reports something else of it; give the link. Raises NotFound."""
        link = self._known(text)
        event_id = self._name(text, "link-restored")
        self._append(LinkRestoreRequested(id=event_id, observed_at=self._now(), link=link))
        return text

    def _known(self, text: str) -> LinkId:
        """The link of a text TIER:PATH. Raises NotFound."""
        tier, _, path = text.partition(":")
        link, ledger = LinkId(tier, path), self._ledger()
        if ledger.fabric is None or not has_link(ledger.fabric, link):
            raise NotFound(
                f"there is no link {text!r}; links are TIER:DOMAIN, node:NODE, nic:NODE/NIC, gpu-pcie:NODE/GPU and"
                " gpu-nvlink:NODE/GPU, such as leaf:s0/l0, nic:n1/mlx5_0 and gpu-pcie:n1/3: `gantree topo` has their"
                " names"
            )
        return link


def _check_share(field: str, found: float, what: str) -> None:
    if not (math.isfinite(found) and 0.0 <= found <= 1.0):
        raise BadInput(f"{field}: found {found:g}; allowed: {what}, 0 to 1")
