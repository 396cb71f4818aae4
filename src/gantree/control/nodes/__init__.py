"""Data about nodes that the core does not keep: GPU ids, driver versions, GPU health."""
