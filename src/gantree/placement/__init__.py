"""Places gangs: the search over the topology tree, and explanations of refusals."""
