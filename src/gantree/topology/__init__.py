"""The topology tree, its occupancy, and the cost of traffic across it."""
