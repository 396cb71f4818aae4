"""`gantree topo graph`: what is written is read back by networkx, pydot and Graphviz as the same graph."""

import json
import shutil
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import pydot
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.cli.topo import graph as topo_graph
from gantree.cli.topo.graph_formats import dot, graphml, node_link_json
from gantree.model.errors import BadInput

Gantree = Callable[..., Any]
Complaints = Callable[[Any, str], list[str]]

NAMES = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff"), min_size=1
) | st.sampled_from(["a\nb\t", 'say "hi"', "back\\slash\\", "<b>&amp;", "node", "1.5", "-", "true"])
VALUES = NAMES | st.integers(-(10**9), 10**9) | st.booleans() | st.floats(allow_nan=False)


@st.composite
def graphs(draw: st.DrawFn) -> Any:
    """Graphs with what a vertex and an edge must have, and any other attributes."""
    names = draw(st.lists(NAMES, min_size=1, max_size=6, unique=True))
    graph: Any = nx.Graph(name=draw(NAMES), tiers="fabric,node")
    more = st.dictionaries(st.sampled_from(["x", "y z", 'q"']), VALUES, max_size=3)
    for name in names:
        graph.add_node(name, **{"kind": "gpu", "name": draw(NAMES)} | draw(more))
    for a, b in draw(
        st.lists(st.tuples(st.sampled_from(names), st.sampled_from(names)), max_size=6)
    ):
        graph.add_edge(a, b, **{"kind": "network"} | draw(more))
    return graph


def same(a: Any, b: Any) -> bool:
    return bool(dict(a.nodes(data=True)) == dict(b.nodes(data=True)) and a.adj == b.adj)


@given(graphs())
def test_networkx_reads_the_same_graph_back(graph: Any) -> None:
    read = nx.parse_graphml(graphml(graph))
    assert same(read, graph)
    assert (read.graph["name"], read.graph["tiers"]) == (graph.graph["name"], "fabric,node")
    assert same(nx.node_link_graph(json.loads(node_link_json(graph)), edges="edges"), graph)


@pytest.mark.parametrize("sign", ["\x00", "\x1b", "\r", "\ud800", "\uffff"])
def test_what_a_language_cannot_hold_is_refused_by_name(sign: str) -> None:
    graph: Any = nx.Graph(name="c", tiers="node")
    graph.add_node("v", kind="gpu", name=f"a{sign}")
    for write in (graphml, dot):
        with pytest.raises(BadInput, match=f"{ord(sign):04X}.*--format json"):
            write(graph)
    assert json.loads(node_link_json(graph))["nodes"][0]["name"] == f"a{sign}"


def test_programs_get_the_graph_as_documented(
    gantree: Gantree, complaints: Complaints, cluster_file: Path
) -> None:
    answer = gantree("topo", "graph", cluster_file, "--format", "json").json()
    assert complaints(answer, "topo-graph") == []
    by_id = {vertex["id"]: vertex for vertex in answer["nodes"]}
    assert by_id["gpu:n0/1"]["holder"] == "site:old"
    assert by_id["nic:n1/mlx5_1"]["rail"] == 1
    joined = [{edge["source"], edge["target"]} for edge in answer["edges"]]
    assert {"nic:n3/mlx5_0", "switch:leaf/s0/l1"} in joined


def test_the_end_of_a_file_name_chooses_the_language(gantree: Gantree, cluster_file: Path) -> None:
    for suffix, start in ((".json", '{\n"directed"'), (".gv", "graph "), (".graphml", "<?xml")):
        target = cluster_file.with_name(f"fabric{suffix}")
        outcome = gantree("topo", "graph", cluster_file, "-o", target)
        assert (outcome.code, str(target) in outcome.out) == (0, True)
        assert target.read_text().startswith(start)
    assert gantree("topo", "graph", cluster_file).out.startswith("<?xml")


SMALL = """
name: small
tiers: [leaf, node]
machines: {m2: {gpus: 2, gpu: H100-80GB, nics: 1}}
nodes: [{names: n0, machine: m2, at: {leaf: l0}}, {names: n1, machine: m2, at: {leaf: l1}}]
"""
"""pydot reads a vertex in 10 ms."""


def test_pydot_reads_the_vertices_and_links(gantree: Gantree, tmp_path: Path) -> None:
    (cluster_file := tmp_path / "small.yaml").write_text(SMALL)
    written = gantree("topo", "graph", cluster_file, "--format", "dot").out
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pydot calls names of pyparsing that are going away
        [read] = pydot.graph_from_dot_data(written) or []
    answer = gantree("topo", "graph", cluster_file, "--format", "json").json()
    drawn = {vertex.get_name().strip('"') for vertex in read.get_nodes()} - {
        "graph",
        "node",
        "edge",
    }
    assert drawn == {vertex["id"] for vertex in answer["nodes"]}
    assert len(read.get_edges()) == len(answer["edges"])


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_draws_it(gantree: Gantree, cluster_file: Path) -> None:
    written = gantree("topo", "graph", cluster_file, "--format", "dot").out
    drawn = subprocess.run(
        ["dot", "-Kdot", "-Tsvg"],
        input=written,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert drawn.stderr == ""
    assert ">n0/gpu3</text>" in drawn.stdout
    assert "switch:spine/s0&#45;&#45;switch:leaf/s0/l1" in drawn.stdout


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_takes_hostile_names_for_names() -> None:
    graph: Any = nx.Graph(name='x" ] ; evil', tiers="node")
    graph.add_node('a"] b [label="evil', kind="gpu", name="ends with \\")
    graph.add_node("c", kind="nic", name='<b>"&')
    graph.add_edge('a"] b [label="evil', "c", kind="pcie", link='"')
    drawn = subprocess.run(
        ["dot", "-Kdot", "-Tjson0"],
        input=dot(graph),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert [each["label"] for each in json.loads(drawn.stdout)["objects"]] == [
        "ends with \\\\",
        '<b>"&',
    ]


def test_a_file_that_cannot_be_written_is_said(gantree: Gantree, cluster_file: Path) -> None:
    outcome = gantree("topo", "graph", cluster_file, "-o", "/no/such/dir/graph.dot")
    assert outcome.code == 2
    assert "/no/such/dir/graph.dot: cannot be written" in outcome.err


def test_people_are_told_how_large_a_graph_becomes_before_it_is_made(
    gantree: Gantree, cluster_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = gantree("topo", "graph", cluster_file, "-o", tmp_path / "g.json")
    assert small.err == ""
    made = len(json.loads((tmp_path / "g.json").read_text())["nodes"])
    assert small.out.startswith(f"Wrote {tmp_path / 'g.json'}: {made} devices and switches")
    monkeypatch.setattr(topo_graph, "MANY", made - 1)
    large = gantree("topo", "graph", cluster_file, "-o", tmp_path / "g.json")
    assert large.code == 0
    assert large.err.startswith(f"gantree: {made} devices and switches: the output takes about ")
