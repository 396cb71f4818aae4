"""A submitit executor for gantree; submitit finds it through its entry points and calls it `gantree`."""

from gantree_submitit.executor import GantreeExecutor
from gantree_submitit.job import GantreeJob
from gantree_submitit.job_environment import GantreeJobEnvironment

__all__ = ["GantreeExecutor", "GantreeJob", "GantreeJobEnvironment"]
