"""DuckDB, for Parquet and for joins of large tables. It is an extra; imported when a file asks for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from gantree.model.errors import Unsupported

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MEMORY_LIMIT = "512MB"
"""Of what DuckDB keeps; the rest of a large join goes to a temporary directory."""


@contextmanager
def connected(purpose: str) -> Iterator["DuckDBPyConnection"]:
    """A database in memory, for one purpose ("Parquet files"). It loads no extension, from nowhere.

    One thread, so that equal input gives equal bytes. Raises Unsupported where DuckDB is not installed.
    """
    try:
        import duckdb  # noqa: PLC0415 - an extra
    except ImportError:
        raise Unsupported(f"{purpose} need DuckDB: pip install 'gantree[simulate]'") from None
    with TemporaryDirectory(prefix="gantree-") as spill:
        settings: dict[str, str | bool | int | float | list[str]] = {
            "threads": 1,
            "memory_limit": MEMORY_LIMIT,
            "temp_directory": spill,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        with duckdb.connect(":memory:", config=settings) as connection:
            yield connection


def quoted(text: str) -> str:
    """Text as a literal of SQL, for places where DuckDB takes no parameter."""
    return "'" + text.replace("'", "''") + "'"
