"""`gantree fit --serve`: devices that serve a model as asked; what it offers is what `gantree place` accepts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gantree.cli.placement.fit_serving import job_text
from gantree.cli.placement.placer import Placer, Trials
from gantree.formats import read_cluster, read_job
from gantree.model.placements import Placement
from gantree.model.served_models import ServingDemand
from gantree.planning.rightsizing.serving.known_models import known_model
from gantree.planning.rightsizing.serving.sizing import serving_options
from gantree.policy.rules import Policy
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy
from support.examples import examples

ROOT = Path(__file__).parents[3]
Complaints = Callable[[Any, str], list[str]]
Gantree = Callable[..., Any]

MACHINES = """
machines:
  l4-4: {gpus: 4, gpu: L4-24GB}
  a10-2: {gpus: 2, gpu: A10-24GB}
  pairs:
    gpus: 4
    gpu: A6000-48GB
    links: [[X, NV4, SYS, SYS], [NV4, X, SYS, SYS], [SYS, SYS, X, NV4], [SYS, SYS, NV4, X]]
"""
CLUSTER = f"""
name: mixed
tiers: [node]
{MACHINES}
nodes:
  - {{names: h0, machine: dgx-h100}}
  - {{names: l0, machine: l4-4}}
"""
PRICES = """
gpus:
  H100-80GB: {on_demand: 7, source: contract 7, date: 2026-10-01}
  L4-24GB: {on_demand: 0.7, source: contract 7, date: 2026-10-01}
"""
NODES = {
    "dgx-h100": "",
    "dgx-a100": "",
    "hgx-h200": "mig: {instances: [{gpu: 0, profile: 3g.71gb, start: 0}, {gpu: 0, profile: 3g.71gb, start: 4}]}, ",
    "l4-4": "",
    "a10-2": "share: {tenants: 1}, ",
    "pairs": "",
    "mi300x-8": "",
}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """The cluster and the prices."""
    (tmp_path / "c.yaml").write_text(CLUSTER)
    (tmp_path / "p.yaml").write_text(PRICES)
    return tmp_path / "c.yaml", tmp_path / "p.yaml"


def test_a_1b_model_gets_a_small_device_and_the_file_that_is_written_can_be_placed(
    gantree: Gantree, files: tuple[Path, Path], tmp_path: Path
) -> None:
    cluster, prices = files
    job = tmp_path / "serve.yaml"
    words = ("fit", cluster, "llama-3.2-1b", "--serve", "--prices", prices, "-o", job)
    outcome = gantree(*words)
    assert outcome.code == 0
    rows = [line.split() for line in outcome.out.splitlines()[3:]]
    assert rows[0][:4] == ["1", "share", "0.5", "of"] and rows[0][4] == "L4-24GB"
    assert "cheapest: each: {gpu_share: 0.5, gpu_memory_GiB: 10}, gpu: [L4-24GB]" in outcome.out
    assert any("1g.10gb of H100-80GB" in line for line in outcome.out.splitlines())
    placed = gantree("place", cluster, job, "--json").json()["placements"]
    assert [each["placed"] for each in placed] == [True]


def test_the_answer_for_programs_is_as_its_schema_says_and_cheapest_first(
    gantree: Gantree, files: tuple[Path, Path], complaints: Complaints
) -> None:
    cluster, prices = files
    words = ("fit", cluster, "llama-3.1-8b", "--serve", "--prices", prices, "--json")
    answer = gantree(*words, "--context", 8192, "--concurrency", 32).json()
    assert complaints(answer, "fit-serve") == []
    open_ones = [each for each in answer["options"] if each["meets_target"]]
    dollars = [each["USD_per_hour"] for each in open_ones]
    assert dollars == sorted(dollars) and len(dollars) > 3
    assert {each["limit"] for each in open_ones} <= {"memory", "bandwidth", "compute", "traffic"}
    for each in open_ones:
        assert each["first_token_s"] <= 2 and each["token_s"] <= 0.1
        assert each["copies"] * each["requests_of_copy"] >= 32
    assert all(each["why_not"] for each in answer["options"] if not each["meets_target"])


def test_the_example_of_the_docs_is_what_is_printed(
    gantree: Gantree, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    text = (ROOT / "docs/right-sizing.md").read_text(encoding="utf-8")
    command, _, printed = text[text.index("gantree fit examples/fit/serve-cluster") :].split(
        "```", 3
    )[:3]
    words = command.split("\n")[0].split()[1:-2]
    said = gantree(*words).out
    assert printed.removeprefix("text\n") == said
    repository = [
        word if word != "llama-3.1-8b" else "meta-llama/Llama-3.1-8B-Instruct" for word in words
    ]
    assert gantree(*repository).out == said


def test_a_target_that_nothing_meets_is_exit_status_3_and_says_what_limits(
    gantree: Gantree, files: tuple[Path, Path]
) -> None:
    outcome = gantree("fit", files[0], "llama-3.1-70b", "--serve", "--tpot", "5ms")
    assert outcome.code == 3
    assert "No device of this cluster meets the target." in outcome.out
    assert "a token takes" in outcome.out and "the target is 5 ms" in outcome.out
    assert "8 x L4-24GB" not in outcome.out
    slow = gantree("fit", files[0], "llama-3.1-8b", "--serve", "--ttft", "1ms", "--all")
    assert slow.code == 3
    assert "1 x H100-80GB: the first token takes" in slow.out and "target is 1 ms" in slow.out


def test_the_file_that_is_written_runs_what_was_sized(
    gantree: Gantree, files: tuple[Path, Path], tmp_path: Path
) -> None:
    def written(*words: str) -> str:
        job = tmp_path / "serve.yaml"
        outcome = gantree("fit", *files[:1], "--prices", files[1], "--serve", "-o", job, *words)
        assert outcome.code == 0
        read_job(job.read_text(), "serve.yaml")
        return job.read_text()

    plain = written("llama-3.2-1b")
    assert '"--gpu-memory-utilization", 0.450' in plain.replace('"0.450"', "0.450")
    assert "kv-cache" not in plain and "Sized for weights" not in plain
    assert '"--kv-cache-dtype", fp8' in written("llama-3.2-1b", "--kv-cache", "fp8")
    assert "# Sized for weights of int4" in written("llama-3.2-1b", "--weights", "int4")


def test_four_bits_are_those_of_the_layers_and_their_scales_alone(
    gantree: Gantree, files: tuple[Path, Path]
) -> None:
    words = ("fit", files[0], "llama-3.1-8b", "--serve", "--json", "--weights", "int4")
    (way,) = (
        way
        for way in gantree(*words).json()["options"]
        if (way["gpu"], way["gpus"]) == ("H100-80GB", 1)
    )
    tables = 2 * 128256 * 4096
    bytes_of_layers = (8.03e9 - tables) * (4 + 20 / 128) / 8
    expected = (bytes_of_layers + tables * 2) / 2**30
    assert way["memory_GiB"]["weights"] == pytest.approx(expected, rel=1e-3)


def test_a_job_file_describes_a_model_too(
    gantree: Gantree, files: tuple[Path, Path], tmp_path: Path
) -> None:
    model = {"parameters": "8.03B", "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8}
    job = {
        "name": "own",
        "gang": [{"role": "server", "members": 1, "each": {"gpus": 1}, "run": ["true"]}],
        "model": model | {"sequence": 4096, "batch": 1},
    }
    (tmp_path / "own.yaml").write_text(json.dumps(job))
    words = ("fit", files[0], tmp_path / "own.yaml", "--serve", "--json", "--weights", "fp8")
    named = gantree("fit", files[0], "llama-3-8b", *words[3:]).json()["options"][0]
    own = gantree(*words).json()["options"][0]
    assert own["memory_GiB"]["of_a_request"] == named["memory_GiB"]["of_a_request"]
    assert own["gpu"] == named["gpu"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("lama-3-8b", "--serve"), "Did you mean `llama-3-8b`?"),
        (("llama-3-8b", "--serve", "--context", "9000"), "at most 8192 tokens"),
        (("llama-3-8b", "--serve", "--answer", "4096"), "less than the context of 4096"),
        (("llama-3-8b", "--serve", "--weights", "fp7"), "allowed: bf16, fp8, int8, int4"),
        (("llama-3-8b", "--serve", "--ttft", "fast"), "--ttft: found 'fast'"),
        (("llama-3-8b", "--context", "4096"), "need --serve"),
        (("llama-3-8b",), "for inference: --serve"),
    ],
)
def test_bad_words_are_refused_with_what_is_allowed(
    gantree: Gantree, files: tuple[Path, Path], words: tuple[str, ...], said: str
) -> None:
    outcome = gantree("fit", files[0], *words)
    assert outcome.code == 2
    assert said in outcome.err


@settings(deadline=None, max_examples=examples(60))
@given(
    machines=st.lists(st.sampled_from(sorted(NODES)), min_size=1, max_size=4),
    name=st.sampled_from(("llama-3.2-1b", "llama-3.1-8b", "qwen2.5-7b", "llama-3.1-70b")),
    context=st.sampled_from((512, 4096, 16384)),
    requests=st.sampled_from((1, 7, 64, 400)),
    token_s=st.sampled_from((0.02, 0.1, 1.0)),
)
@example(["mi300x-8"], "llama-3.2-1b", 4096, 7, 0.1)
@example(["pairs"], "llama-3.1-70b", 4096, 1, 1.0)
def test_place_accepts_what_is_offered(
    machines: list[str], name: str, context: int, requests: int, token_s: float
) -> None:
    nodes = "".join(
        f"  - {{names: n{at}, {NODES[machine]}machine: {machine}}}\n"
        for at, machine in enumerate(machines)
    )
    text = f"name: drawn\ntiers: [node]\n{MACHINES}nodes:\n{nodes}"
    fabric = Fabric.build(read_cluster(text, "cluster.yaml"))
    model = known_model(name)
    demand = ServingDemand(context - context // 4, context // 4, context, requests, 5.0, token_s)
    for way in serving_options(model, demand, fabric):
        if way.does:
            trials = Trials(Occupancy(fabric), Placer(Policy()))
            jobs = read_job(job_text(model, demand, way), "serve.yaml")
            assert len(jobs) == way.copies
            assert all(isinstance(trials.place(job), Placement) for job in jobs), way.device.words
