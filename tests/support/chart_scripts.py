"""The scripts of pages with charts, put together once in a test run.

They are the same for every page, and vl-convert computes for two seconds to put them together.
"""

import fcntl
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any


def share_chart_scripts(place: Path) -> None:
    """Have all processes that name the same place take them from there; the first writes them."""
    try:
        import vl_convert
    except ImportError:
        return
    make: Any = vl_convert.javascript_bundle
    vl_convert.javascript_bundle = cache(lambda: _shared(place, make))


def _shared(place: Path, make: Callable[[], str]) -> str:
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            place.write_text(make(), encoding="utf-8")
    return place.read_text(encoding="utf-8")
