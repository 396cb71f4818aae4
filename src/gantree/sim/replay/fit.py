"""Whether a policy suits the jobs of a recording: their queues and their classes of priority must be in it."""

from collections import Counter

from gantree.model.errors import BadInput
from gantree.policy.queues import QueueTree
from gantree.policy.rules import Policy
from gantree.sim.replay.recording import Recording
from gantree.text.words import plural


def check_suits(policy: Policy, recording: Recording, named: str) -> None:
    """Raise BadInput for queues and classes of recorded jobs that a policy lacks; named is the policy in messages."""
    tree, wrong = QueueTree(policy.queues), Counter[str]()
    for record in recording.jobs:
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
