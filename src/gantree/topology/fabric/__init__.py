"""The immutable tree of a cluster and what lies across it: rails, partitions, tori."""
