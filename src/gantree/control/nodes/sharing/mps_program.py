"""Which program starts the MPS control daemons of a node: NVIDIA's on this machine, unless the site runs its own."""

from collections.abc import Mapping

from gantree.executors.local.sharing.mps_daemons import MpsProgramOf, no_mps_program

NVIDIA_PROGRAM = "nvidia-cuda-mps-control"
BY_THE_SITE = "none"
PIPE_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"
"""Where the daemon's environment has it, the site runs a control daemon that listens there."""


def mps_program_of(
    configured: str | None, hostname: str, environment: Mapping[str, str]
) -> MpsProgramOf:
    """The program for each node: the configured one for all of them, by default NVIDIA's for the node of this host."""
    if configured == BY_THE_SITE or (configured is None and environment.get(PIPE_DIRECTORY)):
        return no_mps_program
    if configured is not None:
        return lambda node: configured
    return lambda node: NVIDIA_PROGRAM if node == hostname else None
