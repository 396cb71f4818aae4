"""Whether a policy suits the jobs of a recording: their queues and their classes of priority must be in it."""

from collections import Counter

from gantree.model.errors import BadInput
from gantree.policy.queues import QueueTree
from gantree.policy.rules import Policy
from gantree.sim.replay.outcomes import REJECTED
from gantree.sim.replay.recording import Recording
from gantree.text.words import plural


def check_suits(policy: Policy, recording: Recording, named: str) -> None:
    """Raise BadInput for queues and classes that a policy lacks, of jobs that were accepted; named is the policy."""
    tree, wrong = QueueTree(policy.queues), Counter[str]()
    for record in recording.jobs:
        if record.outcome.outcome == REJECTED:
            continue  # it may be rejected again
        problem = tree.problem(record.spec.queue)
        if problem:
            wrong[problem] += 1
        try:
            policy.priority_of(record.spec.priority)
        except BadInput as error:
            wrong[str(error).rstrip(".")] += 1
    if wrong:
        lines = [
            f"{named}: {plural(count, 'recorded job')}: {problem}"
            for problem, count in wrong.items()
        ]
        raise BadInput(
            "\n".join(
                [*lines, "Add what is missing to a copy of the policy, and replay under that."]
            )
        )
