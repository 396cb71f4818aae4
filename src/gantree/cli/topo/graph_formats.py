"""The graph of a cluster as text for other tools: GraphML, DOT, JSON. What is in the graph is `topology.graph.graph`.

The writers of networkx and pydot are not used here: they build a tree of objects first. For 2,000 nodes of 8 GPUs
(54,068 vertices, 82,067 edges) networkx took 9.6 s for GraphML and pydot 4.9 s for DOT, these take about 1 s each.
networkx reads the GraphML back as the same graph, Graphviz and pydot read the DOT; tests see to it.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import networkx as nx

from gantree.model.errors import BadInput

GRAPHML = "http://graphml.graphdrawing.org/xmlns"
TYPE_OF_VALUE = {bool: "boolean", int: "long", float: "double", str: "string"}
_NOT_WRITABLE = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]")
"""What XML has no way to write, and a carriage return, which XML reads as another sign."""
_SHAPE = {"gpu": "box", "nic": "cds", "cpu": "component", "pcie": "diamond", "nvswitch": "hexagon"}
_COLOUR = {"nvlink": "#117733", "xgmi": "#117733", "network": "#0072b2", "torus": "#aa4499"}


def graphml(graph: "nx.Graph[str]") -> str:
    """Return the graph as GraphML. Raises BadInput where a name holds signs that XML cannot write."""
    keys = {
        "graph": _keys([graph.graph], "g"),
        "node": _keys((attributes for _, attributes in graph.nodes(data=True)), "n"),
        "edge": _keys((attributes for _, _, attributes in graph.edges(data=True)), "e"),
    }
    return _checked("\n".join(_graphml_lines(graph, keys)) + "\n", "GraphML")


def _keys(elements: Iterable[dict[str, Any]], prefix: str) -> dict[tuple[str, type], str]:
    """Number the attributes by name and type, in the order in which they appear."""
    found: dict[tuple[str, type], str] = {}
    for attributes in elements:
        for name, value in attributes.items():
            found.setdefault((name, type(value)), f"{prefix}{len(found)}")
    return found


def _graphml_lines(
    graph: "nx.Graph[str]", keys: dict[str, dict[tuple[str, type], str]]
) -> Iterator[str]:
    yield '<?xml version="1.0" encoding="utf-8"?>'
    yield f'<graphml xmlns="{GRAPHML}">'
    for domain, named in keys.items():
        for (name, kind), key in named.items():
            shown = f'attr.name={quoteattr(name)} attr.type="{TYPE_OF_VALUE[kind]}"'
            yield f'<key id="{key}" for="{domain}" {shown}/>'
    yield '<graph edgedefault="undirected">'
    yield _graphml_data(graph.graph, keys["graph"])
    for vertex, attributes in graph.nodes(data=True):
        yield f"<node id={_attribute(vertex)}>{_graphml_data(attributes, keys['node'])}</node>"
    for a, b, attributes in graph.edges(data=True):
        ends = f"source={_attribute(a)} target={_attribute(b)}"
        yield f"<edge {ends}>{_graphml_data(attributes, keys['edge'])}</edge>"
    yield "</graph>\n</graphml>"


def _attribute(text: str) -> str:
    return quoteattr(text, {"\n": "&#10;", "\t": "&#9;"})


def _graphml_data(attributes: dict[str, Any], keys: dict[tuple[str, type], str]) -> str:
    return "".join(
        f'<data key="{keys[name, type(value)]}">{escape(_word(value))}</data>'
        for name, value in attributes.items()
    )


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def dot(graph: "nx.Graph[str]") -> str:
    """Return the graph in Graphviz' language: all attributes as they are, and some that draw it.

    A backslash in a name is doubled, as in a label. Raises BadInput where a name holds signs that no text should.
    """
    return _checked("\n".join(_dot_lines(graph)) + "\n", "DOT")


def _dot_lines(graph: "nx.Graph[str]") -> Iterator[str]:
    yield f"graph {_quoted(graph.graph['name'])} {{"
    yield 'graph [layout="sfdp", overlap="prism"]'
    for vertex, attributes in graph.nodes(data=True):
        drawn = {"label": attributes["name"], "shape": _SHAPE.get(attributes["kind"], "ellipse")}
        yield f"{_quoted(vertex)} [{_dot_attributes(drawn | attributes)}]"
    for a, b, attributes in graph.edges(data=True):
        drawn = {"color": _COLOUR.get(attributes["kind"], "#51606f")}
        yield f"{_quoted(a)} -- {_quoted(b)} [{_dot_attributes(drawn | attributes)}]"
    yield "}"


def _dot_attributes(attributes: dict[str, Any]) -> str:
    return ", ".join(
        f"{_quoted(name)}={_quoted(_word(value))}" for name, value in attributes.items()
    )


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def node_link_json(graph: "nx.Graph[str]") -> str:
    """Return the graph as the JSON that `networkx.node_link_graph(..., edges="edges")` reads."""
    document: dict[str, Any] = nx.node_link_data(graph, edges="edges")
    fields = ",\n".join(f"{json.dumps(name)}: {_json(value)}" for name, value in document.items())
    return f"{{\n{fields}\n}}\n"


def _json(value: Any) -> str:
    if not isinstance(value, list) or not value:
        return json.dumps(value)
    items = ",\n".join(json.dumps(item) for item in value)
    return f"[\n{items}\n]"


def _checked(text: str, language: str) -> str:
    found = _NOT_WRITABLE.search(text)
    if found:
        raise BadInput(
            f"a name holds the character U+{ord(found.group()):04X}, which {language} cannot hold; --format json can"
        )
    return text
