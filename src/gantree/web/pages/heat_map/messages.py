"""Messages to the browser about the heat map: a whole scene, or the differences from an earlier one.

Permissions are applied here: of a job that the caller may not read, only the occupied GPUs are sent.
"""

import json
from collections.abc import Iterator
from typing import Any

from gantree.api.gpu_metrics.gpu_counters import UseOfNode
from gantree.telemetry.gpu_use import GpuUse
from gantree.web.pages.heat_map.scene import (
    FREE,
    KINDS,
    NODE_STATES,
    TAKEN,
    WHOLE,
    Cell,
    DomainRow,
    HeatScene,
    Holder,
    NodeRow,
)
from gantree.web.pages.visibility import MayRead

Json = dict[str, Any]
UseRows = dict[int, list[list[float | None] | None]]
_OWN_STATES = {state: number for number, state in enumerate(NODE_STATES)}


def whole_json(scene: HeatScene, may_read: MayRead) -> Json:
    """Return a whole scene. cells are runs over the GPUs of all nodes, in order: holder, number of GPUs."""
    shown = _Shown(scene, may_read)
    runs: list[int] = []
    parts: list[list[Any]] = []
    gpu = 0
    for row in scene.nodes:
        for cell in map(shown.cell, row.cells):
            if isinstance(cell, tuple):
                parts.append([gpu, *(list(part) for part in cell)])
            number = FREE if isinstance(cell, tuple) else cell
            if runs and runs[-2] == number:
                runs[-1] += 1
            else:
                runs += [number, 1]
            gpu += 1
    return {
        "at": scene.at,
        "map_id": scene.map_id,
        "kinds": KINDS,
        "node_states": NODE_STATES,
        "whole": WHOLE,
        "cells": runs,
        "parts": parts,
        "states": {
            index: _OWN_STATES[row.state]
            for index, row in enumerate(scene.nodes)
            if row.state != "ready"
        },
        "holders": [_holder_row(each) for each in shown.holders()],
        "domains": [domain_json(row) for row in scene.domains],
    }


def delta_json(old: HeatScene, new: HeatScene, may_read: MayRead) -> Json | None:
    """Return the differences from an earlier scene of the same map; None if there are none."""
    shown, before = _Shown(new, may_read), _Shown(old, may_read)
    nodes = {
        index: [_OWN_STATES[row.state], list(map(shown.cell, row.cells))]
        for index, row in enumerate(new.nodes)
        if row != old.nodes[index] and not _looks_the_same(shown, row, before, old.nodes[index])
    }
    holders = [
        _holder_row(each) for each in shown.holders() if old.holders.get(each.number) != each
    ]
    gone = [each.number for each in before.holders() if each.number not in new.holders]
    domains = {
        index: domain_json(row)
        for index, row in enumerate(new.domains)
        if row != old.domains[index]
    }
    if not (nodes or holders or gone or domains):
        return None
    return {"at": new.at, "nodes": nodes, "holders": holders, "gone": gone, "domains": domains}


def _looks_the_same(shown: "_Shown", row: NodeRow, before: "_Shown", old: NodeRow) -> bool:
    """Return whether two rows of a node are equal once hidden holders are masked."""
    return row.state == old.state and list(map(shown.cell, row.cells)) == list(
        map(before.cell, old.cells)
    )


def use_rows(scene: HeatScene, use_of_node: UseOfNode, may_read: MayRead) -> UseRows:
    """Return, by node index, each GPU's (utilisation in %, GiB used, GiB of memory, watts, degrees Celsius).

    null: not reported. GPUs of hidden holders are null; nodes without a report are left out.
    """
    shown = _Shown(scene, may_read)
    rows: UseRows = {}
    for index, (name, row) in enumerate(zip(scene.names, scene.nodes, strict=True)):
        use_of_gpu = use_of_node.get(name, {})
        figures = [
            _figures(use_of_gpu[gpu]) if gpu in use_of_gpu and not shown.hides(cell) else None
            for gpu, cell in enumerate(row.cells)
        ]
        if any(figures):
            rows[index] = figures
    return rows


def _figures(use: GpuUse) -> list[float | None]:
    return [
        None if use.busy is None else round(100 * use.busy),
        None if use.memory_GiB is None else round(use.memory_GiB, 1),
        None if use.memory_of_GiB is None else round(use.memory_of_GiB, 1),
        None if use.power_W is None else round(use.power_W),
        None if use.temperature_C is None else round(use.temperature_C),
    ]


def changed_use(old: UseRows, new: UseRows) -> Json | None:
    """Return the differences of two readings, null for a node that no longer reports; None if there are none."""
    changed: Json = {str(index): row for index, row in new.items() if old.get(index) != row}
    changed |= {str(index): None for index in old if index not in new}
    return changed or None


def domain_json(row: DomainRow) -> list[Any]:
    """Return GPUs, usable and free GPUs of a domain, then the most free GPUs in one domain of each narrower tier."""
    return [row.gpus, row.usable, row.free, *row.largest]


def compact(content: Json) -> str:
    """JSON without spaces."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


class _Shown:
    """A scene with the holders masked that a caller may not read."""

    def __init__(self, scene: HeatScene, may_read: MayRead) -> None:
        self._holders = scene.holders
        known: dict[tuple[str, str], bool] = {}
        self._hidden = set()
        for each in scene.holders.values():
            whose = each.user, each.queue
            if whose not in known:
                known[whose] = may_read(*whose)
            if not known[whose]:
                self._hidden.add(each.number)

    def holders(self) -> Iterator[Holder]:
        """Yield the holders that the caller may read."""
        return (each for each in self._holders.values() if each.number not in self._hidden)

    def number(self, number: int) -> int:
        """Return a holder's number; TAKEN if the caller may not read it."""
        return TAKEN if number in self._hidden else number

    def hides(self, cell: Cell) -> bool:
        """Return whether a hidden holder has a GPU or a part of it."""
        holders = (cell,) if isinstance(cell, int) else (number for number, _, _ in cell)
        return any(number in self._hidden for number in holders)

    def cell(self, cell: Cell) -> Cell:
        """Return the cell of a GPU with hidden holders masked."""
        if not self._hidden:
            return cell
        if isinstance(cell, int):
            return self.number(cell)
        return tuple((self.number(number), start, size) for number, start, size in cell)


def _holder_row(holder: Holder) -> list[Any]:
    return [
        holder.number,
        KINDS.index(holder.kind),
        holder.job,
        holder.queue,
        holder.user,
        holder.phase,
        holder.gpus,
        holder.since,
    ]
