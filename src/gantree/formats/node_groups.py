"""node-groups.yaml: groups of nodes that the cluster's autoscaler can make.

groups:
  - name: h100-a
    max_nodes: 18
    provisioning_class: best-effort-atomic-scale-up.autoscaling.x-k8s.io
    parameters: {ValidUntilSeconds: "3600"}
    labels: {cloud.google.com/gke-nodepool: h100-a, nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
    taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]
    allocatable: {cpu: "96", memory: 1000Gi, nvidia.com/gpu: "8"}
"""

from typing import Annotated

from pydantic import PlainValidator, WithJsonSchema

from gantree.formats.validation.fields import CountFromOne, Text, matching, one_of
from gantree.formats.validation.forms import Form, empty, only_document, read_form, refuse
from gantree.model.errors import Problem
from gantree.model.node_groups import NodeGroup
from gantree.model.node_rules import Taint
from gantree.text.document import read_documents

MAX_FILE_BYTES = 1024 * 1024
ATOMIC = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
GroupName = Annotated[
    str,
    PlainValidator(matching(_SUBDOMAIN, "a name of Kubernetes, such as h100-a")),
    WithJsonSchema({"type": "string", "pattern": f"^{_SUBDOMAIN}$"}),
]
Effect = Annotated[
    str, PlainValidator(one_of(EFFECTS)), WithJsonSchema({"type": "string", "enum": list(EFFECTS)})
]


class TaintForm(Form):
    """A taint of the nodes."""

    key: Text
    value: Text = ""
    effect: Effect = EFFECTS[0]


class GroupForm(Form):
    """A node group."""

    name: GroupName
    max_nodes: CountFromOne
    provisioning_class: GroupName = ATOMIC
    parameters: dict[Text, Text] = empty(dict)
    labels: dict[Text, Text] = empty(dict)
    taints: list[TaintForm] = empty(list)
    allocatable: dict[Text, Text]


class GroupsForm(Form):
    """node-groups.yaml."""

    groups: list[GroupForm]


def read_node_groups(text: str, source: str) -> tuple[NodeGroup, ...]:
    """Read the text of a file of node groups. source names it in errors. Raises BadFields."""
    problems: list[Problem] = []
    documents = read_documents(text, source, problems, MAX_FILE_BYTES)
    document = only_document(GroupsForm, documents, problems)
    form = read_form(GroupsForm, document, problems) if document else None
    names: set[str] = set()
    for number, group in enumerate(form.groups if form else ()):
        if group.name in names:
            assert form is not None
            found, allowed = repr(group.name), "each name once"
            problems.append(form.problem("groups", found, allowed, at=(number,)))
        names.add(group.name)
    refuse(problems, source)
    assert form is not None
    return tuple(map(_group, form.groups))


def _group(form: GroupForm) -> NodeGroup:
    return NodeGroup(
        form.name,
        form.max_nodes,
        form.provisioning_class,
        tuple(form.parameters.items()),
        tuple(form.labels.items()),
        tuple(Taint(each.key, each.value, each.effect) for each in form.taints),
        tuple(form.allocatable.items()),
    )
