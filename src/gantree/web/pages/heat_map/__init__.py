"""The heat map of the cluster, which follows changes."""
