"""Places a job from files as the daemon would: the first of its variants that fits.

Queues are not asked: files say nothing of who else waits.
"""

from dataclasses import replace

from gantree.cli.input.policies import policy_of
from gantree.core.explain.shapes import other_shapes
from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.model.verdicts import Refused
from gantree.placement.request.placement_preferences import PlacementPreferences
from gantree.placement.resize.elastic import placed_elastically, resized, sizes_of
from gantree.placement.resize.what_if import WhatIf
from gantree.planning.policy_preferences import placement_preferences_of
from gantree.planning.rightsizing.ranking import chooses, options, refused
from gantree.policy.rules import Policy
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy


class Placer:
    """Places jobs under one policy; changes no occupancy."""

    def __init__(self, policy: Policy) -> None:
        self.preferences: PlacementPreferences = placement_preferences_of(policy)
        self._restart_s = policy.restart_s

    def place(self, occupancy: Occupancy, job: Job) -> tuple[Job, Placement | Refused]:
        """Return the job in the way and of the size that it got, and its place; else as it is written, and why not.

        A refusal is that of the best way that may ever fit, or says why no way is open. Raises as `search.place`.
        """
        if not chooses(job):
            return placed_elastically(occupancy, job, self.preferences)
        ways = options(job, occupancy.fabric, restart_s=self._restart_s)
        closed = refused(job, ways)
        if closed is not None:
            return job, closed
        best: Refused | None = None
        for way in (each.job for each in ways if each.open):
            placed, verdict = placed_elastically(occupancy, way, self.preferences)
            if isinstance(verdict, Placement):
                return placed, verdict
            if best is None or (best.never and not verdict.never):
                others = other_shapes(job, way)
                best = replace(verdict, sentence=f"{verdict.sentence}{others}")
        assert best is not None, f"no way of {job.name} is open, and none is refused"
        return job, best


def placed_alone(fabric: Fabric, job: Job) -> tuple[Job, Placement | Refused]:
    """As `Placer.place`, on the empty cluster under the default policy."""
    return Placer(policy_of(None)).place(Occupancy(fabric), job)


def of_size(job: Job, members: int) -> Job:
    """The job with so many members, where it is elastic and may have them; else as it is written."""
    return resized(job, members) if job.elastic and members in sizes_of(job) else job


class Trials(WhatIf):
    """Trials in which jobs are placed in the first of their ways in which there is room."""

    def __init__(self, occupancy: Occupancy, placer: Placer) -> None:
        super().__init__(occupancy, placer.preferences)
        self._placer = placer

    def place(self, job: Job) -> Placement | Refused:
        """Place a job; it holds its place from then on."""
        placed, verdict = self._placer.place(self.occupancy, job)
        if isinstance(verdict, Placement):
            self.take(placed, verdict)
        return verdict
