"""YAML and CSV to and from the model, with errors that name file, line and field.

Names are loaded on first use, so that a program which reads no file does not pay for Pydantic.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gantree.formats.calibrations import read_calibration, write_calibration
    from gantree.formats.cluster_writer import write_cluster
    from gantree.formats.clusters import read_cluster
    from gantree.formats.jobs import read_job, read_job_objects
    from gantree.formats.machines import write_machines
    from gantree.formats.policies import read_policy
    from gantree.formats.prices import read_prices
    from gantree.formats.scripts import Script, read_script
    from gantree.formats.traces import TraceJob, read_trace

__all__ = [
    "Script",
    "TraceJob",
    "read_calibration",
    "read_cluster",
    "read_job",
    "read_job_objects",
    "read_policy",
    "read_prices",
    "read_script",
    "read_trace",
    "write_calibration",
    "write_cluster",
    "write_machines",
]

_HOME = {
    "Script": "scripts",
    "TraceJob": "traces",
    "read_calibration": "calibrations",
    "read_cluster": "clusters",
    "read_job": "jobs",
    "read_job_objects": "jobs",
    "read_policy": "policies",
    "read_prices": "prices",
    "read_script": "scripts",
    "read_trace": "traces",
    "write_calibration": "calibrations",
    "write_cluster": "cluster_writer",
    "write_machines": "machines",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"gantree.formats.{_HOME[name]}"), name)
