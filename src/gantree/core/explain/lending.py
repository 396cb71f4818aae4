"""Sentences on guarantees that are lent because they are not used: who borrows them, and when more are lent."""

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.model.phases import HOLDING
from gantree.model.verdicts import Gate
from gantree.policy.quota.admission import Admission, much
from gantree.text.words import span


def borrows_unused(ledger: Ledger, state: JobState) -> str:
    """A further sentence for a gang that borrows, on queues that lend what they have not used; "" for others."""
    accounts = ledger.accounts
    if state.phase not in HOLDING or accounts.guarantees.holds_within(state):
        return ""
    sentences = []
    for queue, rule in accounts.lending.rules():
        node = accounts.tree.leaf(queue)
        unused = accounts.quota.usage.lent_by_use(node)
        if not any(unused.values()) or state.job not in accounts.quota.borrowers(node):
            continue
        amounts = ", ".join(much(name, has) for name, has in unused.items() if has)
        within_s = ledger.policy.return_within_s(queue)
        within = "" if within_s is None else f" within {span(within_s)}"
        sentences.append(
            f" It borrows: queue {queue} lends {amounts}, unused for {span(rule.after_s)}, and takes them back{within} "
            "when its jobs need them."
        )
    return "".join(sentences)


def lends_later(ledger: Ledger, state: JobState, admission: Admission, now: float) -> str:
    """A further sentence for a job that no quota is left for, on the queue that lends more next; "" without one."""
    if admission.gate is not Gate.QUOTA or admission.never or admission.may_not_borrow:
        return ""
    lending = ledger.accounts.lending
    moments = [
        (moment, queue)
        for queue, _ in lending.rules()
        if not f"{state.spec.queue}/".startswith(f"{queue}/")
        and (moment := lending.next_moment(now, queue)) is not None
    ]
    if not moments:
        return ""
    moment, queue = min(moments)
    return f" Queue {queue} lends more in {span(moment - now)} unless it uses it."
