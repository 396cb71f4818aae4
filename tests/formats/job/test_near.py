"""`topology.near` of job.yaml: read as written, and what of it is refused."""

import pytest

from gantree.formats import read_job
from gantree.model.errors import BadFields
from gantree.model.jobs import Near

JOB = """\
name: llm
gang: [{{role: worker, members: 4, processes: 8, each: {{gpus: 8}}, run: [train]}}]
topology: {{near: {near}}}
parallelism: {{tensor: 8, data: 2, pipeline: 2}}
"""


def test_weights_are_read_as_written() -> None:
    (job,) = read_job(JOB.format(near="{tier: leaf, weights: {data: 0.3, pipeline: 0.7}}"), "f")
    assert job.topology.near == Near("leaf", (("data", 0.3), ("pipeline", 0.7)))


@pytest.mark.parametrize(
    ("near", "told"),
    [
        ("{tier: leaf, weights: {}}", "near.weights: found no weights"),
        ("{tier: leaf}", "near.weights"),
        ("{weights: {data: 1}}", "near.tier"),
        (
            "{tier: leaf, weights: {expert: 1}}",
            "allowed: axes of parallelism (tensor, data, pipeline)",
        ),
        ("{tier: leaf, weights: {data: -1}}", "near.weights.data"),
    ],
)
def test_what_is_wrong_is_named(near: str, told: str) -> None:
    with pytest.raises(BadFields) as caught:
        read_job(JOB.format(near=near), "f")
    assert told in str(caught.value)
