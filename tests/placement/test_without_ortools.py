"""Where OR-Tools is not installed, whoever asks for the optimum is told what to do."""

import sys

import pytest

from gantree.model.errors import Unsupported
from gantree.placement.optimum.moves import defragmented
from gantree.placement.optimum.optimum import faster_spread
from gantree.placement.request.topology_request import topology_request_of
from gantree.placement.slots.problem import Problem
from gantree.testing.builders import cluster, job
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy


@pytest.fixture(autouse=True)
def _without_ortools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ortools.sat.python.cp_model", None)


def test_the_policy_exact_says_how_to_install_it_or_do_without() -> None:
    occupancy, gang = Occupancy(Fabric.build(cluster())), job("j", 2, 2)
    problem = Problem.of(occupancy, topology_request_of(occupancy.fabric, gang), ((),))
    with pytest.raises(Unsupported, match=r"pip install gantree\[optimum\].*exact_s"):
        faster_spread(problem, [(0, (2,))], gang, 1.0)


def test_a_plan_to_defragment_says_the_same() -> None:
    occupancy = Occupancy(Fabric.build(cluster()))
    with pytest.raises(Unsupported, match=r"pip install gantree\[optimum\]"):
        defragmented(occupancy, [], job("j", 2, 2))
