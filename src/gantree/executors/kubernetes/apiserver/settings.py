"""Settings of a daemon on Kubernetes beside those of every daemon. Nothing of the extra is imported here."""

from dataclasses import dataclass
from pathlib import Path

from gantree.executors.kubernetes.apiserver.connection import Connection
from gantree.model.cluster import Cluster
from gantree.model.mig_configs import PartitionNodes
from gantree.model.node_groups import NodeGroup

SCHEDULER = "gantree"
EXTRA = "gantree runs on Kubernetes with its extra alone: pip install 'gantree[kubernetes]'"


@dataclass(frozen=True, slots=True)
class Shadow:
    """A dry run: pods of which scheduler are decided about, and the file that the report is written to."""

    scheduler: str
    report: Path


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """How the API server is reached; the schedulerName of pods that are ours; label keys of the tree, wide to narrow.

    levels are empty where the labels that are known make the tree; cluster is a file that describes it instead. lease
    is the name of the Lease by which a daemon with a journal of its own is elected; "": none, whoever is started leads.
    node_selector is a label selector of the nodes that are ours, "" for all. shadow: a dry run, in which nothing is
    written. node_groups: nodes that an autoscaler can make. partition_nodes: nodes that may be given other MIG configs,
    None for no node. report_url is where pods reach this daemon's API, for the reports of their ranks; "": nowhere.
    check_image is the image in which pods of GangJobs check their links before they start; "": they do not.
    federation_namespace is where GangJobs of a federation are made; "": the cluster takes none. federation_volumes are
    (directory, PersistentVolumeClaim in that namespace): each of their pods has them.
    """

    connection: Connection
    scheduler: str = SCHEDULER
    levels: tuple[str, ...] = ()
    name: str = "kubernetes"
    lease: str = ""
    cluster: Cluster | None = None
    node_selector: str = ""
    shadow: Shadow | None = None
    node_groups: tuple[NodeGroup, ...] = ()
    partition_nodes: PartitionNodes | None = None
    report_url: str = ""
    check_image: str = ""
    federation_namespace: str = ""
    federation_volumes: tuple[tuple[str, str], ...] = ()
