"""A copy of the ledger that may be changed in thought: what-if questions are asked of it, the ledger stays as it is.

All that changes is copied, all that never does is shared: the fabric, the policy, specifications, places, jobs that
have ended. Learned run times are shared too: nothing that is asked in thought ends a job well.
"""

from copy import copy, deepcopy
from typing import Any

from gantree.core.ledger.ledger import Ledger
from gantree.model.phases import ENDED


def copy_of(ledger: Ledger) -> Ledger:
    """A ledger equal to this one, to be changed on its own; take it for one question and throw it away."""
    shared: list[Any] = [
        ledger.policy,
        ledger.policy.gpu_weights,
        ledger.accounts.run_times.runtimes,
    ]
    shared += [ledger.site.described, *ledger.policies]
    shared += [*ledger.waiting, *ledger.claims.values(), *ledger.reservations.values()]
    twins: dict[int, Any] = {id(ledger.signatures): ledger.signatures.copy()}
    for state in ledger.jobs.values():
        shared += [state.position, state.equivalence_class]
        twins[id(state)] = state if state.phase in ENDED else copy(state)
    if ledger.occupancy is not None:
        shared.append(ledger.occupancy.fabric)
        twins[id(ledger.occupancy)] = ledger.occupancy.copy()
    twins.update((id(each), each) for each in shared)
    return deepcopy(ledger, twins)
