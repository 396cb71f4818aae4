"""The domain model of all floors: jobs, clusters, placements, verdicts, events, facts, orders. Stdlib only."""
