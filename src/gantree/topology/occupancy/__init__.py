"""Who holds what: the only thing in the topology that changes."""
