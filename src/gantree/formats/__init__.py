"""YAML, CSV and Parquet to and from the model, with errors that name file, line and field.

Names are loaded on first use, so that a program which reads no file does not pay for Pydantic.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gantree.formats.calibration.reader import read_calibration, write_calibration
    from gantree.formats.cluster.machines import write_machines
    from gantree.formats.cluster.reader import read_cluster
    from gantree.formats.cluster.writer import write_cluster
    from gantree.formats.job.reader import (
        Submission,
        read_job,
        read_submission,
        read_submission_objects,
    )
    from gantree.formats.policy.reader import read_policy
    from gantree.formats.prices.reader import read_prices, read_tariff
    from gantree.formats.slurm.script import Script, read_script
    from gantree.formats.traces import TraceJob, open_trace, read_trace, write_trace

__all__ = [
    "Script",
    "Submission",
    "TraceJob",
    "open_trace",
    "read_calibration",
    "read_cluster",
    "read_job",
    "read_policy",
    "read_prices",
    "read_script",
    "read_submission",
    "read_submission_objects",
    "read_tariff",
    "read_trace",
    "write_calibration",
    "write_cluster",
    "write_machines",
    "write_trace",
]

_MODULE_OF = {
    "Script": "slurm.script",
    "Submission": "job.reader",
    "TraceJob": "traces",
    "read_calibration": "calibration.reader",
    "read_cluster": "cluster.reader",
    "read_job": "job.reader",
    "read_submission": "job.reader",
    "read_submission_objects": "job.reader",
    "read_policy": "policy.reader",
    "read_prices": "prices.reader",
    "read_tariff": "prices.reader",
    "read_script": "slurm.script",
    "open_trace": "traces",
    "read_trace": "traces",
    "write_trace": "traces",
    "write_calibration": "calibration.reader",
    "write_cluster": "cluster.writer",
    "write_machines": "cluster.machines",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"gantree.formats.{_MODULE_OF[name]}"), name)
