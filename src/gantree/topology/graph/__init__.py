"""The cluster as a graph, for people and tools."""
