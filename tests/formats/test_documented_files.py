"""What the documentation shows is read as it stands; schemas are up to date; reading nothing costs nothing."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gantree.formats import read_cluster, read_job, read_policy, read_prices
from gantree.formats.cluster.form import ClusterForm
from gantree.formats.federation import read_federation
from gantree.formats.job.form import JobForm
from gantree.formats.job.service_form import ServiceForm
from gantree.formats.node_groups import GroupsForm, read_node_groups
from gantree.formats.policy.form import PolicyForm
from gantree.formats.schemas import FORMS, schema_of, write_schemas
from gantree.formats.sweep import SweepForm, read_sweep
from gantree.formats.traces import OPTIONAL, REQUIRED, read_trace_text
from gantree.formats.validation.forms import Form

ROOT = Path(__file__).parents[2]
CONFORMANCE = ROOT.parent / "shared" / "conformance" / "placement" / "cases.json"
READERS: dict[str, Callable[[str, str], Any]] = {
    "cluster": read_cluster,
    "job": read_job,
    "policy": read_policy,
    "prices": read_prices,
    "node-groups": read_node_groups,
    "sweep": read_sweep,
}
DOCUMENT = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
OF_AMD = (ROOT / "docs" / "amd.md").read_text(encoding="utf-8")


EXAMPLES: list[tuple[str, str]] = re.findall(
    r"```yaml\n# (cluster|job|policy|node-groups|sweep)(?:: [^\n]*)?\n(.*?)```",
    DOCUMENT + OF_AMD,
    flags=re.DOTALL,
)


@pytest.mark.parametrize(("kind", "text"), EXAMPLES)
def test_the_examples_in_the_reference_are_read(kind: str, text: str) -> None:
    assert READERS[kind](text, "docs/files.md")


def test_the_reference_has_examples_of_every_kind_of_file() -> None:
    kinds = [kind for kind, _ in EXAMPLES]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "cluster": 3,
        "job": 6,
        "policy": 1,
        "node-groups": 1,
        "sweep": 1,
    }


def test_the_trace_in_the_reference_is_read() -> None:
    (text,) = re.findall(r"```csv\n(.*?)```", DOCUMENT, flags=re.DOTALL)
    assert len(read_trace_text(text.splitlines(keepends=True), "docs/files.md")) == 2


def _all_fields(kind: type[Form]) -> set[str]:
    schema = kind.model_json_schema()
    forms = [schema, *schema["$defs"].values()]
    return {field for form in forms for field in form["properties"]}


@pytest.mark.parametrize(
    "kind", [ClusterForm, JobForm, ServiceForm, PolicyForm, GroupsForm, SweepForm]
)
def test_the_reference_names_every_field(kind: type[Form]) -> None:
    named = set(re.findall(r"[A-Za-z_]+", " ".join(re.findall(r"`([^`\n]+)`", DOCUMENT))))
    assert _all_fields(kind) - named == set()


def test_the_reference_names_every_column_of_a_trace() -> None:
    assert [column for column in (*REQUIRED, *OPTIONAL) if f"`{column}`" not in DOCUMENT] == []


FEDERATION = ROOT / "examples" / "federation" / "federation.yaml"
EXAMPLE_FILES = sorted(
    set((ROOT / "examples").rglob("*.yaml"))
    - set((ROOT / "examples/kubernetes").iterdir())
    - {FEDERATION}
)
"""Files of ours; manifests for Kubernetes are tried on a server."""


@pytest.mark.parametrize("path", EXAMPLE_FILES, ids=lambda path: path.stem)
def test_every_example_file_is_read(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    signs = {"cluster": "\ntiers:", "job": "gang:", "prices": "\ngpus:", "sweep": "\ntraces:"}
    kind = next((kind for kind, sign in signs.items() if sign in text), "policy")
    assert READERS[kind](text, str(path))


def test_the_example_of_a_federation_is_read(tmp_path: Path) -> None:
    text = re.sub(
        r"token_file: /tmp/gantree-(\w+)/token", r"token_file: \1", FEDERATION.read_text("utf-8")
    )
    for name in ("east", "west"):
        (tmp_path / name).write_text("secret")
        (tmp_path / name).chmod(0o600)
    assert read_federation(text, str(FEDERATION), tmp_path).name == "world"


@pytest.mark.parametrize("name", sorted(FORMS))
def test_schemas_in_the_docs_are_up_to_date(name: str, tmp_path: Path) -> None:
    """`python -m gantree.formats.schemas docs/schemas` writes them anew."""
    write_schemas(tmp_path)
    kept = (ROOT / "docs" / "schemas" / f"{name}.schema.json").read_text(encoding="utf-8")
    assert kept == (tmp_path / f"{name}.schema.json").read_text(encoding="utf-8")
    assert json.loads(kept) == schema_of(name)


def test_importing_formats_does_not_import_pydantic_or_yaml() -> None:
    code = "import sys, gantree.formats; print(sorted({'pydantic', 'yaml', 'ClusterShell'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif(not CONFORMANCE.exists(), reason="the conformance cases are not at hand")
def test_all_conformance_cases_are_read() -> None:
    for case in json.loads(CONFORMANCE.read_text(encoding="utf-8")):
        cluster = read_cluster(json.dumps(case["cluster"], indent=1), case["id"])
        (job,) = read_job(json.dumps(case["job"], indent=1), case["id"])
        assert (cluster.name, job.name) == (case["cluster"]["name"], case["job"]["name"])
