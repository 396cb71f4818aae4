"""The words that every floor speaks: jobs, clusters, placements, verdicts, events, facts, orders. Stdlib only."""
