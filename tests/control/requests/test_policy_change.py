"""What another policy would change at once."""

from gantree.control.requests.policy_change import change_of
from gantree.core.scheduler import Scheduler
from gantree.model.events import TimePassed
from gantree.model.jobs import Job, Role, Shape
from gantree.policy.rules import Policy, TimeSharing
from gantree.testing.builders import cluster
from gantree.testing.stage import Stage

PRIORITIES = {"notebook": 150}


def notebook(name: str) -> Job:
    """A job that asks for a quarter of a GPU."""
    shape = Shape(gpu_share=0.25, gpu_memory_GiB=10.0, isolation="time-slicing", neighbours=True)
    return Job(name, (Role("worker", 1, shape, run=("true",)),), priority="notebook")


def test_who_goes_on_or_waits_for_a_turn_is_said() -> None:
    """Two notebooks on one GPU: in turns under one policy, both at once under the other."""
    turns = Policy(priorities=PRIORITIES, time_sharing=TimeSharing(("notebook",), 60.0))
    at_once = Policy(priorities=PRIORITIES)
    for before, after, changes in ((turns, at_once, (("b",), ())), (at_once, turns, ((), ("b",)))):
        stage = Stage(cluster(leaves=1, nodes=1, gpus=1), before)
        stage.submit(notebook("a"), notebook("b"))
        stage.started("a", "b")
        trial = Scheduler(after)
        trial.recover(stage.facts)
        change = change_of(stage.scheduler.ledger, trial, TimePassed(id="t", observed_at=1.0))
        assert (change.resumes, change.suspends) == changes
