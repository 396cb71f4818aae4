"""A small client of gantree's HTTP API: what plug-ins for other tools need, and nothing of the scheduler."""

from gantree_client.client import ENDED, Client, Row
from gantree_client.environment import exported, inherited
from gantree_client.errors import ApiError, Rejected, Unreachable
from gantree_client.names import job_name

__all__ = [
    "ENDED",
    "ApiError",
    "Client",
    "Rejected",
    "Row",
    "Unreachable",
    "exported",
    "inherited",
    "job_name",
]
