"""models.yaml and mixes.yaml: what is read, and what is said of bad ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.formats.trained_models import read_mixes, read_models
from gantree.model.errors import BadFields
from gantree.model.jobs import Job, Role, Shape
from gantree.sim.drawn_models import drawn_model
from gantree.topology.traffic.traffic import degrees_of, micro_batches

MODELS = """
models:
  small: {source: measured, traffic: {compute: 100ms, data: 50MB}}
  large:
    source: a paper
    model: {parameters: 22B, layers: 48, hidden: 6144, sequence: 2048}
    parallelism: {tensor: 8}
    batch_per_replica: 4
  experts:
    source: a paper
    model:
      {parameters: 40B, layers: 32, hidden: 4096, sequence: 4096, experts: 8, expert_parameters: 38B, micro_batch: 2}
    parallelism: {expert: 8, tensor: 2}
"""


def _job(members: int, gpus: int) -> Job:
    return Job("j", (Role("worker", members, Shape(gpus=gpus)),))


def _refused(text: str, source: str = "models.yaml") -> str:
    with pytest.raises(BadFields) as error:
        read_models(text, source)
    return str(error.value)


def test_a_job_that_trains_a_model_has_its_traffic_and_a_batch_that_grows_with_its_replicas() -> (
    None
):
    models = read_models(MODELS, "models.yaml")
    job = models["large"].trained_by(_job(4, 8))
    assert job.parallelism == (("tensor", 8),)
    assert job.trains is not None
    assert job.trains.batch == 4 * 4
    small = models["small"].trained_by(_job(1, 2))
    assert small.traffic is not None
    assert small.traffic.compute_s == pytest.approx(0.1)


@given(
    name=st.sampled_from(["small", "large", "experts"]),
    members=st.integers(1, 40),
    gpus=st.integers(1, 16),
)
def test_a_model_fits_any_number_of_gpus(name: str, members: int, gpus: int) -> None:
    job = read_models(MODELS, "models.yaml")[name].trained_by(_job(members, gpus))
    degrees = degrees_of(job, job.gpus)
    assert micro_batches(job, degrees) >= 1


def test_a_model_says_what_it_computes_in_one_way() -> None:
    neither = _refused("models: {a: {source: x}}")
    assert "models.yaml" in neither
    assert "neither model and traffic" in neither
    assert "batch_per_replica" in _refused(
        "models: {a: {source: x, model: {parameters: 1B, layers: 2, hidden: 8, sequence: 8, batch: 4}}}"
    )


@pytest.mark.parametrize(
    ("mixes", "said"),
    [
        ('mixes: {m: {"1-8": {smal: 1}}}', "small"),
        ('mixes: {m: {"1-8": {small: 1}, "8-": {large: 1}}}', "8 GPUs in two classes"),
        ('mixes: {m: {"1-": {small: 1}, "8-": {large: 1}}}', "8 GPUs in two classes"),
        ('mixes: {m: {"8-2": {small: 1}}}', "first number is not above"),
        ('mixes: {m: {"1-8": {}}}', "a class without models"),
        ("mixes: {m: {all: {small: 1}}}", "8- for 8 and more"),
    ],
)
def test_a_bad_mix_is_refused(mixes: str, said: str) -> None:
    models = read_models(MODELS, "models.yaml")
    with pytest.raises(BadFields) as error:
        read_mixes(mixes, "mixes.yaml", models)
    assert said in str(error.value)


def test_a_draw_depends_on_seed_and_job_alone_and_keeps_to_the_weights() -> None:
    models = read_models(MODELS, "models.yaml")
    text = 'mixes: {m: {"1-8": {small: 3, large: 1}, "16-": {experts: 1}}}'
    mix = read_mixes(text, "mixes.yaml", models)["m"]
    drawn = [drawn_model(mix, f"job-{number}", 4, 1) for number in range(2000)]
    assert drawn == [drawn_model(mix, f"job-{number}", 4, 1) for number in range(2000)]
    assert drawn != [drawn_model(mix, f"job-{number}", 4, 2) for number in range(2000)]
    assert 0.7 < drawn.count("small") / 2000 < 0.8
    assert drawn_model(mix, "job-1", 16, 1) == "experts"
    assert drawn_model(mix, "job-1", 9, 1) is None
