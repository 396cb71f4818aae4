"""Where a gang goes: the search over the topology tree, and why it found no place."""
