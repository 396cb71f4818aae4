"""Dual recursive bipartition: machines and job are bisected together, down to single domains (Amaral et al., SC'17).

    machines   free nodes are halved such that as little bandwidth as possible is cut. Nodes of a domain are joined by
               the widest links, so domains are never cut; they are dealt out, largest first, to the emptier half.
    job        its graph has a vertex for each node and edges as heavy as what is sent: between neighbouring nodes of a
               unit, and between the same nodes of neighbouring units, which form a ring. It goes whole into the
               tighter half that holds it, for then nothing is cut; else Fiduccia and Mattheyses (DAC'82) cut it as
               lightly as possible into parts that the halves hold.

Each half is then treated in the same way. Fiduccia-Mattheyses improves a cut by passes: the vertex whose move gains
most is moved and locked, even where that loses, until none can move; then the best moment of the pass is restored. It
starts from the better of two cuts, between units and across them.
"""

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from gantree.sim.rivals.units import Units, check_room

Graph = list[list[tuple[int, float]]]
"""graph[vertex]: (neighbour, weight)."""

SMALLEST_GAIN = 1e-9
"""A pass that gains less has only met the last digits of sums."""


def bisection(
    free_nodes: Sequence[int], units: int, nodes_each: int, within: float, across: float
) -> Units:
    """Place units; within and across are what is sent inside a unit and between units. ValueError without room."""
    check_room(free_nodes, units, nodes_each)
    graph = job_graph(units, nodes_each, within, across)
    domain_of_vertex = [-1] * len(graph)
    domains = [domain for domain, nodes in enumerate(free_nodes) if nodes]
    _place(range(len(graph)), domains, free_nodes, graph, nodes_each, domain_of_vertex)
    return [
        domain_of_vertex[first : first + nodes_each]
        for first in range(0, len(domain_of_vertex), nodes_each)
    ]


def job_graph(units: int, nodes_each: int, within: float, across: float) -> Graph:
    """The job's graph: vertex unit x nodes_each + node."""
    graph: Graph = [[] for _ in range(units * nodes_each)]

    def join(a: int, b: int, weight: float) -> None:
        if weight:
            graph[a].append((b, weight))
            graph[b].append((a, weight))

    for unit in range(units):
        for node in range(nodes_each):
            vertex = unit * nodes_each + node
            if node + 1 < nodes_each:
                join(vertex, vertex + 1, within)
            if units > 2 or unit + 1 < units:
                join(vertex, (unit + 1) % units * nodes_each + node, across)
    return graph


def _place(
    vertices: Sequence[int],
    domains: Sequence[int],
    free_nodes: Sequence[int],
    graph: Graph,
    nodes_each: int,
    domain_of_vertex: list[int],
) -> None:
    if not vertices:
        return
    if len(domains) == 1:
        for vertex in vertices:
            domain_of_vertex[vertex] = domains[0]
        return
    halves = halved(domains, free_nodes)
    parts = _parted(
        vertices, [sum(free_nodes[d] for d in half) for half in halves], graph, nodes_each
    )
    for part, half in zip(parts, halves, strict=True):
        _place(part, half, free_nodes, graph, nodes_each, domain_of_vertex)


def halved(domains: Sequence[int], free_nodes: Sequence[int]) -> tuple[list[int], list[int]]:
    """Deal domains out to two halves of about as many free nodes."""
    halves: tuple[list[int], list[int]] = ([], [])
    nodes = [0, 0]
    for domain in sorted(domains, key=lambda d: (-free_nodes[d], d)):
        emptier = 0 if nodes[0] <= nodes[1] else 1
        halves[emptier].append(domain)
        nodes[emptier] += free_nodes[domain]
    return halves


def _parted(
    vertices: Sequence[int], room: Sequence[int], graph: Graph, nodes_each: int
) -> tuple[list[int], list[int]]:
    """Vertices for each of two halves with so much room."""
    holding = [half for half in (0, 1) if room[half] >= len(vertices)]
    if holding:
        tightest = min(holding, key=lambda half: (room[half], half))
        return (list(vertices), []) if tightest == 0 else ([], list(vertices))
    fewest, most = len(vertices) - room[1], room[0]
    middle = min(max(len(vertices) // 2, fewest), most)
    between_units = sorted(vertices)
    across_units = sorted(vertices, key=lambda vertex: (vertex % nodes_each, vertex))
    cuts = [
        fiduccia_mattheyses(graph, order, middle, fewest, most)
        for order in (between_units, across_units)
    ]
    first = min(cuts, key=lambda part: cut_weight(graph, vertices, part))
    return sorted(first), sorted({*vertices} - first)


def cut_weight(graph: Graph, vertices: Iterable[int], first: set[int]) -> float:
    """Weight of the edges between a part and the other vertices."""
    inside = {*vertices}
    return sum(
        weight
        for vertex in first
        for other, weight in graph[vertex]
        if other in inside and other not in first
    )


def fiduccia_mattheyses(
    graph: Graph, order: Sequence[int], middle: int, fewest: int, most: int
) -> set[int]:
    """A part of the vertices, between fewest and most of them, whose cut is light. The first `middle` are a start."""
    first = {*order[:middle]}
    while True:
        moves = _Pass(graph, order, first).best_moves(fewest, most)
        if not moves:
            return first
        first ^= {*moves}


class _Pass:
    """One pass: every vertex moves once, best gain first. Queues have outdated entries, which are dropped when met."""

    def __init__(self, graph: Graph, vertices: Sequence[int], first: set[int]) -> None:
        self.graph = graph
        self.size = len(first)
        self.is_first = {vertex: vertex in first for vertex in vertices}
        self.gain = {vertex: self._gain(vertex) for vertex in vertices}
        self.locked: set[int] = set()
        self.queues: dict[bool, list[tuple[float, int]]] = {True: [], False: []}
        for vertex in vertices:
            self._enter(vertex)

    def best_moves(self, fewest: int, most: int) -> list[int]:
        """The moves up to the best moment; [] where that is the beginning."""
        moves: list[int] = []
        gained, best_gain, best = 0.0, SMALLEST_GAIN, 0
        while True:
            vertex = self._next(fewest, most)
            if vertex is None:
                return moves[:best]
            gained += self.gain[vertex]
            moves.append(vertex)
            self._move(vertex)
            if gained > best_gain:
                best_gain, best = gained, len(moves)

    def _gain(self, vertex: int) -> float:
        """How much lighter the cut is once a vertex has moved."""
        sides = self.is_first
        return sum(
            weight if sides[other] != sides[vertex] else -weight
            for other, weight in self.graph[vertex]
            if other in sides
        )

    def _enter(self, vertex: int) -> None:
        heappush(self.queues[self.is_first[vertex]], (-self.gain[vertex], vertex))

    def _next(self, fewest: int, most: int) -> int | None:
        """The vertex whose move gains most and that the parts' sizes let move."""
        heads = []
        if self.size > fewest:
            heads += self._head(self.queues[True])
        if self.size < most:
            heads += self._head(self.queues[False])
        return min(heads)[1] if heads else None

    def _head(self, queue: list[tuple[float, int]]) -> list[tuple[float, int]]:
        while queue and (queue[0][1] in self.locked or -queue[0][0] != self.gain[queue[0][1]]):
            heappop(queue)
        return queue[:1]

    def _move(self, vertex: int) -> None:
        self.locked.add(vertex)
        self.size += -1 if self.is_first[vertex] else 1
        self.is_first[vertex] = not self.is_first[vertex]
        for other, weight in self.graph[vertex]:
            if other in self.is_first and other not in self.locked:
                is_cut = self.is_first[other] != self.is_first[vertex]
                self.gain[other] += 2 * weight if is_cut else -2 * weight
                self._enter(other)
