"""What a queue that lends by use keeps and lends, as plain JSON values and in words. No HTTP here."""

from collections.abc import Mapping
from typing import Any

from gantree.core.ledger.accounts.accounts import Accounts
from gantree.policy.quota.admission import much
from gantree.policy.utc_calendar import utc_minute
from gantree.text.words import span

Json = dict[str, Any]


def lending_json(accounts: Accounts, node: int, now: float) -> Json | None:
    """What a queue keeps and lends at a moment in seconds; None for one that does not lend by use."""
    rule = accounts.tree.rule[node]
    if rule is None or rule.lend_idle is None:
        return None
    fact = accounts.lending.kept.get(rule.path)
    return {
        "idle_after_s": rule.lend_idle.after_s,
        "keeps": {} if fact is None else dict(fact.keeps),
        "lends_unused": _above_zero(accounts.quota.usage.lent_by_use(node)),
        "lends_more_at": accounts.lending.next_moment(now, rule.path),
        "return_within_s": accounts.policy.return_within_s(rule.path),
    }


def lending_in_words(row: Json) -> str:
    """The lending of a queue as `lending_json` tells it: "lends 24 GPUs that it has not used for 1 h, ..."."""
    unused, idle_after = row["lends_unused"], span(row["idle_after_s"])
    words = f"lends what it has not used for {idle_after}: "
    words += ", ".join(much(name, amount) for name, amount in unused.items()) or "nothing"
    if row["lends_more_at"] is not None:
        words += f"; more at {utc_minute(row['lends_more_at'])} unless it uses it"
    if unused and row["return_within_s"] is not None:
        words += f"; back within {span(row['return_within_s'])}"
    return words


def _above_zero(amounts: Mapping[str, float]) -> Json:
    return {resource: amount for resource, amount in amounts.items() if amount > 0}
