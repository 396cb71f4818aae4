"""Progress by the step time of the actual placement.

`duration_s` of a job is its work at its ideal placement: the one that the search finds on the empty cluster, whatever
the job asks of the topology. Elsewhere it works at the speed

    ideal step / actual step                                    of a job that tells its model: a step is one batch
    ideal step / actual step x members / members of the ideal   of one that tells its traffic alone: a step is what
                                                                each rank does

where a step is what the cost model predicts (`topology.cost.step`). A job that tells neither works at the speed
members / expected members, and so does an elastic gang of a size that its parallelism does not divide.
"""

from collections.abc import Hashable
from dataclasses import replace

from gantree.core.lifecycle.numbering import numbered
from gantree.model.cluster import Cluster
from gantree.model.errors import BadInput, Unsupported
from gantree.model.jobs import Job, TopologySpec
from gantree.placement.choice.search import find
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy


class StepSpeed:
    """Speeds on one cluster; the ideal step of jobs that are alike is worked out once."""

    def __init__(self, cluster: Cluster) -> None:
        self._fabric = Fabric.build(replace(cluster, allocations=()))
        self._occupancy = Occupancy(self._fabric)
        self._ideal_step_s: dict[Hashable, float | None] = {}

    def speed(self, spec: Job, members: int, step_s: float | None) -> float:
        """The speed of a gang of so many members whose step takes step_s where it is placed; 1 at its ideal.

        Relative to the work of the job as it was submitted. step_s is None where the cost model has no answer.
        """
        in_proportion = members / spec.members
        ideal_s = self.ideal_step_s(spec) if step_s else None
        if not step_s or not ideal_s:
            return in_proportion
        return ideal_s / step_s * (1.0 if spec.trains is not None else in_proportion)

    def ideal_step_s(self, spec: Job) -> float | None:
        """Seconds of a step at the job's ideal placement; None where it tells no traffic, or never fits."""
        if spec.trains is None and spec.traffic is None:
            return None
        key = (
            spec.roles, spec.parallelism, spec.ranks_as_written, spec.trains, spec.traffic,
            spec.overlap, spec.topology.box, spec.speeds, spec.choose,
        )  # fmt: skip
        if key not in self._ideal_step_s:
            self._ideal_step_s[key] = self._placed_alone(spec)
        return self._ideal_step_s[key]

    def _placed_alone(self, spec: Job) -> float | None:
        roles = tuple(replace(role, topology=TopologySpec()) for role in spec.roles)
        free = replace(spec, roles=roles, topology=TopologySpec(box=spec.topology.box))
        try:
            placement = find(self._occupancy, free)
            if placement is None:
                return None
            return numbered(self._fabric, free, placement).predicted.step_s
        except (BadInput, Unsupported):
            return None
