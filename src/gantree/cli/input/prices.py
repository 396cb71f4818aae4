"""Reads the file of `--prices`."""

from gantree.cli.input.files import read_text, source_of
from gantree.formats.prices.reader import PricesFile


def prices_of(file: str | None) -> PricesFile | None:
    """The prices of a site; None without a file. Raises BadInput for what cannot be read, and BadFields."""
    return None if file is None else PricesFile.read(read_text(file), source_of(file))
