"""gantree: a topology-aware gang scheduler and GPU orchestrator.

The floors, from the ground up: model, topology, policy | placement, planning, core, journal | formats,
sim | executors | telemetry, control, api, cli. `CONTRIBUTING.md` walks one gang through them.
"""

__version__ = "0.1.0"
