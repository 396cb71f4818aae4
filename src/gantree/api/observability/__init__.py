"""The daemon's log lines, the telemetry of its requests, tracing, and the metrics of a dry run."""
