"""Which program starts the MPS control daemons of which node."""

import pytest

from gantree.control.nodes.sharing.mps_program import NVIDIA_PROGRAM, mps_program_of

SITE = {"CUDA_MPS_PIPE_DIRECTORY": "/run/mps"}


@pytest.mark.parametrize(
    ("configured", "environment", "here", "virtual"),
    [
        (None, {}, NVIDIA_PROGRAM, None),
        (None, SITE, None, None),
        ("none", {}, None, None),
        ("/opt/mps", {}, "/opt/mps", "/opt/mps"),
        ("/opt/mps", SITE, "/opt/mps", "/opt/mps"),
    ],
)
def test_nvidias_program_is_for_this_machine_and_a_named_one_for_every_node(
    configured: str | None, environment: dict[str, str], here: str | None, virtual: str | None
) -> None:
    program_of = mps_program_of(configured, "host", environment)
    assert (program_of("host"), program_of("n0")) == (here, virtual)
