"""The manifests that install gantree, as Helm renders them from the chart: `python -m support.manifests`.

deploy/kubernetes/gantree.yaml is the chart with its defaults, in a namespace of its own, shadow.yaml a dry run, and
namespaces.yaml what switches namespaces; this writes them anew, and a test holds them equal. Helm is its own code, in a
library (helm_python), which there is for Linux on x86-64 alone. The definition of GangServices ends with what that of
GangJobs has, since a GangService is made of them.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from textwrap import indent
from typing import Any

import yaml

from support.yaml_text import read_yaml, read_yaml_documents

Json = dict[str, Any]

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART, PLAIN = DEPLOY / "chart" / "gantree", DEPLOY / "kubernetes" / "gantree.yaml"
SHADOW, NAMESPACES = PLAIN.with_name("shadow.yaml"), PLAIN.with_name("namespaces.yaml")
CRDS = DEPLOY / "kubernetes" / "crds"
SERVICES = CRDS / "gangservices.yaml"
MARKER = "# Below: written by make manifests.\n"
NOT_OF_A_REPLICA = (
    "schedulerName",
    "elastic",
    "timeLimitSeconds",
    "ttlSecondsAfterFinished",
    "serving",
)
"""Fields of a GangJob that a GangService sets itself, or that a replica does not have."""
RELEASE = "gantree"
SHADOW_RELEASE = "gantree-shadow"
SWITCHES = "namespaces.yaml"
"""The template that switches namespaces."""
HEAD = """\
# gantree as a scheduler beside the default one: what docs/kubernetes.md installs. Change the image; everything else
# works as it stands on a cluster with a default storage class.
# This is deploy/chart/gantree with its defaults: change that, and write this anew with `make manifests`.
apiVersion: v1
kind: Namespace
metadata:
  name: gantree
  labels:
    pod-security.kubernetes.io/enforce: restricted
"""
SHADOW_HEAD = """\
# A dry run beside the scheduler in charge, which may only read: docs/kubernetes-trial.md. Change the image.
# This is deploy/chart/gantree with dryRun: change that, and write this anew with `make manifests`.
apiVersion: v1
kind: Namespace
metadata:
  name: gantree-shadow
  labels:
    pod-security.kubernetes.io/enforce: restricted
"""


def rendered(values: Mapping[str, Any] | None = None, release: str = RELEASE) -> dict[str, str]:
    """The text of each template, by its name; the namespace has the release's name.

    Raises helm_python.HelmError for values that the chart refuses.
    """
    return dict(_rendered(json.dumps(values or {}), release))


@cache
def _rendered(values: str, release: str) -> dict[str, str]:
    """Each set of values is rendered once: that takes half a second."""
    from helm_python import Chart, disable_logging

    disable_logging()  # it tells of the link to the definitions, each time
    with Chart.load(CHART) as chart:
        told = chart.render(json.loads(values), name=release, namespace=release)
    return {name.rpartition("/")[2]: text for name, text in sorted(told.items())}


def objects(values: Mapping[str, Any] | None = None) -> list[Json]:
    """What the chart makes of values, as objects."""
    texts = [text for name, text in rendered(values).items() if name.endswith(".yaml")]
    return [each for text in texts for each in read_yaml_documents(text) if each]


def plain() -> str:
    """The text of the plain manifest."""
    return _joined(HEAD, rendered())


def shadow() -> str:
    """The text of the manifest of a dry run."""
    return _joined(SHADOW_HEAD, rendered({"dryRun": True}, SHADOW_RELEASE))


def namespaces() -> str:
    """The text of the manifest that switches namespaces."""
    return rendered({"namespaces": {"enabled": True}})[SWITCHES].strip() + "\n"


def _joined(head: str, told: Mapping[str, str]) -> str:
    found = (text.strip() for name, text in told.items() if name.endswith(".yaml"))
    texts = [text.removeprefix("---").strip() for text in found if text]
    return "\n---\n".join([head.rstrip(), *texts]) + "\n"


def gang_services() -> str:
    """The text of the definition of GangServices: what is written by hand, and the spec of a GangJob."""
    head, _, _ = SERVICES.read_text(encoding="utf-8").partition(MARKER)
    text = yaml.safe_dump(_of_a_replica(), sort_keys=False, width=100)
    space = " " * (len(head) - len(head.rstrip(" ")))
    return f"{head}{MARKER}{indent(text, space)}"


def _of_a_replica() -> Json:
    """The schema of a GangJob's spec for a template: nothing is filled in, and everything may change."""
    told = read_yaml((CRDS / "gangjobs.yaml").read_text(encoding="utf-8"))
    (version,) = told["spec"]["versions"]
    spec: Json = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    for name in NOT_OF_A_REPLICA:
        del spec["properties"][name]
    made: Json = _as_written(spec)
    return made


def _as_written(told: Any) -> Any:
    """A schema without defaults, and without rules that need them, or forbid a change."""
    match told:
        case dict():
            rules = "x-kubernetes-validations"
            kept = {name: each for name, each in told.items() if not _is_default(name, each)}
            made = {name: _as_written(each) for name, each in kept.items() if name != rules}
            if found := list(filter(_is_kept, told.get(rules, ()))):
                made[rules] = [{**each, "rule": _with_default(each["rule"])} for each in found]
            return made
        case list():
            return [_as_written(each) for each in told]
        case _:
            return told


def _is_default(name: str, value: Any) -> bool:
    return name == "default" and not isinstance(value, dict)


def _is_kept(rule: Json) -> bool:
    return "oldSelf" not in rule["rule"] and "elastic" not in rule["rule"]


def _with_default(rule: str) -> str:
    """A role without a number of members has one."""
    return rule.replace("each, each.members)", "each, has(each.members) ? each.members : 1)")


MANIFESTS = {PLAIN: plain, SHADOW: shadow, NAMESPACES: namespaces, SERVICES: gang_services}

if __name__ == "__main__":
    for path, text in MANIFESTS.items():
        path.write_text(text(), encoding="utf-8")
