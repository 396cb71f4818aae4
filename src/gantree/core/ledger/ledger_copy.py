"""A copy of the ledger for what-if questions; the ledger itself does not change.

What may change is copied, what never does is shared: the fabric, the policy, specifications, placements, ended jobs.
Learned run times are shared, too: no what-if question ends a job well.
"""

from copy import copy, deepcopy
from typing import Any

from gantree.core.ledger.ledger import Ledger
from gantree.model.phases import ENDED


def copy_of(ledger: Ledger) -> Ledger:
    """An equal ledger that may be changed, for one question."""
    shared: list[Any] = [
        ledger.policy,
        ledger.policy.gpu_weights,
        ledger.accounts.run_times.runtimes,
    ]
    shared += [ledger.site.described, *ledger.policies]
    shared += [service.spec for service in ledger.services.values()]
    shared += [array.spec for array in ledger.arrays.values()]
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
