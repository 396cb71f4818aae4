"""Where PSI/J finds the executor for gantree."""

from packaging.version import Version
from psij.descriptor import Descriptor

__PSI_J_EXECUTORS__ = [
    Descriptor(
        name="gantree",
        nice_name="gantree",
        version=Version("0.1.0"),
        cls="gantree_psij.executor.GantreeJobExecutor",
    )
]
