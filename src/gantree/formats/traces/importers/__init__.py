"""Formats of public traces and of other schedulers, recognised by their columns.

What each column means is in the documentation of its publisher, which each module names. A row that is in order and no
job to run (it never started, say) is left out and counted.
"""

from gantree.formats.traces.importers.alibaba import DLRM_2025, OPENB, SPOT_2026
from gantree.formats.traces.importers.document import DocumentFormat
from gantree.formats.traces.importers.muri import MURI, MURI_SECONDS
from gantree.formats.traces.importers.pai import PAI
from gantree.formats.traces.importers.philly import POLLUX
from gantree.formats.traces.importers.philly_log import PHILLY_LOG
from gantree.formats.traces.importers.sacct import SACCT
from gantree.formats.traces.importers.slurm_clusters import ACME, HELIOS
from gantree.formats.traces.table import TableFormat

TABLES: tuple[TableFormat, ...] = (
    POLLUX, MURI, MURI_SECONDS, HELIOS, ACME, OPENB, SPOT_2026, DLRM_2025, SACCT,
)  # fmt: skip
"""Formats of one row a job."""

DOCUMENTS: tuple[DocumentFormat, ...] = (PHILLY_LOG, PAI)
"""Formats that are no table: JSON, and directories of several tables."""
