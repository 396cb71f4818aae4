"""Reads the file of `--repair-hooks`, for the daemons that take it."""

from gantree.cli.input.files import read_text, source_of
from gantree.formats.repair_hooks import read_repair_hooks
from gantree.model.repairs import RepairChain


def repair_hooks_of(file: str | None) -> tuple[RepairChain, ...]:
    """The steps that repair nodes; none without a file. Raises BadInput for what cannot be read, and BadFields."""
    return () if file is None else read_repair_hooks(read_text(file), source_of(file))
