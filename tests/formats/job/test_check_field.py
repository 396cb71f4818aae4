"""`check` in job.yaml and in queues of policy.yaml: what it means, and what is refused with line and field."""

import pytest

from gantree.formats import read_job, read_policy
from gantree.model.errors import BadFields
from gantree.model.jobs import Check

GANG = "name: j\ngang:\n  - {role: w, members: 2, each: {EACH}, run: [train]}\n"


def job_with(check: str, each: str = "gpus: 8") -> str:
    return GANG.replace("EACH", each) + f"check: {check}\n"


def test_a_check_has_a_time_and_may_be_required() -> None:
    (job,) = read_job(job_with("{collective: 1m30s, required: true}"), "job.yaml")
    assert job.check == Check(90.0, required=True)
    (plain,) = read_job(job_with("{collective: 60}"), "job.yaml")
    assert plain.check == Check(60.0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (job_with("60s"), "job.yaml:4: check: found `60s`"),
        (job_with("{}"), "job.yaml:4: check.collective: found nothing"),
        (job_with("{collective: 0s}"), "job.yaml:4: check.collective: found `0s`; allowed: a time from 1s to 1h"),
        (job_with("{collective: 2h}"), "job.yaml:4: check.collective: found `2h`; allowed: a time from 1s to 1h"),
        (job_with("{collectiv: 60s}"), "Did you mean `collective`?"),
        (job_with("{collective: 60s, required: maybe}"), "job.yaml:4: check.required: found `maybe`"),
        (
            job_with("{collective: 60s}", "mig: 1g.10gb"),
            "job.yaml:4: check: found `check` beside parts of GPUs (role w); allowed: it where members have whole GPUs",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(text: str, problem: str) -> None:
    with pytest.raises(BadFields) as caught:
        read_job(text, "job.yaml")
    assert problem in str(caught.value)


QUEUES = """
preset: fair
queues:
  - name: research
    check: {collective: 60s}
    queues:
      - {name: nlp, check: {collective: 10s, required: true}}
      - {name: vision}
  - {name: research-2}
"""


@pytest.mark.parametrize(
    ("queue", "check"),
    [
        ("research/nlp", Check(10.0, required=True)),
        ("research/vision", Check(60.0)),
        ("research-2", None),
    ],
)
def test_a_queue_has_its_own_check_or_that_of_the_queue_above(
    queue: str, check: Check | None
) -> None:
    assert read_policy(QUEUES, "policy.yaml").check_of(queue) == check


def test_an_error_in_a_policy_names_line_and_field() -> None:
    text = QUEUES.replace("collective: 10s", "collective: 0s")
    with pytest.raises(
        BadFields, match=r"policy\.yaml:7: queues\[0\]\.queues\[0\]\.check\.collective"
    ):
        read_policy(text, "policy.yaml")
