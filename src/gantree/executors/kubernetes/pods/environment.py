"""Environment variables of pods from annotations of the binding, through the downward API.

The kubelet reads annotations when it starts the containers, which is after the binding; so ranks and sizes need not be
known when a pod is made. GangJobs have them by their templates, pods of other controllers by the webhook (`admission`).
What a container sets itself stays as it is.
"""

from collections.abc import Mapping
from typing import Any

from gantree.executors.kubernetes.pods.gang_spec import Spec, tables, text

Json = dict[str, Any]

OF_PLACE = {
    "GANTREE_NODE": "spec.nodeName",
    "GANTREE_JOB": "metadata.annotations['gantree.io/job']",
    "GANTREE_ATTEMPT": "metadata.annotations['gantree.io/attempt']",
    "GANTREE_DOMAIN": "metadata.annotations['gantree.io/domain']",
    "GANTREE_NEIGHBOURS": "metadata.annotations['gantree.io/neighbours']",
    "GANTREE_GPUS": "metadata.annotations['gantree.io/gpus']",
    "GANTREE_NICS": "metadata.annotations['gantree.io/nics']",
    "GANTREE_REPORT_URL": "metadata.annotations['gantree.io/report-url']",
    "GANTREE_REPORT_TOKEN": "metadata.annotations['gantree.io/report-token']",
}
"""What is known of every pod when it is bound."""
OF_RANK = {
    "RANK": "metadata.annotations['gantree.io/rank']",
    "WORLD_SIZE": "metadata.annotations['gantree.io/world-size']",
    "NODE_RANK": "metadata.annotations['gantree.io/member']",
    "NNODES": "metadata.annotations['gantree.io/members']",
    "PET_NNODES": "metadata.annotations['gantree.io/members']",
    "PET_NODE_RANK": "metadata.annotations['gantree.io/member']",
    "GANTREE_WORLD_SIZE": "metadata.annotations['gantree.io/world-size']",
}
"""Which of how many it is, where that is known no sooner."""


def environment(
    container: Spec, values: Mapping[str, str], from_pod: Mapping[str, str]
) -> list[Json]:
    """The variables of a container: added ones first, so that its own may refer to them. Raises InvalidObject."""
    own = tables(container, "env")
    taken = {text(each, "name") for each in own}
    added: list[Json] = [{"name": name, "value": value} for name, value in values.items()]
    added += [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in from_pod.items()
    ]
    return [*(each for each in added if each["name"] not in taken), *map(dict, own)]
