"""Requests about nodes: cordon, uncordon, drain, label. Impossible ones are refused here.

To ask for what is so already is no error. What becomes of the jobs there is decided by the core.
"""

import re
from collections.abc import Callable, Mapping

from gantree.control.ports import Clock
from gantree.core.ledger.ledger import Ledger
from gantree.model.cluster import MARKET_LABEL
from gantree.model.errors import BadInput, NotFound
from gantree.model.events import CordonRequested, Event, LabelRequested, UncordonRequested
from gantree.text.words import did_you_mean

KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}")
"""What a label may be called."""
LONGEST_TEXT = 256
LONGEST_DEADLINE_S = 365 * 86_400.0
NAMES_LOOKED_AT = 1000


class NodeCommands:
    """Takes in what is asked of the nodes of one ledger. append makes an event durable; name gives it a new id."""

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

    def cordon(self, node: str, reason: str = "") -> str:
        """Let nothing new start on a node; give its name. One that is being drained goes on being drained.

        Raises NotFound, and BadInput for a reason that is no line of text.
        """
        before = self._known(node).site.asked.get(node)
        if before is None:
            self._cordon(node, reason, False, None)
        else:
            self._cordon(node, reason or before.reason, before.drain, before.deadline_at)
        return node

    def drain(self, node: str, deadline_s: float | None = None, reason: str = "") -> str:
        """Let everybody leave a node who may be told to; within deadline_s, None: at once. Raises as `cordon`."""
        before = self._known(node).site.asked.get(node)
        if deadline_s is not None and not 0 <= deadline_s <= LONGEST_DEADLINE_S:
            raise BadInput(f"deadline: found {deadline_s:g} s; allowed: 0 s to a year")
        deadline_at = None if deadline_s is None else self._now() + deadline_s
        self._cordon(node, reason or (before.reason if before else ""), True, deadline_at)
        return node

    def _cordon(self, node: str, reason: str, drain: bool, deadline_at: float | None) -> None:
        check_line("reason", reason)
        self._append(
            CordonRequested(
                id=self._name(node, "cordon-requested"),
                observed_at=self._now(),
                node=node,
                reason=reason,
                drain=drain,
                deadline_at=deadline_at,
            )
        )

    def uncordon(self, node: str) -> str:
        """Let a node be used again; give its name. Raises NotFound."""
        ledger = self._ledger()
        if node not in ledger.site.cordoned:  # one that has left the cluster may still be cordoned
            self._known(node)
        event_id = self._name(node, "uncordon-requested")
        self._append(UncordonRequested(id=event_id, observed_at=self._now(), node=node))
        return node

    def label(self, node: str, labels: Mapping[str, str | None]) -> str:
        """Give a node these labels, None: take them away; give its name. Raises NotFound and BadInput."""
        self._known(node)
        if not labels:
            raise BadInput("labels: found none; give at least one, KEY=VALUE or KEY-")
        for key, value in labels.items():
            _check_label(key, value)
        self._append(
            LabelRequested(
                id=self._name(node, "label-requested"),
                observed_at=self._now(),
                node=node,
                labels=tuple(labels.items()),
            )
        )
        return node

    def _known(self, node: str) -> Ledger:
        """The ledger, in which there is a node of this name. Raises NotFound."""
        ledger = self._ledger()
        problem = node_problem(ledger, node)
        if problem:
            raise NotFound(problem)
        return ledger


def node_problem(ledger: Ledger, node: str) -> str:
    """Why there is no node of this name; "" if there is."""
    names = {} if ledger.fabric is None else ledger.fabric.index_of_node
    if node in names:
        return ""
    hint = did_you_mean(node, list(names)[:NAMES_LOOKED_AT])
    return f"there is no node {node}" + (f". {hint}" if hint else "")


def _check_label(key: str, value: str | None) -> None:
    if not KEY.fullmatch(key):
        raise BadInput(
            f"labels: found the key {key!r}; allowed: letters, digits, `.`, `_`, `-` and `/`, 128 at most"
        )
    if key == MARKET_LABEL:
        raise BadInput(
            f"labels: {key} follows from `spot` in the cluster file and is not set by hand"
        )
    if value is not None:
        check_line(f"labels.{key}", value)
        if not value:
            raise BadInput(f"labels.{key}: found no value; to take the label away: {key}-")


def check_line(field: str, text: str) -> None:
    """Raise BadInput for what is not one line of at most LONGEST_TEXT printable characters."""
    if len(text) > LONGEST_TEXT or not text.isprintable():
        raise BadInput(
            f"{field}: found {text[:40]!r}; allowed: at most {LONGEST_TEXT} printable characters"
        )
