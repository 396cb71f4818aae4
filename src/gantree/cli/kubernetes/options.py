"""Options that the commands of `gantree kubernetes` share: how the API server is reached, and which nodes count."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypedDict
from urllib.parse import urlsplit

import typer

from gantree.cli.input.files import read_text, source_of
from gantree.executors.kubernetes.apiserver.kubeconfig import connection_of
from gantree.executors.kubernetes.apiserver.settings import (
    EXTRA,
    SCHEDULER,
    KubernetesSettings,
    Shadow,
)
from gantree.formats.gpu_config_profiles import read_gpu_config_profiles
from gantree.formats.mig_configs import read_mig_configs
from gantree.model.errors import BadInput, Unsupported
from gantree.model.mig_configs import PartitionNodes

KubeconfigOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Kubeconfig. [default: the service account of this pod, else KUBECONFIG]",
    ),
]
ContextOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Context of the kubeconfig. [default: the current context]"),
]
ApiServerOption = Annotated[
    str | None, typer.Option(metavar="URL", help="API server without authentication.")
]
SchedulerOption = Annotated[
    str, typer.Option(metavar="NAME", help="schedulerName of the pods to schedule.")
]
LevelOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY",
        help="Node label of a tier, widest tier first; may be repeated."
        " [default: well-known labels]",
    ),
]
NodeSelectorOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Label of the nodes to use; may be repeated. [default: all nodes]",
    ),
]
LeaseNameOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Lease for the leader election of daemons with separate journals, in the namespace of the service account"
        " or of the kubeconfig's context; '' for none."
        " [default: the schedulerName; none with --database or --dry-run]",
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Cluster file with the tiers and machines of the nodes, instead of their labels.",
    ),
]
NodeGroupsOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Node groups of the cluster's autoscaler, to ask for nodes that do not exist yet.",
    ),
]
PartitionNodesOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Label of the nodes that may be given other MIG configs, or GPU config profiles, for gangs that wait; may"
        " be repeated. Needs --mig-configs or --gpu-config-profiles. [default: no node]",
    ),
]
MigConfigsOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Configs that the GPU Operator's MIG manager knows, or their ConfigMap.",
    ),
]
GpuConfigProfilesOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Profiles that AMD's device config manager knows, or their ConfigMap.",
    ),
]
ReportUrlOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where pods reach --listen: their ranks report progress and own times there.",
    ),
]
CheckImageOption = Annotated[
    str | None,
    typer.Option(
        metavar="IMAGE",
        help="Image with PyTorch and gantree, in which pods of GangJobs check their links before they start.",
    ),
]
FederationNamespaceOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAMESPACE",
        help="Namespace of the GangJobs and GangServices that are made for a federation. [default: it takes none]",
    ),
]
FederationVolumeOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="DIRECTORY=CLAIM",
        help="PersistentVolumeClaim of --federation-namespace that pods of a federation have at DIRECTORY; may be"
        " repeated.",
    ),
]
_KEY = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?"
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,511}")
_VOLUME = re.compile(r"(/[^=:\s]{1,1023})=([a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)")
_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_LABEL = re.compile(f"{_KEY}={_VALUE}")


def report_url_of(url: str | None, listen: str | None, shadow: Shadow | None) -> str:
    """Return the URL that pods are told to report to; "" for none. Raises BadInput."""
    if url is None:
        return ""
    parts = urlsplit(url)
    is_plain = parts.scheme in ("http", "https") and parts.hostname
    if not is_plain or parts.username or parts.query or parts.fragment:
        raise BadInput(f"--report-url {url}: expected https://HOST:PORT, as pods reach --listen")
    if listen is None or shadow is not None:
        cause = "needs --listen" if listen is None else "is of no use in a dry run"
        raise BadInput(
            f"--report-url {cause}: pods report to the API of the daemon that binds them"
        )
    return url


def check_image_of(image: str | None, report_url: str) -> str:
    """Return the image of checks; "" for none. Raises BadInput."""
    if image is None:
        return ""
    if not _IMAGE.fullmatch(image):
        raise BadInput(f"--check-image {image!r}: expected an image, such as registry/check:1")
    if not report_url:
        raise BadInput("--check-image needs --report-url: pods post there what they find")
    return image


class OfFederation(TypedDict):
    """The settings that concern a federation."""

    federation_namespace: str
    federation_volumes: tuple[tuple[str, str], ...]


def federation_of(
    namespace: str | None, volumes: list[str] | None, shadow: Shadow | None
) -> OfFederation:
    """Return where objects of a federation are made, and the volumes of their pods. Raises BadInput."""
    if volumes and namespace is None:
        raise BadInput("--federation-volume needs --federation-namespace, where the claims are")
    return {
        "federation_namespace": _federation_namespace(namespace, shadow),
        "federation_volumes": tuple(map(_volume, volumes or ())),
    }


def _volume(told: str) -> tuple[str, str]:
    found = _VOLUME.fullmatch(told)
    if found is None:
        raise BadInput(
            f"--federation-volume {told!r}: expected DIRECTORY=CLAIM, such as /mnt/ckpt=checkpoints"
        )
    return found[1], found[2]


def _federation_namespace(namespace: str | None, shadow: Shadow | None) -> str:
    if namespace is None:
        return ""
    if not _NAMESPACE.fullmatch(namespace):
        raise BadInput(f"--federation-namespace {namespace!r}: expected the name of a namespace")
    if shadow is not None:
        raise BadInput("--federation-namespace is of no use in a dry run: it makes no GangJobs")
    return namespace


@contextmanager
def extra() -> Iterator[None]:
    """Around imports of what talks to an API server. Raises Unsupported where the extra is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise Unsupported(EXTRA) from error


def settings_of_options(
    kubeconfig: Path | None,
    context: str | None,
    api_server: str | None,
    level: list[str] | None,
    node_selector: list[str] | None,
    scheduler_name: str = SCHEDULER,
    shadow: Shadow | None = None,
) -> KubernetesSettings:
    """What the options say. Raises BadInput."""
    return KubernetesSettings(
        connection_of(api_server, kubeconfig, context),
        scheduler_name,
        tuple(level or ()),
        node_selector=selector_of(node_selector or ()),
        shadow=shadow,
    )


def selector_of(labels: list[str] | tuple[str, ...]) -> str:
    """A label selector of the API for nodes that have all these labels. Raises BadInput for what is no label."""
    _check_labels("--node-selector", labels)
    return ",".join(labels)


def partition_nodes_of(
    labels: list[str] | None, configs: str | None, profiles: str | None
) -> PartitionNodes | None:
    """The nodes that may be given other configs, and the files of these; None for no node. Raises BadInput."""
    if not labels and configs is None and profiles is None:
        return None
    if not labels or (configs is None and profiles is None):
        raise BadInput(
            "--partition-nodes needs --mig-configs or --gpu-config-profiles, and these need it"
        )
    _check_labels("--partition-nodes", labels)
    key_values = tuple((label.partition("=")[0], label.partition("=")[2]) for label in labels)
    return PartitionNodes(
        key_values,
        () if configs is None else read_mig_configs(read_text(configs), source_of(configs)),
        ()
        if profiles is None
        else read_gpu_config_profiles(read_text(profiles), source_of(profiles)),
    )


def _check_labels(option: str, labels: Sequence[str]) -> None:
    for label in labels:
        if _LABEL.fullmatch(label) is None:
            raise BadInput(f"{option}: found {label!r}; allowed: KEY=VALUE, as on a node: pool=a")
