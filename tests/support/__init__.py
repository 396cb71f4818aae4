"""Servers, clusters, browsers and judges for our own tests. What users of the library need is `gantree.testing`."""
