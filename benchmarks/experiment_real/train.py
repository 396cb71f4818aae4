"""What each rank runs: a model of one layer in torch DDP over gloo, for some steps; rank 0 writes down their times.

    python train.py OUT PARAMETERS STEPS

The arithmetic is small; almost all of a step is the all-reduce of the gradients (4 bytes a parameter). Imports torch
alone, so that another environment than that of the benchmark can run it.
"""

import json
import os
import sys
import time
from itertools import pairwise
from pathlib import Path

WARM_UP = 2
INTERFACE = "eth0"


def main() -> None:
    """Train, and write {"steps_s": [...], "from": s, "to": s} (moments since 1970)."""
    import torch  # noqa: PLC0415 - takes long, and only this process needs it
    from torch import distributed, nn  # noqa: PLC0415 - the same

    out, parameters, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    os.environ["GLOO_SOCKET_IFNAME"] = INTERFACE
    torch.set_num_threads(1)
    torch.manual_seed(int(os.environ["RANK"]))
    distributed.init_process_group("gloo")
    width = 256
    layer = nn.Linear(width, parameters // width, bias=False)
    model = nn.parallel.DistributedDataParallel(layer, bucket_cap_mb=1024)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.randn(1, width)
    moments = []
    for _ in range(WARM_UP + steps + 1):
        distributed.barrier()
        moments.append(time.time())
        optimiser.zero_grad()
        model(data).square().mean().backward()
        optimiser.step()
    if distributed.get_rank() == 0:
        kept = moments[WARM_UP:]
        took_s = [after - before for before, after in pairwise(kept)]
        Path(out).write_text(json.dumps({"steps_s": took_s, "from": kept[0], "to": kept[-1]}))
    distributed.barrier()
    distributed.destroy_process_group()


main()
