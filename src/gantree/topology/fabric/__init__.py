"""The immutable tree of a cluster, and its partitions: rails, other divisions, tori."""
