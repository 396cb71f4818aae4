"""gantree: a topology-aware gang scheduler and GPU orchestrator.

The floors, from the ground up: model, topology, policy | placement, planning, core, journal | formats,
sim | executors | telemetry, control, api, cli. `CONTRIBUTING.md` walks one gang through them.
`Client` and `AsyncClient` talk to a daemon. They are loaded on first use, so that importing gantree stays fast.
"""

TYPE_CHECKING = False  # known to type checkers; `typing` takes longer to import than all of this
if TYPE_CHECKING:
    from gantree.api.client.async_client import AsyncClient
    from gantree.api.client.client import Client

__all__ = ["AsyncClient", "Client", "__version__"]
__version__ = "0.1.0"

_HOME = {"AsyncClient": "gantree.api.client.async_client", "Client": "gantree.api.client.client"}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - nothing is imported before Ctrl-C ends the program

    return getattr(import_module(_HOME[name]), name)
