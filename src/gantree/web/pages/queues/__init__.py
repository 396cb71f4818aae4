"""The page of queues: guarantees, usage and shares."""
