"""A submission to a federation, document by document, and the file of a federation."""

from pathlib import Path
from typing import Any

import pytest

from gantree.api.routes.jobs import SubmissionRequest
from gantree.federation.api.submission import federated_jobs
from gantree.formats.federation import read_federation
from gantree.model.errors import BadFields, BadInput, Unsupported
from gantree.model.federation import ChooseBy, Federation


def asked(**fields: Any) -> SubmissionRequest:
    return SubmissionRequest.model_validate(fields)


GANG = "gang: [{role: w, members: 1, each: {gpus: 1}, run: [a]}]"
FILE = """
name: world
choose: cost
lease: 2m
clusters:
  - {name: east, url: "https://e:1", token_file: t, region: eu, data: [imagenet], storage: [/mnt]}
  - {name: west, url: "https://w:1", region: us, price_factor: 0.9}
links: [{between: [eu, us], USD_per_GiB: 0.02, bandwidth_GBps: 1.25}]
"""


def test_each_document_is_a_job_of_its_own_at_the_lines_where_it_stands() -> None:
    text = f"name: a\n{GANG}\n--- \nname: b\n{GANG}\ndata: [{{name: d, GiB: 3}}]\n--- {{name: c, {GANG}}}\n"
    body = asked(text=text, base_dir="/x", overrides={"queue": "q"})
    jobs = federated_jobs(body, "ann", "k")
    assert [(job.job, job.queue, job.user, job.key) for job in jobs] == [
        (name, "q", "ann", "k") for name in "abc"
    ]
    assert jobs[1].data == (("d", 3.0),)
    assert jobs[1].submission["text"].split("\n")[3] == "name: b"
    assert "name: c" in jobs[2].submission["text"]
    assert "name: c" not in jobs[1].submission["text"]


def test_objects_and_services_are_taken_too_and_checkpoints_have_whole_paths() -> None:
    gang = [{"role": "w", "members": 1, "each": {"gpus": 1}, "run": ["a"]}]
    train = {"name": "t", "gang": gang, "checkpoint": {"path": "ckpt"}}
    serve = {"kind": "service", "name": "s", "gang": gang}
    jobs = federated_jobs(asked(jobs=[train, serve], base_dir="/x"), "")
    assert [(job.job, job.kind, job.checkpoint) for job in jobs] == [
        ("t", "job", "/x/ckpt"),
        ("s", "service", None),
    ]
    assert jobs[1].submission["jobs"] == [serve]


def test_what_no_federation_takes_is_refused_as_a_whole() -> None:
    with pytest.raises(Unsupported, match="array: a job of a federation has none"):
        federated_jobs(asked(text=f"name: a\narray: 0-3\n{GANG}", base_dir="/"), "")
    with pytest.raises(BadFields, match=r"job.yaml:5.*nme"):
        federated_jobs(asked(text=f"name: a\n{GANG}\n---\n{GANG}\nnme: b\n"), "")


def test_a_federation_file_is_read_with_its_tokens(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("secret\n")
    told = read_federation(FILE, "federation.yaml", tmp_path)
    assert (told.choose, told.lease_s, told.heartbeat_s) == (ChooseBy.COST, 120.0, 5.0)
    assert [each.token for each in told.clusters] == ["secret", None]
    assert "secret" not in repr(told)
    assert told.link("us", "eu").USD_per_GiB == 0.02
    assert told.link("eu", "eu").USD_per_GiB == 0.0


def test_the_example_of_the_documentation_is_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "federation.md").read_text()
    text = page.split("```yaml\n")[1].split("```")[0]
    for name in ("east", "west"):
        (tmp_path / f"{name}.token").write_text("secret")
    told = read_federation(text, "docs/federation.md", tmp_path)
    default = Federation("world", ())
    for field in ("lease_s", "margin_s", "heartbeat_s", "lost_after_s"):
        assert getattr(told, field) == getattr(default, field)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("name: west", "name: east"), r"federation.yaml:7: clusters\[1\].name: found east again"),
        (("https://w:1", "w:1"), r"clusters\[1\].url: found `w:1`; allowed: a URL"),
        (("[eu, us]", "[eu, af]"), r"links\[0\].between: found `af`; allowed: regions of clusters"),
        (("[eu, us]", "[eu, eu]"), r"links\[0\].between: found eu, eu; allowed: two regions"),
        (("choose: cost", "choose: luck"), r"federation.yaml:3: choose: found `luck`"),
        (("lease: 2m", "lease: 10s"), r"lease: found 10s; allowed: at least four times"),
        (("lease: 2m", "lost_after: 1s"), r"lost_after: found 1s; allowed: from twice"),
        (("[/mnt]", "[mnt]"), r"clusters\[0\].storage: found `mnt`; allowed: absolute paths"),
        (("choose: cost", "chose: cost"), r"chose"),
    ],
)
def test_what_is_wrong_in_it_is_named_with_its_line(
    tmp_path: Path, change: tuple[str, str], sentence: str
) -> None:
    (tmp_path / "t").write_text("secret\n")
    with pytest.raises(BadFields, match=sentence):
        read_federation(FILE.replace(*change), "federation.yaml", tmp_path)


def test_a_token_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        BadInput, match=r"federation.yaml:\d: clusters\[0\].token_file: found .*/t: No such file"
    ):
        read_federation(FILE, "federation.yaml", tmp_path)
