"""Formats of public traces and of other schedulers, recognised by their columns.

What each column means is in the documentation of its publisher, which each module names. A row that is in order and no
job to run (it never started, say) is left out and counted.
"""

from gantree.formats.traces.importers.document import DocumentFormat
from gantree.formats.traces.importers.philly import POLLUX
from gantree.formats.traces.table import TableFormat

TABLES: tuple[TableFormat, ...] = (POLLUX,)
"""Formats of one row a job."""

DOCUMENTS: tuple[DocumentFormat, ...] = ()
"""Formats that are no table: JSON, and directories of several tables."""
