"""Options of the command line: `--gantree-queue` and so on."""

from dataclasses import dataclass, field
from typing import Optional

from snakemake_interface_executor_plugins.settings import ExecutorSettingsBase


@dataclass
class ExecutorSettings(ExecutorSettingsBase):
    """What holds for all jobs; the resources gantree_queue and gantree_priority of a rule go before."""

    queue: Optional[str] = field(  # noqa: UP045 - Snakemake makes options of Optional[...] only
        default=None, metadata={"help": "Queue of the jobs.", "env_var": False, "required": False}
    )
    priority: Optional[str] = field(  # noqa: UP045 - Snakemake makes options of Optional[...] only
        default=None,
        metadata={
            "help": "Priority class or number of the jobs.",
            "env_var": False,
            "required": False,
        },
    )
    export: Optional[str] = field(  # noqa: UP045 - Snakemake makes options of Optional[...] only
        default=None,
        metadata={
            "help": "Variables of yours that jobs get: ALL, NONE, NAME, NAME=VALUE, with commas between them. "
            "Default: PATH, LD_LIBRARY_PATH, PYTHONPATH and the active environment.",
            "env_var": False,
            "required": False,
        },
    )
    server: Optional[str] = field(  # noqa: UP045 - Snakemake makes options of Optional[...] only
        default=None,
        metadata={
            "help": "URL or state directory of the daemon. Default: that of GANTREE_STATE or GANTREE_SERVER.",
            "env_var": False,
            "required": False,
        },
    )
