"""The launcher's environment: the rank of this command, the number of commands, and the rendezvous address.

A measurement across nodes is the same command on every node, started by what starts jobs there: `gantree run`, srun,
mpirun or torchrun. They name the rank in variables of their own; the meeting place is MASTER_ADDR and MASTER_PORT,
as torch.distributed has it. One command for each node starts a process for each of its GPUs; one command for each GPU
(LOCAL_WORLD_SIZE above 1) is one process.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gantree.model.errors import BadInput

HOW = (
    "start the same command once on each node, for example with one of\n"
    "  gantree run --members 2 -- gantree topo measure -o calibration.yaml\n"
    "  MASTER_ADDR=n0 MASTER_PORT=29500 srun --nodes 2 --ntasks-per-node 1 gantree topo measure -o calibration.yaml\n"
    "  RANK=0 WORLD_SIZE=2 MASTER_ADDR=n0 MASTER_PORT=29500 gantree topo measure -o calibration.yaml\n"
    "  (RANK=0 on n0, RANK=1 on the other node)"
)
_RANKS = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
          ("PMI_RANK", "PMI_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"))  # fmt: skip
_LOCAL = (("LOCAL_RANK", "LOCAL_WORLD_SIZE"), ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
          ("SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"))  # fmt: skip
DEFAULT_PORT = 29500


@dataclass(frozen=True, slots=True)
class Launch:
    """This command among those of one measurement.

    local_index and local_count are this command's number among those of its node.
    """

    index: int
    count: int
    address: str
    port: int
    node: str
    local_index: int = 0
    local_count: int = 1


def launch_of(env: Mapping[str, str], hostname: str) -> Launch | None:
    """Return what a launcher said, None where there is none or only one command.

    Raises BadInput for numbers that are none or do not fit, and where RANK is told but no MASTER_ADDR.
    """
    names = next(((a, b) for a, b in _RANKS if a in env and b in env), None)
    if names is None or (names[0] != "RANK" and "MASTER_ADDR" not in env):
        return None  # an allocation of Slurm sets its variables in plain shells too
    index, count = _number(env, names[0]), _number(env, names[1])
    if index >= count:
        raise BadInput(f"{names[0]} is {index} but {names[1]} is {count}")
    if count == 1:
        return None
    if not env.get("MASTER_ADDR"):
        raise BadInput(f"{names[1]} is {count} but MASTER_ADDR is not set; {HOW}")
    port = _number(env, "MASTER_PORT") if env.get("MASTER_PORT") else DEFAULT_PORT
    if not 0 < port < 65_000:
        raise BadInput(f"MASTER_PORT is {port}; allowed: 1 to 64999")
    local = next(((a, b) for a, b in _LOCAL if a in env and b in env), None)
    place = (_number(env, local[0]), _number(env, local[1])) if local else (0, 1)
    node = env.get("GANTREE_NODE") or env.get("SLURMD_NODENAME") or hostname
    return Launch(index, count, env["MASTER_ADDR"], port, node, *place)


def _number(env: Mapping[str, str], name: str) -> int:
    word = env[name].strip()
    if not (word.isascii() and word.isdigit() and len(word) < 10):
        raise BadInput(f"{name} is {env[name][:40]!r}; allowed: a whole number")
    return int(word)
