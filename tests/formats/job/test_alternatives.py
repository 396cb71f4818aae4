"""`alternatives` of a role in job.yaml: what they mean, and what is refused with line and field."""

from dataclasses import replace

import pytest

from gantree.formats import read_job
from gantree.model.errors import BadFields
from gantree.model.jobs import AlternativeShape, Shape

ROLE = "name: j\ngang:\n  - role: w\n    members: 1\n    each: {EACH}\n    gpu: H100-80GB\n    run: [serve]\n"


def job_with(*alternatives: str, each: str = "gpus: 1", more: str = "") -> str:
    lines = "".join(f"      - {{{each}}}\n" for each in alternatives)
    return f"{ROLE.replace('EACH', each)}    alternatives:\n{lines}{more}"


def test_what_an_alternative_leaves_out_is_as_in_its_role() -> None:
    text = job_with(
        "each: {mig: 3g.40gb}, speed: 0.4",
        "each: {gpu_share: 0.5, cpus: 1}",
        "each: {gpus: 2}, gpu: {model: L40S-48GB, speed: 0.5}",
        each="gpus: 1, cpus: 4, devices: {fpga: 1}",
    )
    (job,) = read_job(text, "job.yaml")
    own = Shape(cpus=4.0, devices=(("fpga", 1),), models=("H100-80GB",))
    assert job.alternatives == (
        AlternativeShape("w", replace(own, mig="3g.40gb"), 0.4),
        AlternativeShape("w", replace(own, gpu_share=0.5, cpus=1.0), 1.0),
        AlternativeShape("w", replace(own, gpus=2, models=("L40S-48GB",)), 1.0),
    )
    assert job.speeds == (("L40S-48GB", 0.5),)


SECOND = (
    "  - {role: v, members: 1, each: {gpus: 1}, alternatives: {each: {gpus: 2}}, run: [serve]}\n"
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (job_with("speed: 2"), "job.yaml:9: gang[0].alternatives[0].each: found nothing"),
        (job_with("each: {gpus: 2}, speed: 0"), "job.yaml:9: gang[0].alternatives[0].speed: found `0`"),
        (job_with("each: {gpus: 2}, sped: 1"), "Did you mean `speed`?"),
        (job_with("each: {mig: 9z.40gb}"), "job.yaml:9: gang[0].alternatives[0].each.mig: found `9z.40gb`"),
        (job_with("each: {mig: 1g.5gb}"), "job.yaml:9: gang[0].alternatives[0].each.mig: found `1g.5gb` of H100-80GB"),
        (job_with("each: {gpus: 2, mig: 3g.40gb}"), "each.mig: found mig together with gpus"),
        (
            job_with("each: {gpus: 2}", "each: {gpus: 2, cpus: 1}"),
            "job.yaml:10: gang[0].alternatives[1].each: found the same part of the GPU again",
        ),
        (job_with("each: {gpus: 1}"), "Further models for one shape go into `gpu`"),
        (job_with("each: {gpus: 2}", more="elastic: {min: 1, max: 2}\n"), "found alternatives beside `elastic`"),
        (job_with("each: {gpus: 2}", more="parallelism: {data: 1}\n"), "found alternatives beside `parallelism`"),
        (job_with("each: {gpus: 2}", more="topology: {box: any}\n"), "found alternatives beside `topology.box`"),
        (job_with("each: {gpus: 2}", more=SECOND), "found alternatives of `v` beside those of `w`"),
        (job_with(*(f"each: {{gpus: {n}}}" for n in range(2, 11))), "found 9 alternatives; allowed: at most 8"),
        (
            job_with("each: {gpu_share: 0.5}", more="check: {collective: 60s}\n"),
            "found `check` beside parts of GPUs (role w)",
        ),
        (
            job_with(*(f"each: {{gpus: {n}}}, gpu: {{model: H100-80GB, speed: 0.{n}}}" for n in (5, 6))),
            "one speed of the job on H100-80GB, which is 0.5 above",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(text: str, problem: str) -> None:
    with pytest.raises(BadFields) as caught:
        read_job(text, "job.yaml")
    assert problem in str(caught.value)
