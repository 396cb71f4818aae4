"""Sizes that an elastic gang may be grown and shrunk to in place."""

from dataclasses import replace

import pytest

from gantree.model.errors import BadInput, Unsupported
from gantree.model.jobs import (
    Elastic,
    Role,
    Shape,
    Slices,
    TopologySpec,
)
from gantree.placement.resize.elastic import (
    grown,
    shrunk,
)
from support.resizing import (
    PICTURE,
    placed_as_drawn,
)


def test_growing_and_shrinking_to_the_size_it_has_changes_nothing() -> None:
    placed = placed_as_drawn(PICTURE, 4)
    for change in (grown, shrunk):
        assert change(placed.occupancy, placed.job, placed.placement, 4) is placed.placement


def test_sizes_that_cannot_be_are_bad_input() -> None:
    placed = placed_as_drawn(PICTURE, 4, slices=(Slices(2, "node"),))
    occupancy, job, placement = placed.occupancy, placed.job, placed.placement
    with pytest.raises(BadInput, match="it has 4: `shrunk`"):
        grown(occupancy, job, placement, 2)
    with pytest.raises(BadInput, match="it has 4: `grown`"):
        shrunk(occupancy, job, placement, 6)
    with pytest.raises(BadInput, match="do not divide into slices of 2"):
        shrunk(occupancy, job, placement, 3)
    with pytest.raises(BadInput, match="allowed: 2 to 4, as elastic says"):
        grown(occupancy, replace(job, elastic=Elastic(2, 4)), placement, 6)
    with pytest.raises(BadInput, match="1 member or more"):
        shrunk(occupancy, job, placement, 0)


def test_boxes_and_gangs_of_several_roles_are_not_resized_in_place() -> None:
    placed = placed_as_drawn(PICTURE, 4)
    box = replace(placed.job, topology=TopologySpec(box=()))
    with pytest.raises(Unsupported, match="slice of a torus"):
        grown(placed.occupancy, box, placed.placement, 6)
    two = replace(placed.job, roles=(*placed.job.roles, Role("v", 1, Shape())))
    with pytest.raises(Unsupported, match="2 roles"):
        shrunk(placed.occupancy, two, placed.placement, 2)
