"""JSON schemas of users' files, for editors. `python -m gantree.formats.schemas DIRECTORY` writes them.

A schema knows the fields and their kinds, not the rules between them: what it accepts, the readers may refuse.
"""

import json
import sys
from pathlib import Path
from typing import Any

from gantree.formats.access.form import AccessForm
from gantree.formats.calibration.form import CalibrationForm
from gantree.formats.cluster.form import ClusterForm
from gantree.formats.federation import FederationForm
from gantree.formats.job.form import JobForm
from gantree.formats.job.service_form import ServiceForm
from gantree.formats.node_groups import GroupsForm
from gantree.formats.policy.form import PolicyForm
from gantree.formats.prices.form import PricesForm
from gantree.formats.sweep import SweepForm
from gantree.formats.trained_models import MixesForm, ModelsForm
from gantree.formats.validation.forms import Form
from gantree.formats.workload import WorkloadForm

FORMS: dict[str, type[Form]] = {
    "access": AccessForm,
    "calibration": CalibrationForm,
    "cluster": ClusterForm,
    "federation": FederationForm,
    "job": JobForm,
    "mixes": MixesForm,
    "models": ModelsForm,
    "node-groups": GroupsForm,
    "policy": PolicyForm,
    "prices": PricesForm,
    "service": ServiceForm,
    "sweep": SweepForm,
    "workload": WorkloadForm,
}
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(name: str) -> dict[str, Any]:
    """Return the JSON schema of one of FORMS."""
    return {"$schema": DIALECT, **FORMS[name].model_json_schema()}


def write_schemas(directory: Path) -> None:
    """Write NAME.schema.json for each form into a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in FORMS:
        text = json.dumps(schema_of(name), indent=2) + "\n"
        (directory / f"{name}.schema.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_schemas(Path(sys.argv[1]))
