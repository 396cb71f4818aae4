"""`gantree place`: files in, places or reasons out."""

import json
from collections.abc import Callable
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from gantree.cli.output.refusals import refusal_lines

Gantree = Callable[..., Any]
Complaints = Callable[[Any, str], list[str]]
JobFile = Callable[..., Path]


def test_a_placed_job_is_told_in_full(
    gantree: Gantree, complaints: Complaints, cluster_file: Path, job_file: JobFile
) -> None:
    outcome = gantree("place", cluster_file, job_file("train", 2, 4), "--json")
    assert (outcome.code, outcome.err) == (0, "")
    assert complaints(outcome.json(), "place") == []
    (answer,) = outcome.json()["placements"]
    assert (answer["job"], answer["placed"]) == ("train", True)
    assert [(each["role"], each["rank"], each["node"]) for each in answer["members"]] == [
        ("worker", 0, "n2"),
        ("worker", 1, "n3"),
    ]
    assert [sorted(each["gpus"]) for each in answer["members"]] == [[0, 1, 2, 3]] * 2
    assert answer["domain"] == {"tier": "leaf", "name": "s0/l1"}
    assert set(answer["predicted"]["crossings"]) == {"spine", "leaf", "node"}


def test_jobs_hold_their_place_for_the_next_ones(
    gantree: Gantree, complaints: Complaints, cluster_file: Path, job_file: JobFile
) -> None:
    files = [job_file("first", 2, 4), job_file("second", 1, 4), job_file("third", 1, 4)]
    outcome = gantree("place", cluster_file, *files, "--json")
    assert outcome.code == 3
    assert complaints(outcome.json(), "place") == []
    first, second, third = outcome.json()["placements"]
    assert [member["node"] for member in first["members"] + second["members"]] == ["n2", "n3", "n1"]
    assert (third["job"], third["placed"]) == ("third", False)
    assert third["why"]["gate"] == "ROOM" or third["why"]["gate"] == "CONTIGUITY"


@pytest.mark.parametrize(
    ("members", "gpus", "gate", "never"),
    [(1, 5, "SHAPE", True), (4, 4, "ROOM", False), (5, 4, "CONTIGUITY", True)],
)
def test_a_refusal_names_its_gate(
    gantree: Gantree,
    cluster_file: Path,
    job_file: JobFile,
    members: int,
    gpus: int,
    gate: str,
    never: bool,
) -> None:
    outcome = gantree("place", cluster_file, job_file("big", members, gpus), "--json")
    assert outcome.code == 3
    (answer,) = outcome.json()["placements"]
    assert answer["placed"] is False
    assert (answer["why"]["gate"], answer["why"]["never"]) == (gate, never)
    assert answer["why"]["sentence"].startswith("Waiting: ") or never


def test_every_patch_that_would_fit_fits_when_applied(
    gantree: Gantree, cluster_file: Path, job_file: JobFile
) -> None:
    wish = {"topology": {"required": "leaf"}}
    refused = gantree("place", cluster_file, job_file("wide", 3, 4, **wish), "--json").json()
    relaxations = refused["placements"][0]["why"]["would_fit_if"]
    assert relaxations
    for relaxation in relaxations:
        patch = relaxation["patch"]
        members = patch.get("members", 3)
        required = patch.get("topology.required", "leaf")
        topology = {} if required is None else {"topology": {"required": required}}
        assert gantree("place", cluster_file, job_file("eased", members, 4, **topology)).code == 0


def test_a_patch_of_slices_is_a_job_files_own_and_people_read_it_in_short(
    gantree: Gantree, cluster_file: Path, job_file: JobFile, complaints: Complaints
) -> None:
    slices = [{"members": 3, "required": "leaf", "role": "worker"}]
    wide = job_file("wide", 3, 4, topology={"slices": slices})
    document = gantree("place", cluster_file, wide, "--json").json()
    assert complaints(document, "place") == []
    patch = document["placements"][0]["why"]["would_fit_if"][0]["patch"]
    assert patch == {"topology.slices": [{**slices[0], "required": "spine"}]}
    assert "topology.slices: 3 of role worker per spine" in gantree("place", cluster_file, wide).out
    topology = {"slices": patch["topology.slices"]}
    assert gantree("place", cluster_file, job_file("eased", 3, 4, topology=topology)).code == 0


def test_people_read_places_and_reasons(
    gantree: Gantree, cluster_file: Path, job_file: JobFile
) -> None:
    outcome = gantree("place", cluster_file, job_file("fits", 1, 2), job_file("huge", 1, 9))
    assert outcome.code == 3
    fits, member, huge, *reasons = outcome.out.splitlines()
    assert fits == "fits: 2 GPUs on node s0/l0/n0"
    assert member == "  worker 0  n0  gpus 2-3"
    assert huge.startswith("huge: not placed. ")
    assert reasons[0] == "  gate: SHAPE (never fits, not even on the empty cluster)"


def test_one_file_may_hold_several_jobs_and_come_from_stdin(
    gantree: Gantree, cluster_file: Path, job_file: JobFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = job_file("a", 1, 1).read_bytes() + b"\n---\n" + job_file("b", 1, 1).read_bytes()
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(both)))
    outcome = gantree("place", cluster_file, "-", "--json")
    assert [each["job"] for each in outcome.json()["placements"]] == ["a", "b"]


def test_jobs_of_the_same_name_do_not_share_their_place(
    gantree: Gantree, cluster_file: Path, job_file: JobFile
) -> None:
    file = job_file("twin", 1, 4)
    outcome = gantree("place", cluster_file, file, file, "--json")
    nodes = [each["members"][0]["node"] for each in outcome.json()["placements"]]
    assert outcome.code == 0
    assert len(set(nodes)) == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: a\ngang: [{role: w, member: 2, each: {gpus: 1}}]\n", "members"),
        ("name: [\n", "job.yaml:"),
        ("", "job.yaml"),
        (b"\xff\xfe\x00n", "not UTF-8"),
        (json.dumps({"name": "a", "topology": {"required": "rack"},
                     "gang": [{"role": "w", "members": 1, "each": {"gpus": 1}}]}), "rack"),
        (json.dumps({"name": "a", "gang": [{"role": "w", "members": 1, "each": {"mig": "3g"}}]}), "3g.40gb"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_job_goes_to_stderr_and_nothing_to_stdout(
    gantree: Gantree, cluster_file: Path, tmp_path: Path, text: str | bytes, told: str
) -> None:
    job = tmp_path / "job.yaml"
    job.write_bytes(text if isinstance(text, bytes) else text.encode())
    outcome = gantree("place", cluster_file, job, "--json")
    assert (outcome.code, outcome.out) == (2, "")
    assert told in outcome.err
    assert all(line.startswith("gantree: ") for line in outcome.err.splitlines())


def test_a_missing_file_is_bad_input(gantree: Gantree, cluster_file: Path, tmp_path: Path) -> None:
    outcome = gantree("place", cluster_file, tmp_path / "none.yaml")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == f"gantree: {tmp_path / 'none.yaml'}: no such file or directory\n"


def test_with_a_policy_its_classes_are_the_only_ones(
    gantree: Gantree, cluster_file: Path, job_file: JobFile, tmp_path: Path
) -> None:
    job = job_file("a", 1, 1, priority="urgent")
    assert gantree("place", cluster_file, job).code == 0
    refused = gantree("place", cluster_file, job, "--policy", "gantree")
    assert refused.code == 2
    assert refused.err.startswith(f"gantree: {job}: job a: priority: found `urgent`; allowed: ")
    policy = tmp_path / "policy.yaml"
    policy.write_text("preset: gantree\npriorities: {urgent: 500}\n")
    assert gantree("place", cluster_file, job, "--policy", policy).code == 0
    unknown = gantree("place", cluster_file, job, "--policy", "gentree")
    assert unknown.code == 2
    assert "allowed: a policy file, or a preset (gantree, fifo" in unknown.err
    assert "Did you mean `gantree`?" in unknown.err


def test_by_a_baseline_members_go_where_it_says(
    gantree: Gantree, cluster_file: Path, job_file: JobFile
) -> None:
    nodes = {}
    for policy in ("gantree", "blind-first-fit"):
        outcome = gantree("place", cluster_file, job_file("a", 2, 4), "--json", "--policy", policy)
        (placed,) = outcome.json()["placements"]
        nodes[policy] = [member["node"] for member in placed["members"]]
    assert nodes == {"gantree": ["n2", "n3"], "blind-first-fit": ["n1", "n2"]}


def test_the_example_in_the_docs_is_what_the_schema_describes(complaints: Complaints) -> None:
    page = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    example = page.partition("```json\n")[2].partition("```")[0]
    assert complaints(json.loads(example), "place") == []


@pytest.mark.parametrize("gate", ["LIMIT", "QUOTA"])
def test_what_a_queue_or_a_budget_never_admits_is_not_said_of_the_cluster(gate: str) -> None:
    refused = {"gate": gate, "never": True, "short_by": None, "nearest": None, "would_fit_if": []}
    assert refusal_lines(refused) == [f"gate: {gate} (never fits, however much is free)"]


EXAMPLES = Path(__file__).parents[3] / "examples"


def test_replicas_of_a_service_are_spread_and_the_prefill_of_each_is_next_to_its_decode(
    gantree: Gantree, complaints: Complaints
) -> None:
    service = EXAMPLES / "services" / "disaggregated.yaml"
    outcome = gantree("place", EXAMPLES / "four-dgx.yaml", service, "--json")
    assert (outcome.code, complaints(outcome.json(), "place")) == (0, [])
    replicas = {each["job"]: each["members"] for each in outcome.json()["placements"]}
    for members in replicas.values():
        assert [each["role"] for each in members] == ["router", "prefill", "prefill", "decode"]
        assert len({each["node"] for each in members}) == 1
    nodes = {name: members[0]["node"] for name, members in replicas.items()}
    assert sorted(nodes) == ["llama.1", "llama.2"]
    assert len(set(nodes.values())) == 2, nodes
