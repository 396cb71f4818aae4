"""Job traces: gantree's own columns as CSV, gzipped CSV or Parquet, and public traces, which have columns of their own.

job        TraceJob, what a row says; the standard library alone
cells      the kinds of cells: how text is read, what is allowed
columns    gantree's own columns, and the rules between them
table      a format that is a table: header, rows, and what is wrong with them
text_file  CSV files as lines of cells
parquet    Parquet files as lines of cells
database   DuckDB, which is an extra
order      sorting by submission, and ids that come twice
reader     all formats, whole or in parts
writer     CSV and Parquet
importers  formats of public traces and of other schedulers
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gantree.formats.traces.job import TraceJob

if TYPE_CHECKING:
    from gantree.formats.traces.columns import OPTIONAL, REQUIRED
    from gantree.formats.traces.reader import Trace, open_trace, read_trace, read_trace_text
    from gantree.formats.traces.writer import write_trace

__all__ = [
    "OPTIONAL",
    "REQUIRED",
    "Trace",
    "TraceJob",
    "open_trace",
    "read_trace",
    "read_trace_text",
    "write_trace",
]

_MODULE_OF = {
    "OPTIONAL": "columns",
    "REQUIRED": "columns",
    "Trace": "reader",
    "open_trace": "reader",
    "read_trace": "reader",
    "read_trace_text": "reader",
    "write_trace": "writer",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
