"""Reading Kubernetes nodes: every family of labels, how they fit together, hardware, health, and fuzz."""

import copy
import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.cluster import DomainFacts
from gantree.model.errors import BadFields, BadInput, GantreeError
from gantree.topology.discovery.fabrics import FabricReading
from gantree.topology.discovery.listings.kubernetes import parse
from gantree.topology.discovery.listings.kubernetes import read as read_texts
from gantree.topology.discovery.listings.kubernetes_nodes import quantity
from support.examples import examples

SHARED = Path(__file__).parents[3] / "shared" / "data" / "topology" / "k8s"
Labels = Mapping[str, str]

KUEUE = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "Topology",
    "metadata": {"name": "default"},
    "spec": {
        "levels": [
            {"nodeLabel": "cloud.provider.com/topology-block"},
            {"nodeLabel": "cloud.provider.com/topology-rack"},
            {"nodeLabel": "kubernetes.io/hostname"},
        ]
    },
}
H100 = {
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.memory": "81559",
    "nvidia.com/gpu.count": "8",
}


def node(name: str, labels: Labels | None = None, **capacity: str) -> dict[str, Any]:
    told = {
        key.replace("__", "/").replace("_com", ".com"): value for key, value in capacity.items()
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name} | dict(labels or {})},
        "spec": {},
        "status": {
            "capacity": told or {"cpu": "96", "memory": "1056761636Ki", "nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        },
    }


def read(items: Sequence[object], levels: Sequence[str] | None = None) -> FabricReading:
    return parse(json.dumps({"kind": "List", "items": list(items)}), "f", levels)


def places(found: FabricReading) -> dict[str, str]:
    return {each.name: "/".join(each.at) for each in found.nodes}


def labelled(*labels: Labels) -> FabricReading:
    return read([node(f"n{number}", each) for number, each in enumerate(labels)])


def test_aws_layers_run_from_the_outermost() -> None:
    key = "topology.k8s.aws/network-node-layer-"
    found = labelled(
        *({key + "1": "a", key + "2": f"b{i // 2}", key + "3": f"c{i}"} for i in range(4))
    )
    assert found.tiers == ("core", "spine", "leaf")
    assert places(found)["n3"] == "a/b1/c3"
    assert found.inferred[0].startswith("labels of aws make the tree (4 of 4 nodes)")


def test_aws_nodes_of_three_and_of_four_layers_hang_on_their_last_one() -> None:
    key = "topology.k8s.aws/network-node-layer-"
    three = [{key + "1": "a", key + "2": "b3", key + "3": "c3"}] * 2
    four = [
        {key + "1": "a", key + "2": "b4", key + "3": "c4", key + "4": f"d{i}"} for i in range(2)
    ]
    found = labelled(*three, *four, {})
    assert found.tiers == ("tier4", "core", "spine", "leaf")
    assert places(found) == {
        "n0": "a/b3/b3/c3", "n1": "a/b3/b3/c3", "n2": "a/b4/c4/d0", "n3": "a/b4/c4/d1", "n4": "n4/n4/n4/n4",
    }  # fmt: skip
    assert any("2 nodes have fewer layers than others" in said for said in found.inferred)
    (warning,) = found.warnings
    assert "1 node has no label" in warning and warning.endswith("of its own: n4")


def test_topograph_tiers_run_from_the_closest_and_may_be_many() -> None:
    key = "fabric.topograph.run/tier-"
    found = labelled(*({key + str(t): f"s{t}.{i >> (t + 1)}" for t in range(4)} for i in range(4)))
    assert found.tiers == ("tier4", "core", "spine", "leaf")
    assert places(found)["n2"] == "s3.0/s2.0/s1.0/s0.1"


@pytest.mark.parametrize(
    ("keys", "tiers"),
    [
        (("network.topology.nvidia.com/core", "network.topology.nvidia.com/spine", "network.topology.nvidia.com/leaf"),
         ("core", "spine", "leaf")),
        (("network.topology.nvidia.com/datacenter", "network.topology.nvidia.com/spine",
          "network.topology.nvidia.com/block"), ("core", "spine", "leaf")),
        (("cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock",
          "cloud.google.com/gce-topology-host"), ("block", "subblock", "host")),
        (("oci.oraclecloud.com/rdma.hpc_island_id", "oci.oraclecloud.com/rdma.network_block_id",
          "oci.oraclecloud.com/rdma.local_block_id"), ("hpc-island", "network-block", "local-block")),
        (("oci.oraclecloud.com/host.network_block_id", "oci.oraclecloud.com/host.rack_id"), ("network-block", "rack")),
        (("crusoe.ai/ib.partition.id", "crusoe.ai/pod.id"), ("ib-partition", "pod")),
        (("backend.coreweave.cloud/fabric", "backend.coreweave.cloud/superpod", "backend.coreweave.cloud/leafgroup"),
         ("ib-fabric", "superpod", "leafgroup")),
        (("topology.gke.io/cluster", "topology.gke.io/rack", "topology.gke.io/host"), ("block", "subblock", "host")),
        (("cloud.google.com/gke-tpu-slice-4x4-id", "cloud.google.com/gke-tpu-slice-2x4-id"), ("tpu-4x4", "tpu-2x4")),
        (("topology.kubernetes.io/region", "topology.kubernetes.io/zone"), ("region", "zone")),
    ],
)  # fmt: skip
def test_each_family_of_labels_makes_its_tiers(
    keys: tuple[str, ...], tiers: tuple[str, ...]
) -> None:
    found = labelled(
        *({key: f"d{t}.{i >> (3 - t)}" for t, key in enumerate(keys)} for i in range(8))
    )
    assert found.tiers == tiers
    assert places(found)["n7"] == "/".join(f"d{t}.{7 >> (3 - t)}" for t in range(len(keys)))


def test_the_levels_of_kueue_come_before_all_families() -> None:
    labels = [
        {"cloud.provider.com/topology-block": f"b{i // 2}", "cloud.provider.com/topology-rack": f"r{i % 2}",
         "fabric.topograph.run/tier-0": f"s{i // 2}"} for i in range(4)
    ]  # fmt: skip
    found = read([KUEUE, *(node(f"n{i}", each) for i, each in enumerate(labels))])
    assert found.tiers == ("topology-block", "topology-rack")
    assert places(found) == {"n0": "b0/r0", "n1": "b0/r1", "n2": "b1/r0", "n3": "b1/r1"}
    assert found.inferred[0].startswith("Kueue topology default makes the tree")
    assert "topograph: its leaf is the topology-block of the tree" in found.inferred


def test_of_several_kueue_topologies_the_one_with_most_nodes_is_taken() -> None:
    other = copy.deepcopy(KUEUE) | {
        "metadata": {"name": "other"},
        "spec": {"levels": [{"nodeLabel": "x/none"}]},
    }
    found = read([other, KUEUE, node("n0", {"cloud.provider.com/topology-rack": "r"})])
    assert found.tiers == ("topology-rack",)
    assert "Kueue topology other: no node has its labels" in found.warnings


def test_the_labels_that_are_asked_for_are_taken_and_no_others() -> None:
    labels = {
        "a/row": "w",
        "a/rack": "r",
        "nvidia.com/gpu.clique": "c",
        "fabric.topograph.run/tier-0": "s",
    }
    found = read(
        [node("n0", labels), node("n1", labels)], ["a/row", "a/rack", "kubernetes.io/hostname"]
    )
    assert (found.tiers, places(found)["n1"]) == (("row", "rack"), "w/r")
    assert found.inferred == ("a/row is tier row, a/rack is tier rack",)
    assert read([node("n0", {"x/node": "a", "y/node": "b"})], ["x/node", "y/node"]).tiers == (
        "node-label",
        "node-label-label",
    )


def test_labels_that_are_asked_for_and_nowhere_there_are_refused() -> None:
    with pytest.raises(
        BadInput,
        match=r"no node has the label a/rock; labels there: a/rack, kubernetes.io/hostname",
    ):
        read([node("n0", {"a/rack": "r"})], ["a/rack", "a/rock"])


def test_regions_and_zones_lie_around_the_fabric_where_they_fit() -> None:
    found = labelled(
        *({"cloud.google.com/gce-topology-block": f"b{i // 2}", "topology.kubernetes.io/zone": f"z{i // 4}",
           "topology.kubernetes.io/region": "r"} for i in range(8))
    )  # fmt: skip
    assert found.tiers == ("region", "zone", "block")
    assert places(found)["n7"] == "r/z1/b3"


def test_a_second_family_that_fits_refines_the_tree_and_one_that_does_not_stands_beside_it() -> (
    None
):
    fits = labelled(
        *({"fabric.topograph.run/tier-0": f"s{i // 4}", "cloud.google.com/gce-topology-subblock": f"b{i // 2}"}
          for i in range(8))
    )  # fmt: skip
    assert fits.tiers == ("leaf", "subblock")
    crosses = labelled(
        *({"fabric.topograph.run/tier-0": f"s{i // 4}", "cloud.google.com/gce-topology-subblock": f"b{i % 4}"}
          for i in range(8))
    )  # fmt: skip
    assert crosses.tiers == ("leaf",)
    assert dict(crosses.nodes[5].partitions) == {"subblock": "b1"}
    assert (
        "gcp: its subblock does not fit into the tree; it is kept as a partition"
        in crosses.inferred
    )


def test_cliques_inside_leaves_are_tier_nvlink_and_across_them_a_partition() -> None:
    def cliques(across: bool) -> FabricReading:
        return labelled(
            *({"fabric.topograph.run/tier-0": f"s{i // 2}", "nvidia.com/gpu.clique": f"u.{i % 2 if across else i // 2}"}
              for i in range(4))
        )  # fmt: skip

    inside, across = cliques(False), cliques(True)
    assert (inside.tiers, places(inside)["n3"]) == (("leaf", "nvlink"), "s1/u.1")
    assert across.tiers == ("leaf",)
    assert dict(across.nodes[3].partitions) == {"nvlink": "u.1"}


def test_the_clique_of_no_cluster_is_none() -> None:
    zero = "00000000-0000-0000-0000-000000000000.0"
    assert labelled({"fabric.topograph.run/tier-0": "s", "nvidia.com/gpu.clique": zero}).tiers == (
        "leaf",
    )


def test_nodes_without_a_clique_have_an_nvlink_domain_of_their_own() -> None:
    found = labelled(
        {"a": "", "nvidia.com/gpu.clique": "u.1"}, {"nvidia.com/gpu.clique": "u.1"}, {}
    )
    assert places(found) == {"n0": "u.1", "n1": "u.1", "n2": "n2"}
    assert "1 node in none has one of its own: n2" in found.inferred[0]


def test_of_several_nvlink_labels_the_one_on_most_nodes_counts_and_others_that_differ_are_kept_beside() -> (
    None
):
    both = {"nvidia.com/gpu.clique": "u.1", "topology.k8s.aws/ultraserver-id": "us-1"}
    same = labelled(both, both)
    assert (same.tiers, same.nodes[0].partitions) == (("nvlink",), ())
    halves = labelled(both, both | {"nvidia.com/gpu.clique": "u.2"})
    assert places(halves) == {"n0": "u.1", "n1": "u.2"}
    assert dict(halves.nodes[1].partitions) == {"nvlink-ultraserver-id": "us-1"}
    more = labelled({"topology.k8s.aws/ultraserver-id": "us-1"}, both)
    assert places(more) == {"n0": "us-1", "n1": "us-1"}


def test_sub_domains_of_topograph_are_a_tier_below() -> None:
    key = "accelerator.topograph.run/"
    found = labelled(*({key + "domain": "d", key + "sub-domain": f"r{i // 2}"} for i in range(4)))
    assert (found.tiers, places(found)["n3"]) == (("nvlink", "nvlink-sub"), "d/r1")


def test_sub_domains_of_one_name_in_two_domains_are_two() -> None:
    key = "accelerator.topograph.run/"
    found = labelled(
        *(
            {"fabric.topograph.run/tier-0": "s", key + "domain": f"d{i}", key + "sub-domain": "r"}
            for i in range(2)
        )
    )
    assert len({each.at for each in found.nodes}) == 2
    assert found.tiers == ("leaf", "nvlink", "nvlink-sub")
    lone = labelled({key + "sub-domain": "r"}, {key + "domain": "d", key + "sub-domain": "r"})
    assert places(lone) == {"n0": "n0/r", "n1": "d/d.r"}


def test_a_capacity_block_is_a_partition() -> None:
    found = labelled(
        {"topology.k8s.aws/network-node-layer-3": "l", "topology.k8s.aws/capacity-block-id": "cr"}
    )
    assert (found.tiers, found.nodes[0].partitions) == (("leaf",), (("capacity-block", "cr"),))


def test_a_node_without_labels_is_alone_and_warned_of() -> None:
    found = labelled({"fabric.topograph.run/tier-0": "n1"}, {})
    assert places(found) == {"n0": "n1", "n1": "n1-alone"}
    assert (
        "1 node has no label fabric.topograph.run/tier-0 and gets a leaf of its own: n1"
        in found.warnings
    )


def test_without_any_label_nothing_is_made_up() -> None:
    found = labelled({}, {})
    assert (found.tiers, [each.at for each in found.nodes]) == ((), [(), ()])
    assert found.warnings == ()
    assert found.warnings_if_alone == (
        "no label that is known tells where nodes stand: all are alike far from each other",
    )


def test_labels_that_may_be_places_are_named_with_the_option_that_takes_them() -> None:
    found = labelled(
        *(
            {
                "example.com/rack": f"r{i // 2}",
                "example.com/room": f"m{i // 4}",
                "example.com/serial": f"s{i}",
                "example.com/owner": "ops",
                "nvidia.com/gpu.product": f"p{i // 4}",
            }
            for i in range(8)
        )
    )
    (said,) = found.warnings_if_alone
    assert said.endswith("--level example.com/room --level example.com/rack")
    assert "serial" not in said
    assert "owner" not in said
    assert "product" not in said


def test_nodes_and_a_topology_in_texts_of_their_own_are_one_cluster() -> None:
    key = "cloud.provider.com/topology-"
    items = [node(f"n{i}", {key + "block": "b0", key + "rack": f"r{i // 2}"}) for i in range(4)]
    nodes = json.dumps({"kind": "List", "items": items})
    found = read_texts([(nodes, "nodes.json"), (yaml.safe_dump(KUEUE), "topology.yaml")])
    assert found.tiers == ("topology-block", "topology-rack")
    assert found.inferred[0].startswith("Kueue topology default makes the tree")
    assert (found.warnings, found.warnings_if_alone) == ((), ())
    with pytest.raises(BadFields, match=r"again\.json.*node `n0` again"):
        read_texts([(nodes, "nodes.json"), (nodes, "again.json")])


def test_a_tpu_slice_is_a_partition_and_no_torus_is_guessed() -> None:
    labels = {
        "cloud.google.com/gke-tpu-accelerator": "tpu7x",
        "cloud.google.com/gke-tpu-topology": "2x2x2",
        "cloud.google.com/gke-nodepool": "pool",
    }
    found = read([node(f"n{i}", labels, google_com__tpu="4", cpu="224") for i in range(2)])
    first = found.nodes[0]
    assert (first.gpus, first.partitions, found.tori) == (4, (("tpu-slice", "pool"),), ())
    assert "no torus is made" in found.warnings[-1]
    single = read(
        [node("n", labels | {"cloud.google.com/gke-tpu-topology": "2x2x1"}, google_com__tpu="4")]
    )
    assert single.nodes[0].partitions == ()


@pytest.mark.parametrize(
    ("labels", "capacity", "gpus", "gpu"),
    [
        (H100, {"nvidia_com__gpu": "8"}, 8, "H100-80GB"),
        ({"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.memory": "15360"}, {"nvidia_com__gpu": "4"}, 4,
         "T4-16GB"),
        ({"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "nvidia.com/gpu.memory": "4864",
          "nvidia.com/gpu.count": "56"}, {"nvidia_com__gpu": "56"}, None, "A100-40GB"),
        ({"nvidia.com/gpu.product": "NVIDIA-A10G-SHARED", "nvidia.com/gpu.memory": "23028", "nvidia.com/gpu.count": "4",
          "nvidia.com/gpu.replicas": "2"}, {"nvidia_com__gpu": "8"}, 4, "A10G-24GB"),
        (H100 | {"nvidia.com/mig.strategy": "mixed"}, {"nvidia_com__gpu": "5"}, 8, "H100-80GB"),
        ({"nvidia.com/gpu.product": "GRID-A100-40C", "nvidia.com/gpu.memory": "40960",
          "nvidia.com/vgpu.present": "true"},
         {"nvidia_com__gpu": "1"}, 1, None),
        ({"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM", "amd.com/gpu.vram": "192G"}, {"amd_com__gpu": "8"}, 8,
         "MI300X-192GB"),
        ({"cloud.google.com/gke-accelerator": "nvidia-h100-mega-80gb"}, {"nvidia_com__gpu": "8"}, 8, "H100-80GB"),
        ({"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"}, {"nvidia_com__gpu": "1"}, 1, None),
        ({}, {"cpu": "64"}, 0, None),
    ],
)  # fmt: skip
def test_gpus_are_told_by_the_device_plugin_and_the_labels_of_discovery(
    labels: Labels, capacity: dict[str, str], gpus: int | None, gpu: str | None
) -> None:
    (found,) = read([node("n", labels, **capacity)]).nodes
    assert (found.gpus, found.gpu) == (gpus, gpu)


def test_what_is_odd_about_gpus_is_said_once_for_all_nodes_alike() -> None:
    odd = [
        node(f"n{i}", H100 | {"nvidia.com/gpu.count": "8"}, nvidia_com__gpu="7") for i in range(2)
    ]
    odd[0]["status"]["allocatable"] = {"nvidia.com/gpu": "6"}
    warnings = read(odd).warnings
    assert "1 node (n0): 6 of 7 nvidia.com/gpu are allocatable" in warnings
    assert "2 nodes (n0, n1): the device plugin counts 7 GPUs, GPU Feature Discovery 8" in warnings


def test_cpus_and_memory_are_what_pods_may_have() -> None:
    told = node("n", cpu="96", memory="1056761636Ki")
    told["status"]["allocatable"] = {"cpu": "95850m", "memory": "1000Gi"}
    (found,) = read([told]).nodes
    assert (found.cpus, found.memory_GiB, found.address) == (95.85, 1000.0, "10.0.0.1")


def test_a_node_that_is_not_ready_or_cordoned_takes_no_work() -> None:
    items = [node(f"n{i}") for i in range(3)]
    items[0]["status"]["conditions"][0]["status"] = "Unknown"
    items[1]["spec"]["unschedulable"] = True
    found = read(items)
    assert found.domains == tuple(DomainFacts("node", f"n{i}", health=0.0) for i in range(2))
    assert "1 node is not ready and takes no work: n0" in found.warnings
    assert "1 node is cordoned and takes no work: n1" in found.warnings


@pytest.mark.parametrize(
    ("text", "value"),
    [("96", 96.0), ("95850m", 95.85), ("1Ki", 1024.0), ("1.5Gi", 1.5 * 2**30), ("1e3", 1000.0), ("12E2", 1200.0),
     ("2E", 2e18), ("5k", 5000.0), (".5", 0.5), ("-1", -1.0), ("1e400", None), ("", None), ("Gi", None), ("1KB", None),
     ("1 Gi", None), ("0x10", None), ("१", None)],
)  # fmt: skip
def test_quantities_are_read_as_the_api_writes_them(text: str, value: float | None) -> None:
    assert quantity(text) == value


def test_the_same_nodes_are_read_from_json_yaml_and_single_documents() -> None:
    items = [node(f"n{i}", {"fabric.topograph.run/tier-0": f"s{i // 2}"} | H100) for i in range(4)]
    found = read([KUEUE, *items])
    as_list = {"apiVersion": "v1", "kind": "List", "items": [KUEUE, *items]}
    assert parse(yaml.safe_dump(as_list), "f") == found
    assert parse(yaml.safe_dump_all([KUEUE, {"kind": "Queue", "spec": {}}, *items]), "f") == found
    assert parse("\ufeff\n" + json.dumps(as_list, indent=1), "f") == found
    assert places(parse(json.dumps(items[0]), "f")) == {"n0": "s0"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"metadata": None}, "items[0].metadata: found nothing"),
        ({"metadata": {"labels": {}}}, "items[0].metadata.name: found nothing; allowed: text"),
        ({"metadata": {"name": "a b"}}, "found the name `a b`"),
        (
            {"metadata": {"name": "n", "labels": ["a"]}},
            "items[0].metadata.labels: found a list; allowed: a mapping",
        ),
        (
            {"metadata": {"name": "n", "labels": {"fabric.topograph.run/tier-0": "a/b"}}},
            "labels of n: found `a/b`",
        ),
        (
            {"status": {"capacity": {"cpu": "many"}}},
            "items[0].status.capacity.cpu: found `many`; allowed: a quantity",
        ),
        (
            {"status": {"capacity": {"nvidia.com/gpu": "1.5"}}},
            "nvidia.com/gpu: found 1.5; allowed: a whole number",
        ),
    ],
)
def test_what_is_wrong_is_refused_by_its_path(change: dict[str, Any], told: str) -> None:
    with pytest.raises(BadFields) as caught:
        read([node("n0") | change])
    assert told in str(caught.value)


def test_a_node_that_is_there_twice_is_refused() -> None:
    with pytest.raises(BadFields, match=r"items\[1\].metadata: found node `n` again"):
        read([node("n"), node("n")])


@pytest.mark.parametrize(
    "text", ["", "{}", "kind: Pod\n", json.dumps({"kind": "List", "items": []})]
)
def test_a_text_without_nodes_is_refused(text: str) -> None:
    with pytest.raises(GantreeError):
        parse(text, "f")


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 10**20), st.sampled_from(["", "a", "a/b", "9" * 300, "1e9999", "-1"]),
    st.lists(st.sampled_from(["x", 1, None]), max_size=2),
    st.dictionaries(st.sampled_from(["a", "type"]), st.text(max_size=3)),
)  # fmt: skip
KEYS = st.sampled_from(
    ["fabric.topograph.run/tier-0", "fabric.topograph.run/tier-1", "nvidia.com/gpu.clique",
     "topology.kubernetes.io/zone",
     "topology.k8s.aws/network-node-layer-1", "topology.k8s.aws/ultraserver-id", "accelerator.topograph.run/sub-domain",
     "accelerator.topograph.run/domain", "oci.oraclecloud.com/host.rack_id", "cloud.google.com/gke-tpu-topology",
     "cloud.google.com/gke-nodepool", "nvidia.com/gpu.count", "nvidia.com/gpu.replicas", "nvidia.com/gpu.memory",
     "nvidia.com/gpu.product", "amd.com/gpu.vram", "amd.com/gpu.product-name", "cloud.provider.com/topology-block"]
)  # fmt: skip
GOOD = st.dictionaries(KEYS, st.sampled_from(["a", "b", "", "n0", "8", "2x2x2"]), max_size=8)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(GOOD, min_size=1, max_size=6), st.booleans())
def test_nodes_share_a_domain_only_where_shared_labels_join_them(
    labels: list[dict[str, str]], kueue: bool
) -> None:
    labels = [
        {key: f"{len(key)}{key[-2:]}{value}" for key, value in each.items()} for each in labels
    ]
    found = read(
        [*([KUEUE] if kueue else []), *(node(f"n{i}", each) for i, each in enumerate(labels))]
    )
    assert [each.name for each in found.nodes] == [f"n{i}" for i in range(len(labels))]
    assert all(len(each.at) == len(found.tiers) for each in found.nodes)
    assert len(set(found.tiers)) == len(found.tiers)
    group = list(range(len(labels)))
    for one, other in combinations(range(len(labels)), 2):
        if labels[one].items() & labels[other].items():
            group = [group[one] if of == group[other] else of for of in group]
    for one, other in combinations(range(len(labels)), 2):
        if found.tiers and found.nodes[one].at[0] == found.nodes[other].at[0]:
            assert group[one] == group[other]


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_no_text_makes_it_raise_anything_but_its_own_errors(data: st.DataObject) -> None:
    items = [KUEUE, *(node(f"n{i}", data.draw(GOOD)) for i in range(3))]
    items = copy.deepcopy(items)
    for _ in range(data.draw(st.integers(0, 4))):
        place: Any = data.draw(st.sampled_from(items))
        while isinstance(place, dict) and place and data.draw(st.booleans()):
            inner = place[data.draw(st.sampled_from(sorted(place)))]
            if not isinstance(inner, dict):
                break
            place = inner
        place[data.draw(st.one_of(KEYS, st.sampled_from(sorted(place) or ["x"])))] = data.draw(
            VALUES
        )
    text = json.dumps({"items": items})
    cut = data.draw(st.one_of(st.just(len(text)), st.integers(0, len(text))))
    levels = data.draw(st.sampled_from([None, ["a"], ["topology.kubernetes.io/zone"]]))
    assert_sound(text[:cut], levels)


@settings(max_examples=examples(100), deadline=None)
@given(st.text())
def test_no_random_text_does_either(text: str) -> None:
    assert_sound(text, None)


def assert_sound(text: str, levels: Sequence[str] | None) -> None:
    try:
        found = parse(text, "fuzz", levels)
    except GantreeError as error:
        assert "fuzz" in str(error) or "each field once" in str(error)
        return
    assert all(len(each.at) == len(found.tiers) for each in found.nodes)
    json.dumps(found.as_json())


@pytest.mark.parametrize(
    "name", ["kueue-tas-sample-queues.yaml", "kueue-tas-sample-gpu-queues.yaml"]
)
def test_the_topology_of_kueues_samples_makes_the_tree(name: str) -> None:
    path = SHARED / name
    if not path.exists():
        pytest.skip("needs ../shared/data/topology, whose files are others'")
    labels = {"cloud.provider.com/topology-block": "b", "cloud.provider.com/topology-rack": "r"}
    text = f"{path.read_text()}\n---\n{yaml.safe_dump(node('n0', labels))}"
    assert (parse(text, name).tiers, places(parse(text, name))) == (
        ("topology-block", "topology-rack"),
        {"n0": "b/r"},
    )
