"""prices.yaml: what a site pays, and who shares what."""
