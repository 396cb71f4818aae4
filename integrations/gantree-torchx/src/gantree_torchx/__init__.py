"""A TorchX scheduler for gantree; TorchX finds it through its entry point and calls it `gantree`."""

from gantree_torchx.scheduler import GantreeScheduler, create_scheduler

__all__ = ["GantreeScheduler", "create_scheduler"]
