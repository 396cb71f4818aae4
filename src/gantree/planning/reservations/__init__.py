"""When and where a waiting gang can start."""
