"""A Snakemake executor for gantree; Snakemake finds it by the name of this package and calls it `gantree`."""

from snakemake_interface_executor_plugins.settings import CommonSettings

from snakemake_executor_plugin_gantree.executor import Executor
from snakemake_executor_plugin_gantree.settings import ExecutorSettings

__all__ = ["Executor", "ExecutorSettings", "common_settings"]

common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=False,
    job_deploy_sources=False,
    pass_envvar_declarations_to_cmd=False,  # they are variables of the job instead
    auto_deploy_default_storage_provider=False,
)
