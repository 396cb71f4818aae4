"""What a queue says to a job with one after another of many sets of jobs gone, beside what others have claimed."""

from dataclasses import replace

import pytest

from gantree.core.scheduler import Scheduler
from gantree.model.events import ClusterObserved, JobSubmitted
from gantree.model.jobs import Job
from gantree.policy.rules import Policy, Preemption, QueueRule
from gantree.testing.builders import cluster, job

SITE = cluster(leaves=2, nodes=2, gpus=4)
QUEUES = (
    QueueRule("all", cohort="all", guarantee={"gpus": 8}, limit={"gpus": 8}),
    *(QueueRule(f"all/{name}", guarantee={"gpus": 2}, borrow={"gpus": 6}) for name in "abcd"),
)


def of(name: str, queue: str, *, gpus: int = 1, preemptible: bool = True) -> Job:
    return replace(job(name, gpus=gpus), queue=f"all/{queue}", preemptible=preemptible)


def submit(scheduler: Scheduler, *specs: Job) -> None:
    scheduler.handle(
        [
            JobSubmitted(id=each.name, observed_at=scheduler.now, job=each.name, spec=each)
            for each in specs
        ]
    )


@pytest.mark.parametrize("preemptible", [True, False])
def test_many_questions_have_the_answers_of_each_and_leave_the_accounts_as_they_were(
    preemptible: bool,
) -> None:
    scheduler = Scheduler(Policy(queues=QUEUES, preemption=Preemption(across=False)))
    scheduler.handle([ClusterObserved(id="site", observed_at=0.0, cluster=SITE)])
    submit(scheduler, *(of(f"a{number}", "a") for number in range(8)))
    submit(scheduler, *(of(f"{queue}0", queue, preemptible=preemptible) for queue in "bc"))
    submit(scheduler, of("a8", "a"), of("b1", "b", gpus=2), of("d0", "d"))
    ledger, accounts = scheduler.ledger, scheduler.ledger.accounts
    assert set(ledger.claims) >= {"b0", "c0"}
    running = [job for job in ledger.holding if job not in ledger.claims]
    gone = [running[:count] for count in range(len(running))]
    for name in ("a8", "b0", "b1", "d0"):
        state = ledger.jobs[name]
        amounts = accounts.asked(state)
        one_by_one = [accounts.admission(state, amounts, each) for each in gone]
        with accounts.admissions(state, amounts) as admission:
            assert [admission(each) for each in gone] == one_by_one
        assert len(set(one_by_one)) > (name == "a8")
        assert [accounts.admission(state, amounts, each) for each in gone] == one_by_one
