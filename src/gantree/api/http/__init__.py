"""HTTP as the daemon speaks it: errors as problems, bodies, answers and their models, limits, the Unix socket."""
