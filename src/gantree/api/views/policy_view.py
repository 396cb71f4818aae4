"""The policy as plain JSON values: the version in force, earlier ones, the effect of another one. No HTTP here."""

from typing import Any

from gantree.api.views.job_view import plain
from gantree.control.requests.policy_change import PolicyChange
from gantree.core.ledger.ledger import Ledger
from gantree.model.facts import PolicyAdopted

Json = dict[str, Any]


def in_force(ledger: Ledger) -> Json:
    """The version that rules; number and text are null where none was ever named, so that the default preset rules."""
    if not ledger.policies:
        return {"number": None, "at": None, "by": "", "source": "the default", "text": None}
    return version(ledger.policies[-1])


def version(adopted: PolicyAdopted) -> Json:
    """One version with its text."""
    return {**version_row(adopted), "text": adopted.text}


def version_row(adopted: PolicyAdopted) -> Json:
    """One version in a list."""
    return {
        "number": adopted.number,
        "at": adopted.at,
        "by": adopted.by,
        "source": adopted.source,
    }


def change(trial: PolicyChange) -> Json:
    """What another policy would change."""
    told: Json = plain(trial)
    return told
