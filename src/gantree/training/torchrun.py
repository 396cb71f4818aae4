"""torchrun (torch elastic) inside a gang: one member starts one torchrun, which starts its processes.

    gang:
      - role: worker
        members: 4
        each: {gpus: 8}
        run: [python, -m, gantree.training.torchrun, train.py, --epochs, "3"]

Ranks are those that gantree chose: the rendezvous is static, by node rank, on the address and port of rank 0. A failed
process ends its member, and gantree starts the gang again: torchrun itself restarts nothing.

Where one member of the gang can be replaced (`restarts: {replace_within: 5m}`) the rendezvous is dynamic (c10d), at the
same address, which is the first member's store: after a loss the other members' torchruns start their processes again
and wait there for the new member. torchrun then numbers the ranks.

torch is imported only when it is run.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

from gantree.training.place import number, rendezvous_in

RESTARTS = 3
"""How often a torchrun starts its processes again after one of them failed, which a lost peer makes each of them do."""


STORE_OF_ITS_OWN = ("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
"""Each round of the rendezvous says anew where the processes meet.

By default only the first one does (torch 2.4 to 2.14, `DynamicRendezvousHandler.next_rendezvous`), so a torchrun that
joins a later one waits in vain.
"""


def options(environment: Mapping[str, str]) -> dict[str, str]:
    """Return torchrun's options for the member of an environment, by name without dashes."""
    meeting = rendezvous_in(environment)
    member = number(environment, "NODE_RANK", 0)
    inside = number(environment, "LOCAL_WORLD_SIZE", 1)
    common = {
        "nnodes": str(max(1, meeting.world_size // inside)),
        "nproc-per-node": str(_processes(environment)),
        "rdzv-endpoint": f"{meeting.master_addr}:{meeting.master_port}",
        "rdzv-id": meeting.id,
    }
    if _is_replaceable(environment):
        return {
            **common,
            "rdzv-backend": "c10d",
            "rdzv-conf": f"is_host={int(member == 0)}",
            "max-restarts": str(RESTARTS),
        }
    return {
        **common,
        "node-rank": str(member),
        "master-addr": meeting.master_addr,
        "master-port": str(meeting.master_port),
        "rdzv-backend": "static",
        "max-restarts": "0",
    }


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the same as environment variables of torchrun: PET_NNODES, PET_RDZV_ID and so on."""
    return {
        f"PET_{name.replace('-', '_').upper()}": value
        for name, value in options(environment).items()
    }


def arguments(environment: Mapping[str, str], script: Sequence[str]) -> list[str]:
    """Return torchrun's arguments; options of the user before the script override gantree's."""
    return [*(f"--{name}={value}" for name, value in options(environment).items()), *script]


def _is_replaceable(environment: Mapping[str, str]) -> bool:
    """Whether another member may take the place of one that is lost while this one runs on."""
    return environment.get("GANTREE_REPLACEABLE") == "1"


def _processes(environment: Mapping[str, str]) -> int:
    """Return processes per node: GANTREE_PROCESSES_PER_MEMBER if set, else one for each visible GPU."""
    told = number(environment, "GANTREE_PROCESSES_PER_MEMBER", 0)
    visible = [each for each in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
    return told if told > 0 else max(1, len(visible))


def main(script: Sequence[str]) -> None:
    """Run torchrun for this member in this process. Raises ImportError where torch is not installed."""
    run = import_module("torch.distributed.run")
    command = arguments(os.environ, script)
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        os.environ.pop(name, None)  # torchrun sets them for its own processes
    if _is_replaceable(os.environ):
        os.environ.setdefault(*STORE_OF_ITS_OWN)
    run.main(command)


if __name__ == "__main__":
    main(sys.argv[1:])
