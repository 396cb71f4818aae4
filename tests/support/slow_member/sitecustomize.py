"""Python reads this file at its start where its folder is on the path: ranks of a check wait before each all-reduce."""

import sys
import time

if "gantree.telemetry.checking.rank" in sys.orig_argv:
    import torch.distributed as dist

    whole = dist.all_reduce

    def slow(*arguments: object, **more: object) -> object:
        time.sleep(0.1)
        return whole(*arguments, **more)

    dist.all_reduce = slow
