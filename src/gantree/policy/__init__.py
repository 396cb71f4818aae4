"""Order and quota: priorities, fair share, guarantees and limits of queues."""
